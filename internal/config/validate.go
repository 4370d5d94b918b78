package config

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/certs"
)

// checker collects what cannot work in a configuration that could be decoded.
type checker struct {
	l      *Loaded
	wrong  map[string]bool   // key paths already reported
	shown  map[string]string // key path to its value, redacted
	seen   map[Fault]bool
	faults []Fault
	dlqs   []dlqNames // of each consumer
}

// dlqNames are the DLQ stream of a consumer and its subject pattern.
type dlqNames struct {
	stream, subjects string
}

// longest is the longest duration taken: sums and doubles of such do not wrap around.
const longest = 100 * 365 * 24 * time.Hour

// validate reports everything that cannot work, and adds warnings.
func (b *builder) validate() []Fault {
	c := &checker{l: b.loaded, wrong: b.wrong, shown: make(map[string]string), seen: make(map[Fault]bool)}
	eachLeaf(schema().sub, "", reflect.ValueOf(b.loaded.Config), func(f field, path string, v reflect.Value) {
		c.shown[path] = f.shownLeaf(v)
		c.unredacted(f, path, v)
		c.unexpanded(f, path, v)
		if f.kind == duration && time.Duration(v.Int()) > longest {
			c.fault(path, "must be at most %s, a hundred years", shortDuration(longest))
		}
		if f.enum != nil && f.key != "method" {
			c.oneOf(path, v.String(), f.enum)
		}
	})
	c.nats()
	c.app()
	c.admin()
	c.consumers()
	return c.faults
}

// Validate reports everything that cannot work, as a Faults. Load does it too, and says where each value came from.
func (c Config) Validate() error {
	b := &builder{loaded: &Loaded{Config: c, origins: make(map[string]Origin)}, wrong: make(map[string]bool)}
	if faults := b.validate(); len(faults) > 0 {
		return Faults(faults).sorted()
	}
	return nil
}

// unredacted reports a secret that is only the mark that stands for one in what sidecar config prints.
func (c *checker) unredacted(f field, path string, v reflect.Value) {
	if f.secret == "" || !slices.ContainsFunc(textsOf(v), func(s string) bool {
		return s == redacted || f.secret == "url" && strings.Contains(s, redacted)
	}) {
		return
	}
	c.fault(path, "holds the mark %s that sidecar config prints instead of a secret: give the secret itself", redacted)
	c.wrong[path] = true
}

// unexpanded warns of names and URLs with a ${VARIABLE}, which stays as it is.
func (c *checker) unexpanded(f field, path string, v reflect.Value) {
	named := f.name == "config.Consumer.Stream" || f.name == "config.Consumer.Durable"
	if (named || f.secret == "url") && slices.ContainsFunc(textsOf(v), func(s string) bool { return strings.Contains(s, "${") }) {
		advice := ": put the value itself here or into " + variableOf(path)
		if c.l.Origin(path).Layer == FromEnv {
			advice = " by the sidecar: put the value itself here"
		}
		c.warn(path, "${...} is not expanded%s", advice)
	}
}

// textsOf are the texts in a text, list or map.
func textsOf(v reflect.Value) []string {
	switch v := v.Interface().(type) {
	case string:
		return []string{v}
	case []string:
		return v
	case map[string]string:
		return slices.Collect(maps.Values(v))
	}
	return nil
}

// fault reports the value at a key path. A fault that all consumers share by defaults is reported once, there.
func (c *checker) fault(path, format string, args ...any) {
	value := c.shown[path]
	if value == `""` && !c.given(path) {
		value = ""
	}
	c.report(path, value, fmt.Sprintf(format, args...))
}

// item reports one element of a list or map; value is what is shown of it.
func (c *checker) item(path, element, value, format string, args ...any) {
	if c.wrong[path] {
		return
	}
	o := c.l.Origin(path).element(element)
	key := path
	if strings.HasPrefix(o.Key, "defaults.") {
		key = o.Key
	}
	c.add(Fault{Key: key + element, Value: value, Where: o.place(), Why: fmt.Sprintf(format, args...), line: o.Line})
}

func (c *checker) report(path, value, why string) {
	if c.wrong[path] {
		return
	}
	o := c.l.Origin(path)
	if strings.HasPrefix(o.Key, "defaults.") {
		path = o.Key
	}
	c.add(Fault{Key: path, Value: value, Where: o.place(), Why: why, line: o.Line})
}

func (c *checker) add(f Fault) {
	if !c.seen[f] {
		c.seen[f] = true
		c.faults = append(c.faults, f)
	}
}

// warn adds a warning about the value at a key path.
func (c *checker) warn(path, format string, args ...any) {
	f := Fault{Key: path, Value: c.shown[path], Where: c.l.Origin(path).place(), Why: fmt.Sprintf(format, args...)}
	c.l.Warnings = append(c.l.Warnings, f.String())
}

// given reports whether the user set the key.
func (c *checker) given(path string) bool {
	return c.l.Origin(path).Layer != FromDefault
}

func (c *checker) positive(path string, d time.Duration) {
	if d <= 0 {
		c.fault(path, "must be above 0")
	}
}

// atLeast reports a duration below the least that makes sense.
func (c *checker) atLeast(path string, d, least time.Duration, why string) {
	if d < least {
		c.fault(path, "must be at least %s: %s", least, why)
	}
}

// span is two keys of a section that are the shortest and the longest of a time.
type span struct {
	section string
	lowKey  string
	low     time.Duration
	highKey string
	high    time.Duration
}

// span reports a time that can be below least, and one whose shortest is above its longest: at the key that was given.
func (c *checker) span(s span, least time.Duration) {
	const why = "less is a tight loop"
	low, high := join(s.section, s.lowKey), join(s.section, s.highKey)
	name := s.section[strings.LastIndexByte(s.section, '.')+1:]
	if s.low < least {
		c.fault(low, "must be at least %s: %s", least, why)
	}
	if s.high < least {
		c.fault(high, "must be at least %s: %s", least, why)
	}
	switch {
	case s.low < least || s.high < least || s.low <= s.high:
	case c.given(high) && !c.wrong[low]:
		c.fault(high, "must not be below %s.%s (%s)", name, s.lowKey, shortDuration(s.low))
	case !c.wrong[high]:
		c.fault(low, "must not be above %s.%s (%s)", name, s.highKey, shortDuration(s.high))
	}
}

func (c *checker) notNegative(path string, d time.Duration) {
	if d < 0 {
		c.fault(path, "must not be negative")
	}
}

func (c *checker) between(path string, v, lowest, highest int) {
	if !within(v, lowest, highest) {
		c.fault(path, "must be %d to %d", lowest, highest)
	}
}

func within(v, lowest, highest int) bool { return lowest <= v && v <= highest }

// file checks that a file can be opened.
func (c *checker) file(path, name string) (ok bool) {
	if name == "" {
		return false
	}
	f, err := os.Open(name)
	if err != nil {
		c.fault(path, "open the file: %v", plainError(err))
		return false
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		c.fault(path, "is a directory and must be a file")
		return false
	}
	return true
}

// contents checks a file with the loader that reads it at the start.
func (c *checker) contents(path, name string, load func(file string) error) {
	if !c.file(path, name) {
		return
	}
	if err := load(name); err != nil {
		c.fault(path, "does not hold what it should: %s", strings.TrimPrefix(err.Error(), name+": "))
	}
}

func checkCAs(file string) error {
	_, err := certs.Pool(file)
	return err
}

func (c *checker) oneOf(path, value string, words []string) {
	if !slices.Contains(words, value) {
		c.fault(path, "must be %s%s", orList(words), didYouMean(value, words))
	}
}
