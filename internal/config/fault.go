package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one thing wrong with the configuration. It holds no secret.
type Fault struct {
	Key   string // key path, such as consumers[0].retry.max
	Value string // the offending value as shown, or empty
	Where string // file and line, or environment variable, or empty
	Why   string

	line int // in the file, or 0
}

// String is "where: key = value: why".
func (f Fault) String() string {
	var b strings.Builder
	if f.Where != "" {
		b.WriteString(f.Where + ": ")
	}
	if f.Key != "" {
		b.WriteString(f.Key)
		if f.Value != "" {
			b.WriteString(" = " + f.Value)
		}
		b.WriteString(": ")
	}
	b.WriteString(f.Why)
	return b.String()
}

// Faults is every fault of a configuration, as one error.
type Faults []Fault

// sorted puts the faults in the order of the file's lines; those without a line keep their order after them.
func (fs Faults) sorted() Faults {
	slices.SortStableFunc(fs, func(a, b Fault) int {
		if a.line == 0 || b.line == 0 {
			return cmp.Compare(b.line, a.line)
		}
		return cmp.Compare(a.line, b.line)
	})
	return fs
}

// Error lists the faults, one a line.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// Layers of a value's origin.
const (
	FromDefault = "default"
	FromFile    = "file"
	FromEnv     = "env"
)

// Origin is where a value came from.
type Origin struct {
	Layer string         // FromDefault, FromFile or FromEnv
	Name  string         // the file's base name, the variable's name, or what a default follows from
	Line  int            // in the file, from 1; 0 if unknown
	Key   string         // key path where it was given, such as defaults.retry.max
	Whole bool           // it was given as the value of the section that it is a part of
	Twin  bool           // the value was read from the file that <key>_file names
	Items map[string]int // lines of the elements, by [0] or .name, where they differ
}

// place is where to look to change the value.
func (o Origin) place() string {
	switch {
	case o.Layer == FromFile && o.Line > 0:
		return fmt.Sprintf("%s:%d", o.Name, o.Line)
	case o.Layer == FromDefault:
		return ""
	}
	return o.Name
}

// element is the origin of one element of a list or map.
func (o Origin) element(name string) Origin {
	if line := o.Items[name]; line > 0 {
		o.Line = line
	}
	return o
}

// String is "default", "order: stream" for what follows from that, "file sidecar.yaml:12", "file defaults sidecar.yaml:12" or "env SIDECAR_APP_URL".
func (o Origin) String() string {
	switch o.Layer {
	case "", FromDefault:
		if o.Name != "" {
			return o.Name
		}
		return FromDefault
	case FromFile:
		s := "file "
		if strings.HasPrefix(o.Key, "defaults.") {
			s = "file defaults "
		}
		if o.Twin {
			return s + o.place() + " (by its _file key)"
		}
		return s + o.place()
	}
	return "env " + o.Name
}
