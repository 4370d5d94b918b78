package config

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// prefix begins the name of every variable that is ours.
const prefix = "SIDECAR_"

// target is what a variable's name resolves to.
type target struct {
	field field
	twin  bool
	path  []string      // keys, the index of a consumer included
	def   reflect.Value // the key's default
}

// fromEnv decodes the SIDECAR_ variables of an environment in the form of os.Environ. inFile is how many consumers
// the file has.
func (d *decoder) fromEnv(environ []string, inFile int) (tree map[string]any, warnings []string) {
	vars := make(map[string]string)
	for _, v := range environ {
		if name, value, ok := strings.Cut(v, "="); ok && strings.HasPrefix(name, prefix) {
			vars[name] = value
		}
	}
	tree = make(map[string]any)
	indices := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		if name == prefix+"CONFIG" {
			continue
		}
		t, ok := resolve(strings.TrimPrefix(name, prefix), schema().sub, nil, reflect.ValueOf(Default()))
		if !ok {
			warnings = append(warnings, unknownVariable(name))
			continue
		}
		if t.path[0] == "consumers" && indices[t.path[1]] == "" {
			indices[t.path[1]] = name
		}
		d.variable(tree, t, name, vars[name])
	}
	d.checkIndices(tree, indices, inFile)
	return tree, warnings
}

// variable decodes one variable into the tree.
func (d *decoder) variable(tree map[string]any, t target, name, value string) {
	sub := tree
	for _, key := range t.path[:len(t.path)-1] {
		next, ok := sub[key].(map[string]any)
		if !ok {
			next = make(map[string]any)
			sub[key] = next
		}
		sub = next
	}
	n := &node{shape: scalar, tag: tagEnv, text: value}
	d.key(sub, t.field, t.twin, n, displayPath(t.path), name, t.def)
}

// resolve finds the key that a variable's name stands for: a walk down the schema that tries longer keys first and
// goes back where a key leads nowhere.
func resolve(name string, fields []field, path []string, def reflect.Value) (target, bool) {
	for _, f := range longestFirst(fields) {
		key := strings.ToUpper(f.key)
		if name == strings.ToUpper(f.twin()) && f.twin() != "" {
			return target{field: f, twin: true, path: append(slices.Clone(path), f.key), def: def.Field(f.index)}, true
		}
		if name == key && (f.kind != section || f.parts) && f.kind != sections {
			return target{field: f, path: append(slices.Clone(path), f.key), def: f.of(def)}, true
		}
		rest, ok := strings.CutPrefix(name, key+"_")
		if !ok || f.sub == nil {
			continue
		}
		p := append(slices.Clone(path), f.key)
		sub := f.of(def)
		if f.kind == sections {
			index, after, _ := strings.Cut(rest, "_")
			if !index0.MatchString(index) {
				continue
			}
			rest, p, sub = after, append(p, index), reflect.ValueOf(DefaultConsumer())
		}
		if t, ok := resolve(rest, f.sub, p, sub); ok {
			return t, true
		}
	}
	return target{}, false
}

var index0 = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)

func longestFirst(fields []field) []field {
	sorted := slices.Clone(fields)
	slices.SortStableFunc(sorted, func(a, b field) int { return len(b.key) - len(a.key) })
	return sorted
}

// checkIndices reports consumers that the environment adds without those before them, and takes them out.
func (d *decoder) checkIndices(tree map[string]any, indices map[string]string, inFile int) {
	consumers, _ := tree["consumers"].(map[string]any)
	next := inFile
	for indices[strconv.Itoa(next)] != "" {
		next++
	}
	for _, index := range slices.Sorted(maps.Keys(indices)) {
		if i, err := strconv.Atoi(index); err == nil && i < next {
			continue
		}
		delete(consumers, index)
		path := "consumers[" + index + "]"
		d.fault(Origin{Layer: FromEnv, Name: indices[index]}, path, "",
			fmt.Sprintf("leaves a gap: there is no consumers[%d]; the next index is %d", next, next))
	}
}

// displayPath writes keys as consumers[0].retry.max.
func displayPath(keys []string) string {
	var b strings.Builder
	for i, k := range keys {
		switch {
		case i == 1 && keys[0] == "consumers":
			b.WriteString("[" + k + "]")
		case i > 0:
			b.WriteString("." + k)
		default:
			b.WriteString(k)
		}
	}
	return b.String()
}

// indexedVariable is a variable of a consumer, its first word perhaps misspelt.
var indexedVariable = regexp.MustCompile(`^SIDECAR_([A-Z]+)_0*([0-9]{1,9})_`)

// unknownVariable is the warning for a variable that is no key's.
func unknownVariable(name string) string {
	like, index := name, "0"
	if m := indexedVariable.FindStringSubmatch(name); m != nil {
		index = m[2]
		like = prefix + m[1] + "_0_" + name[len(m[0]):]
	}
	all := variables()
	var hint string
	if slices.ContainsFunc(all, func(v string) bool { return name != prefix && strings.HasPrefix(v, like+"_") }) {
		hint = "; it is a section, whose variables begin with " + name + "_"
	} else {
		hint = strings.Replace(nearVariable(like, all), "_CONSUMERS_0_", "_CONSUMERS_"+index+"_", 1)
	}
	if len(name) > maxWord {
		name = name[:maxWord] + "..."
	}
	return fmt.Sprintf("environment variable %s is not known and ignored%s", name, hint)
}

// nearVariable names the variable that a name was probably meant to be, else the nearest there is.
func nearVariable(name string, all []string) string {
	bare := make([]string, len(all))
	for i, v := range all {
		bare[i] = strings.TrimPrefix(v, prefix)
	}
	word := strings.TrimPrefix(name, prefix)
	if best := Near(word, bare); best != "" {
		return "; did you mean " + prefix + best + "?"
	}
	best, _ := Nearest(word, bare)
	return "; the nearest known one is " + prefix + best
}

// variableOf is the variable of a key path such as consumers[0].retry.max.
func variableOf(path string) string {
	return prefix + strings.ToUpper(strings.NewReplacer("[", "_", "]", "", ".", "_").Replace(path))
}

// variables lists the names of all variables, consumers by index 0.
func variables() []string {
	names := []string{prefix + "CONFIG"}
	var walk func(path string, fields []field)
	walk = func(path string, fields []field) {
		for _, f := range fields {
			name := path + strings.ToUpper(f.key)
			switch {
			case f.kind == section:
				if f.parts {
					names = append(names, name)
				}
				walk(name+"_", f.sub)
			case f.kind == sections:
				walk(name+"_0_", f.sub)
			default:
				names = append(names, name)
				if f.twin() != "" {
					names = append(names, path+strings.ToUpper(f.twin()))
				}
			}
		}
	}
	walk(prefix, schema().sub)
	return names
}
