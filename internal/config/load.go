package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"
)

// delim joins keys inside koanf; no key contains it.
const delim = "\x00"

// Options say what to load.
type Options struct {
	// File is the configuration file: YAML, or JSON or TOML by its extension. Empty means none.
	File string
	// Environ is the environment in the form of os.Environ.
	Environ []string
}

// Loaded is a valid configuration with where each value came from.
type Loaded struct {
	Config
	// File is the configuration file, or empty.
	File string
	// Warnings are worth a line in the log each.
	Warnings []string

	origins map[string]Origin
}

// Origin is where the value of a key path such as consumers[0].retry.max came from.
func (l *Loaded) Origin(path string) Origin {
	if o, ok := l.origins[path]; ok {
		return o
	}
	return Origin{Layer: FromDefault}
}

// firstPart is the key path at which the first part of a section of parts was given: its own, or that of the whole.
func (l *Loaded) firstPart(path string, f field) string {
	if own := join(path, f.sub[0].key); l.origins[own].Layer != "" && !l.origins[own].Whole {
		return own
	}
	return path
}

// Load reads, merges and checks the configuration. An error is a Faults that lists everything wrong with it, or
// says why the file could not be read; neither holds a secret. With an error Loaded has the Warnings only: a variable
// that is not known may be the cause.
func Load(opts Options) (*Loaded, error) {
	top, err := readTop(opts)
	b := newBuilder(opts)
	b.layers(top, opts)
	if err != nil {
		return &Loaded{Warnings: b.loaded.Warnings}, err
	}
	b.build()
	b.faults = append(b.faults, b.validate()...)
	if len(b.faults) > 0 {
		return &Loaded{Warnings: b.loaded.Warnings}, Faults(b.faults).sorted()
	}
	return b.loaded, nil
}

// AdminListen reads admin.listen alone, as Load would: nothing else need be there or right. A file that cannot be read
// is an error only if the environment does not have it.
func AdminListen(opts Options) (string, error) {
	const path = "admin.listen"
	top, err := readTop(opts)
	b := newBuilder(opts)
	b.layers(top, opts)
	c := &checker{l: b.loaded, wrong: b.wrong, shown: make(map[string]string), seen: make(map[Fault]bool)}
	if l, ok := b.merged.Get("admin" + delim + "listen").(leaf); ok {
		b.loaded.origins[path] = l.Origin
		b.loaded.Admin.Listen, _ = l.Value.(string)
		c.shown[path] = quote(b.loaded.Admin.Listen)
	}
	if err != nil && b.loaded.Origin(path).Layer != FromEnv {
		return "", err
	}
	c.listen()
	faults := append(b.faults, c.faults...)
	faults = slices.DeleteFunc(faults, func(f Fault) bool { return f.Key != path && f.Key != "admin" })
	if len(faults) > 0 {
		return "", Faults(faults).sorted()
	}
	return b.loaded.Admin.Listen, nil
}

// readTop reads the file, if one is named. With an error the node is null.
func readTop(opts Options) (*node, error) {
	if opts.File == "" {
		return &node{shape: null}, nil
	}
	top, err := readFile(opts.File)
	if err != nil {
		return &node{shape: null}, err
	}
	return top, nil
}

func newBuilder(opts Options) *builder {
	return &builder{loaded: &Loaded{Config: Default(), File: opts.File, origins: make(map[string]Origin)}, wrong: make(map[string]bool)}
}

// builder carries what Load has so far.
type builder struct {
	loaded *Loaded
	merged *koanf.Koanf
	faults []Fault
	wrong  map[string]bool // key paths with a fault, not to be faulted again
}

