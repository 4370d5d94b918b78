package config

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/jetsidecar/jetsidecar/policy"
)

var update = flag.Bool("update", false, "write config.example.yaml and the table of docs/configuration.md")

const (
	examplePath = "../../config.example.yaml"
	docsPath    = "../../docs/configuration.md"
	tableBegin  = "<!-- keys: begin (generated) -->\n"
	tableEnd    = "<!-- keys: end -->\n"
)

const exampleHead = `# Every key of the sidecar, at its default. Only the stream and durable of a consumer are required.
#
# Check a file with "sidecar check -c FILE"; see what is in effect, and why, with "sidecar config -c FILE".
# Each key can also be set in the environment: SIDECAR_ and the key path in capitals, joined by _, such as
# SIDECAR_NATS_URLS=a,b or SIDECAR_CONSUMERS_0_RETRY_MAX=5m. The environment is stronger than this file.
# Durations are Go durations (500ms, 30s, 1h30m); sizes are bytes or 64KiB, 16MiB, 1GB.

`

const exampleFoot = `
# Any key of a consumer, applied to all of them, below a consumer's own keys.
defaults: {}
`

// example is the text of config.example.yaml.
func example() string {
	var b strings.Builder
	b.WriteString(exampleHead)
	cfg := exampleConfig()
	exampleSection(&b, schema().sub, "", reflect.ValueOf(cfg))
	return b.String() + exampleFoot
}

// exampleConfig is what config.example.yaml holds: the defaults and one consumer with all lists written out.
func exampleConfig() Config {
	cfg := Default()
	c := DefaultConsumer()
	c.Stream, c.Durable, c.Status = "ORDERS", "orders-worker", policy.DefaultStatus()
	c.FilterSubjects = []string{}
	cfg.App.Headers, cfg.App.SigningSecret = map[string]string{}, []string{}
	cfg.Consumers = []Consumer{c}
	return cfg
}

func exampleSection(b *strings.Builder, fields []field, indent string, v reflect.Value) {
	first := true
	for _, f := range fields {
		if f.key == "defaults" {
			continue
		}
		if indent == "" && !first {
			b.WriteByte('\n')
		}
		first = false
		sub := f.of(v)
		writeComment(b, indent, f.doc())
		switch {
		case f.inShort(sub):
			for _, part := range f.sub[1:] {
				writeComment(b, indent, part.doc())
			}
			fmt.Fprintf(b, "%s%s: %s\n", indent, f.key, f.sub[0].shownLeaf(f.sub[0].of(sub)))
		case f.kind == section:
			fmt.Fprintf(b, "%s%s:\n", indent, f.key)
			exampleSection(b, f.sub, indent+"  ", sub)
		case f.kind == sections:
			var one strings.Builder
			exampleSection(&one, f.sub, indent+"    ", sub.Index(0))
			fmt.Fprintf(b, "%s%s:\n%s  -\n%s", indent, f.key, indent, one.String())
		default:
			fmt.Fprintf(b, "%s%s: %s\n", indent, f.key, f.shownLeaf(sub))
		}
		if f.twin() != "" {
			fmt.Fprintf(b, "%s# %s: \"\"  # a file that holds it, instead\n", indent, f.twin())
		}
	}
}

// writeComment wraps a comment.
func writeComment(b *strings.Builder, indent, text string) {
	line := indent + "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > 110 {
			b.WriteString(line + "\n")
			line = indent + "#"
		}
		line += " " + word
	}
	if line != indent+"#" {
		b.WriteString(line + "\n")
	}
}

// keyTable is the table of docs/configuration.md.
func keyTable() string {
	var b strings.Builder
	b.WriteString("| key | default | environment variable | meaning |\n|---|---|---|---|\n")
	tableRows(&b, schema().sub, "", prefix, reflect.ValueOf(Default()))
	return b.String()
}

func tableRows(b *strings.Builder, fields []field, path, variable string, def reflect.Value) {
	for _, f := range fields {
		p, name, v := join(path, f.key), variable+strings.ToUpper(f.key), f.of(def)
		switch {
		case p == "defaults":
			fmt.Fprintf(b, "| `defaults` | | `SIDECAR_DEFAULTS_…` | %s |\n", f.doc())
		case f.kind == section && v.Type() == reflect.TypeFor[policy.StatusConfig]():
			tableRows(b, f.sub, p, name+"_", reflect.ValueOf(policy.DefaultStatus()))
		case f.kind == section:
			if f.parts {
				fmt.Fprintf(b, "| `%s` | `%s` | `%s` | %s |\n", p, f.sub[0].shownLeaf(f.sub[0].of(v)), name, f.doc())
			}
			tableRows(b, f.sub, p, name+"_", v)
		case f.kind == sections:
			tableRows(b, f.sub, p+"[]", name+"_0_", reflect.ValueOf(DefaultConsumer()))
		default:
			fmt.Fprintf(b, "| `%s` | `%s` | `%s` | %s |\n", p, f.shownLeaf(v), name, f.doc())
			if f.twin() != "" {
				fmt.Fprintf(b, "| `%s` | `\"\"` | `%s` | A file that holds `%s`. |\n", join(path, f.twin()), variable+strings.ToUpper(f.twin()), f.key)
			}
		}
	}
}

// inDocs puts the table between its marks.
func inDocs(t *testing.T, page string) string {
	t.Helper()
	before, rest, ok := strings.Cut(page, tableBegin)
	_, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no marks for the table", docsPath)
	}
	return before + tableBegin + keyTable() + tableEnd + after
}

func TestExampleIsCurrent(t *testing.T) {
	current(t, examplePath, func(string) string { return example() })
}

func TestDocsAreCurrent(t *testing.T) {
	current(t, docsPath, func(page string) string { return inDocs(t, page) })
}

// current holds that a file is what render makes of it, or with -update writes it.
func current(t *testing.T, path string, render func(string) string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil && !*update {
		t.Fatal(err)
	}
	want := render(string(got))
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(got) != want {
		t.Errorf("%s is out of date: run go test ./internal/config -run Current -update", path)
	}
}
