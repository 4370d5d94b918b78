// Package openapitest holds answers of the API against their description.
package openapitest

import (
	"bytes"
	"os"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// Document is docs/openapi.yaml: an OpenAPI 3.1 file, whose schemas are JSON Schemas.
type Document struct {
	t        testing.TB
	root     map[string]any
	compiler *jsonschema.Compiler
}

// Open reads the file.
func Open(t testing.TB, path string) *Document {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d := &Document{t: t, compiler: jsonschema.NewCompiler()}
	if err := yaml.Unmarshal(raw, &d.root); err != nil {
		t.Fatal(err)
	}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource("openapi.yaml", plainJSON(d.root)); err != nil {
		t.Fatal(err)
	}
	return d
}

// plainJSON makes of what YAML gives what JSON would.
func plainJSON(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			v[k] = plainJSON(x)
		}
	case []any:
		for i, x := range v {
			v[i] = plainJSON(x)
		}
	case int:
		return float64(v)
	}
	return v
}

// Schema is one of the schemas, by its name.
func (d *Document) Schema(name string) (*jsonschema.Schema, error) {
	return d.compiler.Compile("openapi.yaml#/components/schemas/" + name)
}

// Valid checks a JSON text against a schema.
func (d *Document) Valid(schema string, text []byte) {
	d.t.Helper()
	s, err := d.Schema(schema)
	if err != nil {
		d.t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		d.t.Fatalf("%s: %v in %s", schema, err, text)
	}
	if err := s.Validate(v); err != nil {
		d.t.Errorf("%v\n%s", err, text)
	}
}

// At is what stands at a place of the document; nil if there is nothing.
func (d *Document) At(path ...string) any {
	var v any = d.root
	for _, p := range path {
		m, _ := v.(map[string]any)
		v = m[p]
	}
	return v
}
