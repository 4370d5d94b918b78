package config

import (
	"reflect"
	"strconv"
)

// itemLines are the lines of the elements of a list or map.
func itemLines(n *node) map[string]int {
	lines := make(map[string]int)
	for i, item := range n.items {
		lines["["+strconv.Itoa(i)+"]"] = item.line
	}
	for _, p := range n.pairs {
		lines["."+p.key] = p.line
	}
	return lines
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func emptyValue(v any) bool {
	switch v := v.(type) {
	case string:
		return v == ""
	case []string:
		return len(v) == 0
	}
	return false
}

// plainValue is a struct field's value in the form in which it is decoded.
func plainValue(v reflect.Value) any {
	if v.Kind() == reflect.Int {
		return v.Int()
	}
	return v.Interface()
}
