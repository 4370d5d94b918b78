package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestBadConfigs holds that each file of testdata/bad, named after its fault, is refused with exactly the messages in
// the .txt beside it.
func TestBadConfigs(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 100 {
		t.Fatalf("found %d files: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			_, err := Load(Options{File: file})
			if err == nil {
				t.Fatal("accepted")
			}
			got := err.Error() + "\n"
			if strings.Contains(got, "hunter2") || strings.Contains(got, "12345678") {
				t.Errorf("shows a secret:\n%s", got)
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

// write puts a file into a temporary directory.
func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestOutermostValues holds that the least and the most that is told of in a refusal is accepted.
func TestOutermostValues(t *testing.T) {
	for _, keys := range []string{
		"breaker: {probe_interval: 10ms, probe_max: 10ms}", "breaker: {failures: 10000}", "breaker: {failures: 0, probe_interval: 1ns}",
		"retry: {initial: 1ms, max: 1ms}", "dedupe: {ttl: 100ms}", "dedupe: {store: off, ttl: 0s}", "rate: 1000000000",
		"max_ack_pending: 9223372036854775807", "ack_wait: 876000h", "concurrency: 10, batch: {max_messages: 10000}",
		"deliver_policy: 1970-01-01T00:00:00Z", "deliver_policy: 2262-04-11T23:47:16.854775807Z", "deliver_policy: 2262-04-11T23:00:00-00:30",
	} {
		l := mustLoad(t, Options{File: write(t, "s.yaml", "app: {timeout: 1ms, ready: {interval: 10ms}}\nconsumers: [{stream: A, durable: b, "+keys+"}]\n")})
		if p := l.Consumers[0].Deliver(); p.Kind == DeliverFromTime && p.Time.UnixNano() < 0 {
			t.Errorf("%s: begins at %v", keys, p.Time)
		}
	}
}

const minimal = "consumers: [{stream: A, durable: b}]\n"

func mustLoad(t *testing.T, opts Options) *Loaded {
	t.Helper()
	l, err := Load(opts)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestExampleEqualsDefaults(t *testing.T) {
	got := mustLoad(t, Options{File: examplePath})
	if want := exampleConfig(); !reflect.DeepEqual(got.Config, want) {
		t.Errorf("got  %+v\nwant %+v", got.Config, want)
	}
	if len(got.Warnings) > 0 {
		t.Errorf("warnings: %q", got.Warnings)
	}
}

func TestLayers(t *testing.T) {
	file := write(t, "s.yaml", `
nats: {name: file, domain: hub}
defaults: {max_deliver: 3, prefetch: 4, ack_wait: 9s, status: {dlq: [4xx]}}
consumers:
  - {stream: A, durable: a, max_deliver: 5}
  - {stream: B, durable: b}
`)
	l := mustLoad(t, Options{File: file, Environ: []string{
		"SIDECAR_NATS_NAME=env", "SIDECAR_DEFAULTS_PREFETCH=6", "SIDECAR_CONSUMERS_1_ACK_WAIT=7s",
		"SIDECAR_CONSUMERS_2_STREAM=C", "SIDECAR_CONSUMERS_2_DURABLE=c", "HOME=/",
	}})
	a, b, c := l.Consumers[0], l.Consumers[1], l.Consumers[2]
	for _, tt := range []struct {
		path      string
		got, want any
		origin    string
	}{
		{"nats.name", l.NATS.Name, "env", "env SIDECAR_NATS_NAME"},
		{"nats.domain", l.NATS.Domain, "hub", "file s.yaml:2"},
		{"app.url", l.App.URL, "http://127.0.0.1:8080", "default"},
		{"consumers[0].max_deliver", a.MaxDeliver, 5, "file s.yaml:5"},
		{"consumers[1].max_deliver", b.MaxDeliver, 3, "file defaults s.yaml:3"},
		{"consumers[0].prefetch", a.Prefetch, 6, "env SIDECAR_DEFAULTS_PREFETCH"},
		{"consumers[0].ack_wait", a.AckWait, 9 * time.Second, "file defaults s.yaml:3"},
		{"consumers[1].ack_wait", b.AckWait, 7 * time.Second, "env SIDECAR_CONSUMERS_1_ACK_WAIT"},
		{"consumers[2].stream", c.Stream, "C", "env SIDECAR_CONSUMERS_2_STREAM"},
		{"consumers[2].status.dlq", c.Status.DLQ[0], "4xx", "file defaults s.yaml:3"},
		{"defaults.max_deliver", l.Defaults.MaxDeliver, 3, "file defaults s.yaml:3"},
	} {
		if !reflect.DeepEqual(tt.got, tt.want) || l.Origin(tt.path).String() != tt.origin {
			t.Errorf("%s = %v from %q, want %v from %q", tt.path, tt.got, l.Origin(tt.path), tt.want, tt.origin)
		}
	}
	if c.Status.Ack != nil {
		t.Errorf("status.ack was not given and is %q", c.Status.Ack)
	}
}

// TestLanguages holds that YAML, JSON and TOML come to the same, with the same lines in faults.
func TestLanguages(t *testing.T) {
	files := map[string]string{
		"a.yaml": "nats:\n  urls: [nats://a, nats://b]\nconsumers:\n  - stream: A\n    durable: b\n    rate: 1.5\n    deliver_policy: 2024-05-06T07:08:09Z\n    status: {drop: [404, 2xx]}\n    retry:\n      max: 2m\n",
		"a.json": `{"nats": {"urls": ["nats://a", "nats://b"]},` + "\n\t" + `"consumers": [{"stream": "A", "durable": "b", "rate": 1.5, "deliver_policy": "2024-05-06T07:08:09Z", "status": {"drop": [404, "2xx"]}, "retry": {"max": "2m"}}]}`,
		"a.toml": "[nats]\nurls = ['nats://a', 'nats://b']\n[[consumers]]\nstream = 'A'\ndurable = 'b'\nrate = 1.5\ndeliver_policy = 2024-05-06T07:08:09Z\nstatus.drop = [404, '2xx']\n[consumers.retry]\nmax = '2m'\n",
	}
	var first *Loaded
	for _, name := range []string{"a.yaml", "a.json", "a.toml"} {
		l := mustLoad(t, Options{File: write(t, name, "\ufeff"+files[name])})
		if first == nil {
			first = l
		}
		if !reflect.DeepEqual(l.Config, first.Config) {
			t.Errorf("%s: got %+v\nwant %+v", name, l.Config, first.Config)
		}
	}
	if o := first.Consumers[0]; o.Deliver().Kind != DeliverFromTime || o.Retry.Max != 2*time.Minute || len(o.Status.Drop) != 2 {
		t.Errorf("got %+v", o)
	}
}

func TestLinesOfFaults(t *testing.T) {
	const hint = "; put a value that begins with { or contains ': ' in quotes"
	for _, tt := range []struct{ name, content, want string }{
		{"a.json", "{\n \"consumers\": [\n  {\"stream\": \"A\", \"durable\": \"b\",\n   \"retry\": {\"max\": 5}}]}", `a.json:4: consumers[0].retry.max = 5: has no unit: write it as a duration, for example 30s`},
		{"a.json", "{\n \"consumers\": [],\n \"consumers\": []}", "a.json:3: consumers: is given twice, first on line 2"},
		{"a.json", "{\n \"log\": {\"level\" \"hunter2\"}}", `a.json:2: not valid JSON: unexpected character after object key`},
		{"a.json", "{\n \"log\": {", `a.json:2: not valid JSON: it ends too early`},
		{"a.json", "{\n \"nats\": {\n  \"password\": hunter2\n }}", `a.json:3: not valid JSON: unexpected character looking for beginning of value`},
		{"a.json", "{\n \"log\": {},\n}", `a.json:3: not valid JSON: unexpected character looking for beginning of object key string`},
		{"a.json", "{} {}", `a.json:1: not valid JSON: more follows after the end`},
		{"a.json", "[]", `a.json:1: the file is a list at its top and must be a map of keys`},
		{"a.toml", "[[consumers]]\nstream = 'A'\ndurable = 'a'\n[[consumers]]\nstream = 'B'\ndurable = 'b'\n[consumers.retry]\nmax = 5\n", `a.toml:8: consumers[1].retry.max = 5: has no unit: write it as a duration, for example 30s`},
		{"a.toml", "[[consumers]]\nstream = 'A'\ndurable = 'a'\n\n[consumers.rety]\n", `a.toml:5: consumers[0].rety: is not a known key; did you mean "retry"?`},
		{"a.toml", "[log]\nlevel = 'info'\nlevel = 'hunter2'\n", `a.toml:3: not valid TOML: a key is given twice`},
		{"a.toml", "[nats]\npassword = \"hunter2\n", `a.toml:2: not valid TOML: basic strings cannot have new lines`},
		{"a.toml", "[nats]\nuser = 'u'\npassword = hunter2\n", `a.toml:3: not valid TOML: unexpected character at the start of a value (text must be in quotes)`},
		{"a.yaml", "nats:\n  name: a\nconsumers:\n  - stream: A\n    durable: b\n    dlq:\n      subject: {consumer}.x\n", `a.yaml:7: not valid YAML: did not find expected key` + hint},
		{"a.yaml", "nats:\n  name: a\n user: hunter2\nlog: {}\n", `a.yaml:3: not valid YAML: did not find expected key` + hint},
		{"a.yaml", "nats:\n  name: a\n  user: b: c\nlog: {}\n", `a.yaml:3: not valid YAML: mapping values are not allowed in this context` + hint},
		{"a.yaml", "log: {}\nnats: {name: a, user: {b}c}\nadmin: {}\n", `a.yaml:2: not valid YAML: did not find expected ',' or '}'` + hint},
		{"a.yaml", "log: {}\nnats:\n  password: \"hunter2\nadmin: {}\n", `a.yaml:3: not valid YAML: found unexpected end of stream`},
		{"a.yaml", "nats: {name: \xff}", `a.yaml: is not UTF-8 text`},
	} {
		_, err := Load(Options{File: write(t, tt.name, tt.content)})
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s: got\n%v\nwant\n%s", tt.content, err, tt.want)
		}
	}
}

func TestNullIsNotGiven(t *testing.T) {
	l := mustLoad(t, Options{File: write(t, "a.yaml", minimal+"nats:\napp: {url: null, headers: ~}\nlog: {level: }\n")})
	if l.App.URL != Default().App.URL || l.Log.Level != "info" || l.Origin("app.url").Layer != FromDefault {
		t.Errorf("got %+v", l.Config)
	}
}

func TestMergeKeysAndAnchors(t *testing.T) {
	l := mustLoad(t, Options{File: write(t, "a.yaml", `
consumers:
  - &base {stream: A, durable: a, max_deliver: 4}
  - {<<: *base, durable: b}
`)})
	if c := l.Consumers[1]; c.Stream != "A" || c.Durable != "b" || c.MaxDeliver != 4 {
		t.Errorf("got %+v", c)
	}
}

func TestNothingIsExpanded(t *testing.T) {
	t.Setenv("SECRET", "x")
	l := mustLoad(t, Options{File: write(t, "a.yaml", minimal+"nats: {name: \"${SECRET}\"}\n")})
	if l.NATS.Name != "${SECRET}" {
		t.Errorf("got %q", l.NATS.Name)
	}
}

func TestMissingFile(t *testing.T) {
	_, err := Load(Options{File: "/nowhere/s.yaml"})
	var faults Faults
	if err == nil || errors.As(err, &faults) || err.Error() != "configuration /nowhere/s.yaml: open the file: no such file or directory" {
		t.Errorf("got %v", err)
	}
}

func TestWarnings(t *testing.T) {
	l := mustLoad(t, Options{File: write(t, "a.yaml", `
consumers: [{stream: A, durable: b, manage: none, deliver_policy: new, max_ack_pending: 31}]
admin: {listen: "0.0.0.0:9090", pprof: true}
`)})
	want := []string{
		"a.yaml:3: admin.pprof = true: has no effect: it needs admin.token or a loopback admin.listen",
		"a.yaml:2: consumers[0].deliver_policy = new: has no effect with manage: none, which makes no consumer",
		"a.yaml:2: consumers[0].max_ack_pending = 31: is less than concurrency + prefetch (32): that many can never be leased",
	}
	if !reflect.DeepEqual(l.Warnings, want) {
		t.Errorf("got %q", l.Warnings)
	}
}
