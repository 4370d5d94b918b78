package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// shownLeaf writes a leaf's value as YAML on one line, secrets redacted.
func (f field) shownLeaf(v reflect.Value) string {
	switch f.kind {
	case text:
		return yamlText(f.shown(v.String()))
	case list:
		items := make([]string, v.Len())
		for i := range items {
			items[i] = yamlText(f.shown(v.Index(i).String()))
			if f.isStatus() && validStatus(strings.ToLower(v.Index(i).String())) {
				items[i] = v.Index(i).String()
			}
		}
		return "[" + strings.Join(items, ", ") + "]"
	case dict:
		m := v.Interface().(map[string]string)
		items := make([]string, 0, len(m))
		for _, k := range slices.Sorted(maps.Keys(m)) {
			items = append(items, yamlText(k)+": "+yamlText(f.shown(m[k])))
		}
		return "{" + strings.Join(items, ", ") + "}"
	case duration:
		return shortDuration(time.Duration(v.Int()))
	case size:
		return shortSize(v.Int())
	case real:
		return strconv.FormatFloat(v.Float(), 'f', -1, 64)
	case boolean:
		return strconv.FormatBool(v.Bool())
	}
	return fmt.Sprint(v.Interface())
}

// shortDuration writes 1h instead of 1h0m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// shortSize writes 16MiB instead of 16777216.
func shortSize(n int64) string {
	for _, u := range []struct {
		name  string
		bytes int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n > 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// eachLeaf calls visit for every leaf of a struct, hidden ones included.
func eachLeaf(fields []field, path string, v reflect.Value, visit func(f field, path string, v reflect.Value)) {
	for _, f := range fields {
		p, sub := join(path, f.key), f.of(v)
		switch f.kind {
		case section:
			if p != "defaults" {
				eachLeaf(f.sub, p, sub, visit)
			}
		case sections:
			for i := range sub.Len() {
				eachLeaf(f.sub, fmt.Sprintf("%s[%d]", p, i), sub.Index(i), visit)
			}
		default:
			visit(f, p, sub)
		}
	}
}
