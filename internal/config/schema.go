package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
)

// kind is what a key holds.
type kind int

const (
	section  kind = iota // a map of known keys
	sections             // a list of sections
	text                 // a string
	number               // a whole number
	real                 // a number
	boolean              // true or false
	duration             // a Go duration
	size                 // bytes
	list                 // a list of strings
	dict                 // a map of strings
)

// field is one key of the schema, read off a struct field.
type field struct {
	key    string
	name   string // Package.Type.Field, for its documentation
	index  int    // of the struct field
	kind   kind
	enum   []string
	secret string  // file, true, value or url
	loose  bool    // any scalar is taken as text
	sub    []field // of a section
	parts  bool    // a section whose keys are fields of the struct around it; its value alone stands for the first
	whole  string  // the section whose first part it is
}

// of is the struct that holds the fields of a section, or the value of a key, in the struct v.
func (f field) of(v reflect.Value) reflect.Value {
	if f.parts {
		return v
	}
	return v.Field(f.index)
}

// inShort reports whether a section of parts is its first part alone.
func (f field) inShort(v reflect.Value) bool {
	return f.parts && !slices.ContainsFunc(f.sub[1:], func(s field) bool { return !s.of(v).IsZero() })
}

// twin is the key of the file that may hold the secret, or empty.
func (f field) twin() string {
	if f.secret != "file" {
		return ""
	}
	return f.key + "_file"
}

// opaque reports whether the value as a whole is never shown.
func (f field) opaque() bool {
	return f.secret == "file" || f.secret == "true"
}

// isStatus reports whether the key lists HTTP statuses.
func (f field) isStatus() bool {
	return strings.HasPrefix(f.name, "policy.StatusConfig.")
}

// schema is the whole configuration's.
var schema = sync.OnceValue(func() field {
	return field{kind: section, name: "config.Config", sub: fieldsOf(reflect.TypeFor[Config]())}
})

func fieldsOf(t reflect.Type) []field {
	pkg := t.PkgPath()[strings.LastIndexByte(t.PkgPath(), '/')+1:]
	fields := make([]field, 0, t.NumField())
	for i := range t.NumField() {
		s := t.Field(i)
		f := field{
			key:    s.Tag.Get("koanf"),
			name:   pkg + "." + t.Name() + "." + s.Name,
			index:  i,
			kind:   kindOf(s),
			enum:   commaList(s.Tag.Get("enum")),
			secret: s.Tag.Get("secret"),
			loose:  s.Tag.Get("scalar") == "any",
		}
		switch f.kind {
		case section:
			f.sub = fieldsOf(s.Type)
		case sections:
			f.sub = fieldsOf(s.Type.Elem())
		}
		if part := s.Tag.Get("part"); part != "" {
			fields = withPart(fields, f, part)
			continue
		}
		fields = append(fields, f)
	}
	return fields
}

// withPart adds a part to the section that has its key, or begins that. The section's documentation is that of its first part.
func withPart(fields []field, f field, part string) []field {
	whole := field{key: f.key, name: f.name, kind: section, parts: true}
	f.key = part
	if n := len(fields); n > 0 && fields[n-1].key == whole.key {
		fields[n-1].sub = append(fields[n-1].sub, f)
		return fields
	}
	f.whole = whole.key
	whole.sub = []field{f}
	return append(fields, whole)
}

func kindOf(s reflect.StructField) kind {
	switch {
	case s.Type == reflect.TypeFor[time.Duration]():
		return duration
	case s.Tag.Get("unit") == "bytes":
		return size
	}
	switch s.Type.Kind() {
	case reflect.Struct:
		return section
	case reflect.String:
		return text
	case reflect.Int, reflect.Int64:
		return number
	case reflect.Float64:
		return real
	case reflect.Bool:
		return boolean
	case reflect.Map:
		return dict
	case reflect.Slice:
		if s.Type.Elem().Kind() == reflect.Struct {
			return sections
		}
		return list
	}
	panic(fmt.Sprintf("config: field %s of type %s has no kind", s.Name, s.Type))
}

func commaList(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// find looks a key up among the keys of a section. twin is whether it names the secret's file.
func find(fields []field, key string) (f field, twin, ok bool) {
	for _, f := range fields {
		if f.key == key {
			return f, false, true
		}
		if f.twin() == key && key != "" {
			return f, true, true
		}
	}
	return field{}, false, false
}

// keysOf lists the keys a section may have.
func keysOf(fields []field) []string {
	var keys []string
	for _, f := range fields {
		keys = append(keys, f.key)
		if f.twin() != "" {
			keys = append(keys, f.twin())
		}
	}
	return keys
}
