package config

import (
	"fmt"
	"reflect"
	"strconv"
)

// mostConsumers bounds how many consumers a file may list.
const mostConsumers = 1000

// leaf is a decoded value in a layer's tree, with where it came from.
type leaf struct {
	Value  any    // of the field's kind
	File   string // the file that holds the value instead, if any
	Origin Origin
}

// decoder turns the nodes of one layer into a tree of leaves and collects what is wrong with them.
type decoder struct {
	layer  string // FromFile or FromEnv
	name   string // the file's base name
	faults *[]Fault
	wrong  map[string]bool // key paths with a fault
}

func (d *decoder) origin(n *node, name, path string) Origin {
	if name == "" {
		name = d.name
	}
	return Origin{Layer: d.layer, Name: name, Line: n.line, Key: path}
}

func (d *decoder) fault(o Origin, path, value, why string) {
	d.wrong[path] = true
	*d.faults = append(*d.faults, Fault{Key: path, Value: value, Where: o.place(), Why: why, line: o.Line})
}

// section decodes a map of known keys. defaults is a struct of the same type that holds the defaults.
func (d *decoder) section(n *node, fields []field, path string, defaults reflect.Value) map[string]any {
	tree := make(map[string]any)
	if n.shape == null {
		return tree
	}
	if n.shape != mapping {
		d.fault(d.origin(n, "", path), path, "", fmt.Sprintf("is %s and must be a map of keys", n.noun()))
		return tree
	}
	first := make(map[string]int)
	for _, p := range n.pairs {
		full := join(path, p.key)
		o := d.origin(&node{line: p.line}, "", full)
		if line, ok := first[p.key]; ok {
			d.fault(o, full, "", "is given twice"+lineNote(line))
			continue
		}
		first[p.key] = p.line
		f, twin, ok := find(fields, p.key)
		if !ok {
			d.unknown(o, full, p.key, fields)
			continue
		}
		if p.node.line == 0 {
			p.node.line = p.line
		}
		d.key(tree, f, twin, p.node, join(path, f.key), "", f.of(defaults))
	}
	return tree
}

func lineNote(line int) string {
	if line == 0 {
		return ""
	}
	return fmt.Sprintf(", first on line %d", line)
}

// unknown reports a key that the schema does not have. Its value is not shown: it may be a misspelt secret's.
func (d *decoder) unknown(o Origin, full, key string, fields []field) {
	hint := didYouMean(key, keysOf(fields))
	if hint == "" {
		hint = elsewhere(key)
	}
	if hint == "" {
		hint = nearestOne(key, keysOf(fields))
	}
	d.fault(o, full, "", "is not a known key"+hint)
}

// key decodes one key's value into tree. variable names the environment variable, if it came from one.
func (d *decoder) key(tree map[string]any, f field, twin bool, n *node, path, variable string, def reflect.Value) {
	if n.shape == null {
		return
	}
	o := d.origin(n, variable, path)
	switch {
	case f.parts && n.shape == scalar:
		d.short(tree, f, n, path, variable, def)
	case f.parts && n.shape == sequence:
		d.fault(o, path, "", fmt.Sprintf("is %s and must be a single value or a map of keys", n.noun()))
	case f.kind == section:
		tree[f.key] = d.section(n, f.sub, path, def)
	case f.kind == sections:
		tree[f.key] = d.sections(n, f, path)
	case twin:
		d.twin(tree, f, n, o, path)
	default:
		d.leaf(tree, f, n, o, path)
	}
}

// short decodes the value of a section's first part, which stands for the whole: the other parts are as if they were not given, also by a
// weaker layer.
func (d *decoder) short(tree map[string]any, f field, n *node, path, variable string, def reflect.Value) {
	sub := make(map[string]any)
	d.key(sub, f.sub[0], false, n, path, variable, f.sub[0].of(def))
	for _, part := range f.sub[1:] {
		v := reflect.Zero(part.of(def).Type())
		sub[part.key] = leaf{Value: plainValue(v), Origin: d.origin(n, variable, path)}
	}
	for key, l := range sub {
		l := l.(leaf)
		l.Origin.Whole = true
		sub[key] = l
	}
	tree[f.key] = sub
}

// sections decodes a list of sections as a map of their indices, so that layers can be merged.
func (d *decoder) sections(n *node, f field, path string) map[string]any {
	tree := make(map[string]any)
	if n.shape != sequence {
		d.fault(d.origin(n, "", path), path, "", fmt.Sprintf("is %s and must be a list", n.noun()))
		return tree
	}
	if len(n.items) > mostConsumers {
		d.fault(d.origin(n, "", path), path, "", fmt.Sprintf("has %d entries and may have %d", len(n.items), mostConsumers))
		return tree
	}
	for i, item := range n.items {
		p := path + "[" + strconv.Itoa(i) + "]"
		if item.shape == null {
			d.fault(d.origin(item, "", p), p, "", "is empty")
		}
		tree[strconv.Itoa(i)] = d.section(item, f.sub, p, reflect.ValueOf(DefaultConsumer()))
	}
	return tree
}

// twin decodes the name of a file that holds a secret.
func (d *decoder) twin(tree map[string]any, f field, n *node, o Origin, path string) {
	if n.shape != scalar || n.tag != tagText && n.tag != tagEnv {
		d.fault(o, path+"_file", "", fmt.Sprintf("is %s and must be the name of a file", n.noun()))
		return
	}
	if n.text == "" {
		return
	}
	o.Twin = true
	d.put(tree, f, leaf{File: n.text, Origin: o}, path)
}

func (d *decoder) leaf(tree map[string]any, f field, n *node, o Origin, path string) {
	if v, ok := d.value(f, n, o, path); ok {
		o.Items = itemLines(n)
		d.put(tree, f, leaf{Value: v, Origin: o}, path)
	}
}

// put adds a leaf, unless the secret and its file are both given. An empty secret is none.
func (d *decoder) put(tree map[string]any, f field, l leaf, path string) {
	other, ok := tree[f.key].(leaf)
	switch {
	case !ok || other.File == "" && emptyValue(other.Value), other.Origin.Whole && reflect.ValueOf(other.Value).IsZero():
		tree[f.key] = l
	case l.File == "" && emptyValue(l.Value):
	case other.Origin.Whole:
		d.fault(l.Origin, path, "", fmt.Sprintf("is given twice: %s holds it too", other.Origin.place()))
	default:
		d.fault(l.Origin, path, "", fmt.Sprintf("is given twice: both %s and %s_file are set", f.key, f.key))
	}
}

// value decodes a scalar, list or map of strings.
func (d *decoder) value(f field, n *node, o Origin, path string) (any, bool) {
	switch {
	case f.kind == list:
		return d.list(f, n, o, path)
	case f.kind == dict:
		return d.dict(f, n, o, path)
	case n.shape != scalar:
		d.fault(o, path, "", fmt.Sprintf("is %s and must be a single value", n.noun()))
		return nil, false
	}
	v, err := scalarValue(f, n)
	if err != nil {
		d.fault(o, path, f.shownNode(n), err.Error())
		return nil, false
	}
	return v, true
}
