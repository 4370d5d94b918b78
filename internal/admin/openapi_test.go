package admin_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jetsidecar/jetsidecar/internal/admin"
	"github.com/jetsidecar/jetsidecar/internal/admin/openapitest"
)

const openAPI = "../../docs/openapi.yaml"

func TestOpenAPIHasEveryRoute(t *testing.T) {
	d := openapitest.Open(t, openAPI)
	var described []string
	for path, item := range d.At("paths").(map[string]any) {
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
	d := openapitest.Open(t, openAPI)
	for name := range d.At("components", "schemas").(map[string]any) {
		if _, err := d.Schema(name); err != nil {
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
				if d.At(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...) == nil {
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
	look(d.At())
	for _, kind := range []string{"schemas", "parameters", "responses"} {
		for name := range d.At("components", kind).(map[string]any) {
			if ref := fmt.Sprintf("#/components/%s/%s", kind, name); !used[ref] && name != "Step" && name != "DLQChange" { // of events
				t.Errorf("%s is used nowhere", ref)
			}
		}
	}
}
