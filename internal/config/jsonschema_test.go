package config

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	var b bytes.Buffer
	if err := WriteSchema(&b); err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(&b)
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler() // checks the schema against its meta-schema
	if err := c.AddResource("sidecar.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("sidecar.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func fromYAMLFile(t *testing.T, path string) any {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := yaml.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestSchemaTakesTheExample(t *testing.T) {
	if err := compiled(t).Validate(fromYAMLFile(t, examplePath)); err != nil {
		t.Error(err)
	}
}

// TestSchemaRefuses holds that faults of keys and types are seen in an editor too.
func TestSchemaRefuses(t *testing.T) {
	s := compiled(t)
	for _, name := range []string{
		"unknown_key", "unknown_key_nested", "unknown_key_of_elsewhere", "consumers_a_map", "stream_a_number", "concurrency_text",
		"concurrency_fraction", "concurrency_list", "concurrency_map", "concurrency_map_values", "max_bytes_unit", "duration_bare_number", "duration_days",
		"duration_text", "manage", "ack", "method_get", "status_entry", "status_not_a_list",
		"batch", "format", "order", "dlq_alert", "app_protocol",
		"nats_secret_a_number", "nats_urls_not_a_list", "nats_section_text", "log", "bool_text", "several",
		"concurrency_zero", "concurrency_out_of_range", "prefetch_negative", "max_ack_pending_zero", "max_bytes_zero", "replicas",
		"max_deliver_negative", "rate_negative", "retry_multiplier", "retry_jitter", "breaker", "consumer_null",
	} {
		if err := s.Validate(fromYAMLFile(t, filepath.Join("testdata/bad", name+".yaml"))); err == nil {
			t.Errorf("takes %s", name)
		}
	}
}

// TestSchemaTakesWhatTheLoaderTakes holds that nulls and the defaults of keys that are not supported are no faults.
func TestSchemaTakesWhatTheLoaderTakes(t *testing.T) {
	s := compiled(t)
	for _, text := range []string{
		"consumers: [{stream: A, durable: b, order: none, format: raw}]",
		"consumers: [{stream: A, durable: b, order: null, status: {ack: ~}, retry: ~, dlq: {max_age: ~}, manage: ~, max_bytes: ~}]\nnats:\napp: {url: ~, headers: ~}\nlog: {level: }\ndefaults:\nadmin: {token_file: ~}",
		"consumers: [{stream: A, durable: b, format: cloudevents}]\napp: {signing_secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw}",
		"consumers: [{stream: A, durable: b, format: cloudevents-json}]\napp: {signing_secret: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw, C2FVsBQIhrscChlQIMV+b5sSYspob7oD]}",
		"consumers: [{stream: A, durable: b}]\napp: {signing_secret: ''}",
	} {
		file := write(t, "a.yaml", text)
		mustLoad(t, Options{File: file})
		if err := s.Validate(fromYAMLFile(t, file)); err != nil {
			t.Error(err)
		}
	}
}

// TestLimitsAreOfKeys holds that every limit of the schema is a key's.
func TestLimitsAreOfKeys(t *testing.T) {
	seen := 0
	eachLeaf(schema().sub, "", reflect.ValueOf(exampleConfig()), func(f field, _ string, _ reflect.Value) {
		if _, ok := limits[f.name]; ok {
			seen++
		}
	})
	if seen != len(limits) {
		t.Errorf("%d of %d limits are of keys", seen, len(limits))
	}
}

// TestEveryKeyIsDocumented holds that every key has a description and stands in the example.
func TestEveryKeyIsDocumented(t *testing.T) {
	text, err := os.ReadFile(examplePath)
	if err != nil {
		t.Fatal(err)
	}
	var walk func(path string, fields []field)
	walk = func(path string, fields []field) {
		for _, f := range fields {
			p := join(path, f.key)
			if docs[f.name] == "" {
				t.Errorf("%s has no doc comment", p)
			}
			for _, key := range []string{f.key, f.twin()} {
				if !strings.Contains(string(text), key+":") {
					t.Errorf("%s of %s is not in the example", key, path)
				}
			}
			if p != "defaults" {
				walk(p, f.sub)
			}
		}
	}
	walk("", schema().sub)
}