// layers merges file and environment.
func (b *builder) layers(top *node, opts Options) {
	file := &decoder{layer: FromFile, name: filepath.Base(opts.File), faults: &b.faults, wrong: b.wrong}
	tree := file.section(top, schema().sub, "", reflect.ValueOf(b.loaded.Config))
	consumers, _ := tree["consumers"].(map[string]any)

	env := &decoder{layer: FromEnv, faults: &b.faults, wrong: b.wrong}
	envTree, warnings := env.fromEnv(opts.Environ, len(consumers))
	b.loaded.Warnings = append(b.loaded.Warnings, warnings...)

	b.merged = koanf.New(delim)
	for _, layer := range []map[string]any{tree, envTree} {
		if err := b.merged.Load(confmap.Provider(layer, ""), nil); err != nil {
			b.faults = append(b.faults, Fault{Why: "merge: " + err.Error()})
		}
	}
}

// build fills the configuration from the merged layers.
func (b *builder) build() {
	cfg := reflect.ValueOf(&b.loaded.Config).Elem()
	b.fill(b.merged, schema().sub, "", "", cfg)

	defaults := b.merged.Cut("defaults")
	of, _, _ := find(schema().sub, "consumers")
	for i := 0; b.merged.Exists("consumers" + delim + strconv.Itoa(i)); i++ {
		one := defaults.Copy()
		if err := one.Merge(b.merged.Cut("consumers" + delim + strconv.Itoa(i))); err != nil {
			b.faults = append(b.faults, Fault{Why: "merge: " + err.Error()})
		}
		c := DefaultConsumer()
		b.fill(one, of.sub, "", fmt.Sprintf("consumers[%d]", i), reflect.ValueOf(&c).Elem())
		b.imply(of.sub, fmt.Sprintf("consumers[%d]", i), &c)
		b.loaded.Consumers = append(b.loaded.Consumers, c)
	}
}

// imply sets what follows from another key of a consumer and was not given itself.
func (b *builder) imply(fields []field, path string, c *Consumer) {
	f, _, _ := find(fields, "concurrency")
	path = join(path, f.key)
	if c.Order == "stream" && b.loaded.Origin(b.loaded.firstPart(path, f)).Layer == FromDefault {
		c.Concurrency = c.InFlight()
		b.loaded.origins[join(path, f.sub[0].key)] = Origin{Layer: FromDefault, Name: "order: stream"}
	}
}

// fill sets the fields of a struct from the leaves below key.
func (b *builder) fill(k *koanf.Koanf, fields []field, key, path string, v reflect.Value) {
	for _, f := range fields {
		below, p := f.key, join(path, f.key)
		if key != "" {
			below = key + delim + f.key
		}
		switch f.kind {
		case section:
			b.fill(k, f.sub, below, p, f.of(v))
		case sections:
		default:
			if l, ok := k.Get(below).(leaf); ok {
				if l.Origin.Whole {
					b.loaded.origins[path] = l.Origin
				}
				b.set(f, l, p, v.Field(f.index))
			}
		}
	}
}

func (b *builder) set(f field, l leaf, path string, v reflect.Value) {
	b.loaded.origins[path] = l.Origin
	if l.File != "" {
		secret, err := readSecret(l.File)
		lines := strings.Fields(secret)
		if err == nil && f.kind == list && len(lines) == 0 {
			err = errEmptyFile
		}
		if err != nil {
			b.secretFault(f, l, path, err)
			return
		}
		l.Value = secret
		if f.kind == list {
			l.Value = lines
		}
	}
	given := reflect.ValueOf(l.Value)
	if v.Kind() == reflect.Int && given.Int() != int64(int(given.Int())) {
		b.wrong[path] = true
		b.faults = append(b.faults, Fault{Key: path, Value: fmt.Sprint(l.Value), Where: l.Origin.place(), Why: errOutOfRange.Error(), line: l.Origin.Line})
		return
	}
	v.Set(given.Convert(v.Type()))
}

func (b *builder) secretFault(f field, l leaf, path string, err error) {
	b.wrong[path] = true
	if path == join("defaults", f.key) { // reported where it applies
		return
	}
	b.faults = append(b.faults, Fault{Key: path + "_file", Value: quote(l.File), Where: l.Origin.place(), Why: err.Error(), line: l.Origin.Line})
}
