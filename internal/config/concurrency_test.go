package config

import (
	"strings"
	"testing"
)

// TestConcurrencyForms holds that concurrency is a number or a map, in every layer, and that the stronger layer's number is the whole.
func TestConcurrencyForms(t *testing.T) {
	const one = "consumers: [{stream: A, durable: b%}]\n"
	for _, c := range []struct {
		name, consumer, defaults string
		env                      []string
		most                     int
		adaptive                 bool
		printed                  string
	}{
		{"default", "", "", nil, 16, false, "concurrency: 16 # default"},
		{"number", "8", "", nil, 8, false, "concurrency: 8 # file s.yaml:1"},
		{"map", "{max: 64, adaptive: true}", "", nil, 64, true, "concurrency: max: 64 # file s.yaml:1 adaptive: true # file s.yaml:1"},
		{"adaptive alone", "{adaptive: true}", "", nil, 16, true, "concurrency: max: 16 # default adaptive: true # file s.yaml:1"},
		{"max alone", "{max: 8}", "", nil, 8, false, "concurrency: 8 # file s.yaml:1"},
		{"null", "~", "", nil, 16, false, "concurrency: 16 # default"},
		{"number by environment", "", "", []string{"SIDECAR_CONSUMERS_0_CONCURRENCY=8"}, 8, false, "concurrency: 8 # env SIDECAR_CONSUMERS_0_CONCURRENCY"},
		{"map by environment", "", "", []string{"SIDECAR_CONSUMERS_0_CONCURRENCY_MAX=64", "SIDECAR_CONSUMERS_0_CONCURRENCY_ADAPTIVE=true"}, 64, true,
			"max: 64 # env SIDECAR_CONSUMERS_0_CONCURRENCY_MAX adaptive: true # env SIDECAR_CONSUMERS_0_CONCURRENCY_ADAPTIVE"},
		{"number and adaptive by environment", "", "", []string{"SIDECAR_CONSUMERS_0_CONCURRENCY=8", "SIDECAR_CONSUMERS_0_CONCURRENCY_ADAPTIVE=true"}, 8, true,
			"max: 8 # env SIDECAR_CONSUMERS_0_CONCURRENCY adaptive: true"},
		{"environment over a map", "{max: 64, adaptive: true}", "", []string{"SIDECAR_CONSUMERS_0_CONCURRENCY=8"}, 8, false, "concurrency: 8 # env"},
		{"environment into a map", "{max: 64, adaptive: true}", "", []string{"SIDECAR_CONSUMERS_0_CONCURRENCY_MAX=32"}, 32, true, "max: 32 # env"},
		{"environment beside a number", "8", "", []string{"SIDECAR_CONSUMERS_0_CONCURRENCY_ADAPTIVE=true"}, 8, true, "max: 8 # file s.yaml:1 adaptive: true # env"},
		{"order: stream", "%order: stream", "", nil, 1, false, "concurrency: 1 # order: stream"},
		{"order: stream in defaults", "", "%order: stream", nil, 1, false, "concurrency: 1 # order: stream"},
		{"order: stream by environment", "", "", []string{"SIDECAR_CONSUMERS_0_ORDER=stream"}, 1, false, "concurrency: 1 # order: stream"},
		{"order: stream and the number", "1, order: stream", "", nil, 1, false, "concurrency: 1 # file s.yaml:1"},
		{"defaults", "", "{max: 64, adaptive: true}", nil, 64, true, "max: 64 # file defaults s.yaml:2"},
		{"number over defaults", "8", "{max: 64, adaptive: true}", nil, 8, false, "concurrency: 8 # file s.yaml:1"},
		{"map over defaults", "{max: 32}", "{max: 64, adaptive: true}", nil, 32, true, "max: 32 # file s.yaml:1"},
		{"defaults by environment", "", "", []string{"SIDECAR_DEFAULTS_CONCURRENCY_ADAPTIVE=true"}, 16, true, "adaptive: true # env SIDECAR_DEFAULTS_CONCURRENCY_ADAPTIVE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			key := func(value string) string {
				if value == "" {
					return ""
				}
				if other, ok := strings.CutPrefix(value, "%"); ok {
					return other
				}
				return "concurrency: " + value
			}
			text := strings.Replace(one, "%", ", "+key(c.consumer), 1) + "defaults: {" + key(c.defaults) + "}\n"
			file := write(t, "s.yaml", strings.Replace(text, ", }", "}", 1))
			l := mustLoad(t, Options{File: file, Environ: c.env})
			if got := l.Consumers[0]; got.Concurrency != c.most || got.Adaptive != c.adaptive {
				t.Errorf("%d, adaptive %t", got.Concurrency, got.Adaptive)
			}
			if got := strings.Join(strings.Fields(printed(t, l)), " "); !strings.Contains(got, c.printed) {
				t.Errorf("lacks %q:\n%s", c.printed, printed(t, l))
			}
			again := mustLoad(t, Options{File: write(t, "again.yaml", printed(t, l))}).Consumers[0]
			if again.Concurrency != c.most || again.Adaptive != c.adaptive {
				t.Errorf("printed: %d, adaptive %t", again.Concurrency, again.Adaptive)
			}
			if err := compiled(t).Validate(fromYAMLFile(t, file)); err != nil {
				t.Error(err)
			}
			if len(l.Warnings) > 0 {
				t.Error(l.Warnings)
			}
		})
	}
}

func TestConcurrencyGivenTwice(t *testing.T) {
	_, err := Load(Options{File: write(t, "s.yaml", minimal), Environ: []string{"SIDECAR_CONSUMERS_0_CONCURRENCY=8", "SIDECAR_CONSUMERS_0_CONCURRENCY_MAX=64"}})
	want := "SIDECAR_CONSUMERS_0_CONCURRENCY_MAX: consumers[0].concurrency.max: is given twice: SIDECAR_CONSUMERS_0_CONCURRENCY holds it too"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestAdaptiveWithoutEffect holds that one is told of an adaptive limit that can only be one.
func TestAdaptiveWithoutEffect(t *testing.T) {
	for _, keys := range []string{"concurrency: {max: 1, adaptive: true}", "order: stream, concurrency: {max: 1, adaptive: true}",
		"order: stream, concurrency: {adaptive: true}"} {
		l := mustLoad(t, Options{File: write(t, "s.yaml", "consumers: [{stream: A, durable: b, "+keys+"}]")})
		if len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], "concurrency.adaptive = true: has no effect") {
			t.Errorf("%s: %q", keys, l.Warnings)
		}
	}
}
