package admin_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/jetsidecar/jetsidecar/internal/admin"
)

// document is docs/openapi.yaml: an OpenAPI 3.1 file, whose schemas are JSON Schemas.
type document struct {
	t        *testing.T
	root     map[string]any
	compiler *jsonschema.Compiler
}

func openAPI(t *testing.T) *document {
	t.Helper()
	raw, err := os.ReadFile("../../docs/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := &document{t: t, compiler: jsonschema.NewCompiler()}
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

// valid checks a JSON text against a schema.
func (d *document) valid(schema string, text []byte) {
	d.t.Helper()
	s, err := d.compiler.Compile("openapi.yaml#/components/schemas/" + schema)
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

func (d *document) at(path ...string) any {
	var v any = d.root
	for _, p := range path {
		m, _ := v.(map[string]any)
		v = m[p]
	}
	return v
}

func TestOpenAPIHasEveryRoute(t *testing.T) {
	d := openAPI(t)
	var described []string
	for path, item := range d.at("paths").(map[string]any) {
		for method, operation := range item.(map[string]any) {
			if method == "parameters" {
				continue
			}
			described = append(described, strings.ToUpper(method)+" "+path)
			o := operation.(map[string]any)
			responses, _ := o["responses"].(map[string]any)
			if o["summary"] == nil || o["operationId"] == nil || responses["200"] == nil || responses["default"] == nil {
				t.Errorf("%s %s lacks a summary, an id or answers", method, path)
			}
		}
	}
	served := admin.New(admin.Options{}).Routes()
	slices.Sort(described)
	slices.Sort(served)
	if !slices.Equal(described, served) {
		t.Errorf("described: %q\nserved:    %q", described, served)
	}
}

// Every reference leads somewhere, and every schema is one.
func TestOpenAPIHoldsTogether(t *testing.T) {
	d := openAPI(t)
	for name := range d.at("components", "schemas").(map[string]any) {
		if _, err := d.compiler.Compile("openapi.yaml#/components/schemas/" + name); err != nil {
			t.Error(err)
		}
	}
	used := map[string]bool{}
	var look func(v any)
	look = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				used[ref] = true
				if d.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...) == nil {
					t.Errorf("%s leads nowhere", ref)
				}
			}
			for _, x := range v {
				look(x)
			}
		case []any:
			for _, x := range v {
				look(x)
			}
		}
	}
	look(d.root)
	for _, kind := range []string{"schemas", "parameters", "responses"} {
		for name := range d.at("components", kind).(map[string]any) {
			if ref := fmt.Sprintf("#/components/%s/%s", kind, name); !used[ref] && name != "Step" && name != "DLQChange" { // of events
				t.Errorf("%s is used nowhere", ref)
			}
		}
	}
}
