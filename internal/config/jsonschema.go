package config

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"time"

	"github.com/jetsidecar/jetsidecar/policy"
)

// Patterns of the schema; ECMA 262 and RE2 read them alike.
const (
	durationPattern = `^[-+]?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))+$`
	sizePattern     = `^[0-9]+( ?(B|KiB|MiB|GiB|TiB|kB|KB|MB|GB|TB))?$`
	statusPattern   = `^(101|[2-5][0-9][0-9]|[1-5][xX][xX])$`
)

// orderPattern is what order may be.
const orderPattern = `^(none|subject|stream|header:.+)$`

type object = map[string]any

// limits are the least and the most that validation takes, whatever else is configured.
var limits = map[string]struct{ least, most any }{
	"config.Consumer.Concurrency":           {1, mostConcurrency},
	"config.Consumer.Prefetch":              {0, mostPrefetch},
	"config.Consumer.MaxAckPending":         {1, nil},
	"config.Consumer.MaxBytes":              {1, nil},
	"config.Consumer.Replicas":              {0, 5},
	"config.Consumer.MaxDeliver":            {0, nil},
	"config.Consumer.Rate":                  {0, mostRate},
	"jetstream.BatchConfig.MaxMessages":     {1, mostMessages},
	"jetstream.BatchConfig.MaxBytes":        {1, nil},
	"policy.RetryConfig.Multiplier":         {1, nil},
	"policy.RetryConfig.Jitter":             {0, 1},
	"policy.BreakerConfig.Failures":         {0, mostFailures},
	"jetstream.DeadLetterConfig.MaxBytes":   {0, nil},
	"jetstream.DeadLetterConfig.AlertDepth": {0, nil},
}

// WriteSchema writes the JSON Schema (draft 2020-12) of the configuration. As in a
// file, null is a key that is not given.
func WriteSchema(w io.Writer) error {
	top := objectSchema(schema().sub, reflect.ValueOf(Default()))
	consumer, _, _ := find(schema().sub, "consumers")
	top["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	top["title"] = "sidecar configuration"
	top["$defs"] = object{"consumer": objectSchema(consumer.sub, reflect.ValueOf(DefaultConsumer()))}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(top); err != nil {
		return fmt.Errorf("write the schema: %w", err)
	}
	return nil
}

// objectSchema is the schema of a section.
func objectSchema(fields []field, defaults reflect.Value) object {
	properties := make(object)
	for _, f := range fields {
		s := nullable(fieldSchema(f, f.of(defaults)))
		if d := f.doc(); d != "" {
			s["description"] = d
		}
		properties[f.key] = s
		if f.twin() != "" {
			properties[f.twin()] = object{"type": []string{"string", "null"}, "description": "Name of a file that holds " + f.key + "; read at start, one newline at its end is dropped."}
		}
	}
	return object{"type": "object", "additionalProperties": false, "properties": properties}
}

// nullable lets a key's value be null too.
func nullable(s object) object {
	null := object{"type": "null"}
	switch t := s["type"].(type) {
	case string:
		s["type"] = []string{t, "null"}
		return s
	case []string:
		s["type"] = append(t, "null")
		return s
	}
	switch {
	case s["enum"] != nil:
		s["enum"] = append(s["enum"].([]any), nil)
	case s["anyOf"] != nil:
		s["anyOf"] = append(s["anyOf"].([]object), null)
	default:
		s = object{"anyOf": []object{s, null}}
	}
	return s
}

func fieldSchema(f field, def reflect.Value) object {
	switch {
	case f.kind == sections:
		// A consumer's required keys may come from defaults or the environment, so none is required here.
		return object{"type": "array", "items": object{"$ref": "#/$defs/consumer"}}
	case f.key == "defaults":
		return object{"$ref": "#/$defs/consumer"}
	case f.parts:
		first := f.sub[0]
		return object{"anyOf": []object{leafSchema(first), objectSchema(f.sub, def)}, "default": schemaDefault(first, first.of(def))}
	case f.kind == section:
		if def.Type() == reflect.TypeFor[policy.StatusConfig]() {
			def = reflect.ValueOf(policy.DefaultStatus())
		}
		return objectSchema(f.sub, def)
	}
	s := leafSchema(f)
	if v := schemaDefault(f, def); v != nil {
		s["default"] = v
	}
	return s
}

func leafSchema(f field) object {
	switch f.kind {
	case number:
		return limited(f, object{"type": "integer"})
	case real:
		return limited(f, object{"type": "number"})
	case boolean:
		return object{"type": "boolean"}
	case duration:
		return object{"anyOf": []object{{"type": "string", "pattern": durationPattern}, {"const": 0}}}
	case size:
		return object{"anyOf": []object{limited(f, object{"type": "integer"}), {"type": "string", "pattern": sizePattern}}}
	case list:
		s := object{"type": "array", "items": itemSchema(f)}
		if f.secret == "file" { // one is given as it is
			s = object{"anyOf": []object{{"type": "string"}, s}}
		}
		return s
	case dict:
		return object{"type": "object", "additionalProperties": object{"type": "string"}}
	}
	if f.loose {
		return object{"type": []string{"string", "integer"}}
	}
	if f.enum != nil {
		return object{"enum": words(f.enum)}
	}
	if f.name == "config.Consumer.Order" {
		return object{"type": "string", "pattern": orderPattern}
	}
	return object{"type": "string"}
}

// limited adds the least and the most of a number.
func limited(f field, s object) object {
	if l, ok := limits[f.name]; ok {
		s["minimum"] = l.least
		if l.most != nil {
			s["maximum"] = l.most
		}
	}
	return s
}

// words are the values of an enum.
func words(enum []string) []any {
	all := make([]any, len(enum))
	for i, w := range enum {
		all[i] = w
	}
	return all
}

func itemSchema(f field) object {
	if !f.isStatus() {
		return object{"type": "string", "minLength": 1}
	}
	return object{"anyOf": []object{
		{"type": "string", "pattern": statusPattern},
		{"type": "integer", "minimum": 200, "maximum": 599},
		{"const": 101},
	}}
}

// schemaDefault is the default as JSON, or nil.
func schemaDefault(f field, v reflect.Value) any {
	switch f.kind {
	case duration:
		return shortDuration(time.Duration(v.Int()))
	case size:
		return v.Int()
	case list:
		if v.IsNil() {
			return []string{}
		}
	case dict:
		if v.IsNil() {
			return object{}
		}
	}
	if f.opaque() || f.key == "stream" && v.String() == "" || f.key == "durable" {
		return nil
	}
	return v.Interface()
}
