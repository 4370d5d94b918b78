package config

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// printed is what sidecar config writes.
func printed(t testing.TB, l *Loaded) string {
	t.Helper()
	var b bytes.Buffer
	if err := l.WriteYAML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPrintedOrigins(t *testing.T) {
	l := mustLoad(t, Options{File: write(t, "s.yaml", minimal+"defaults: {rate: 2}\nnats:\n  urls: ['nats://u:hunter2@h']\n"), Environ: []string{"SIDECAR_APP_URL=http://u:hunter2@b", "SIDECAR_APP_HEADERS=A=hunter2"}})
	got := strings.Join(strings.Fields(printed(t, l)), " ")
	for _, want := range []string{
		`urls: ["nats://[redacted]@h"] # file s.yaml:4`,
		`url: "http://[redacted]@b" # env SIDECAR_APP_URL`,
		`headers: {A: "[redacted]"} # env SIDECAR_APP_HEADERS`,
		`rate: 2 # file defaults s.yaml:2`,
		`timeout: 30s # default`,
		`- stream: A # file s.yaml:1`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, printed(t, l))
		}
	}
	for _, hidden := range []string{"hunter2", "defaults:"} {
		if strings.Contains(got, hidden) {
			t.Errorf("shows %q:\n%s", hidden, printed(t, l))
		}
	}
}

// TestPrintedStatus holds that lists that were not given are no values beside one that was: as values they would win
// over its classes.
func TestPrintedStatus(t *testing.T) {
	l := mustLoad(t, Options{File: write(t, "s.yaml", "consumers: [{stream: A, durable: b, status: {dlq: [4xx]}}]")})
	again := mustLoad(t, Options{File: write(t, "again.yaml", printed(t, l))})
	if s := again.Consumers[0].Status; s.Retry != nil || s.Ack != nil || len(s.DLQ) != 1 {
		t.Errorf("got %+v from\n%s", s, printed(t, l))
	}
}

// TestPrintedIsLoadedAgain holds that what is printed means the same, whatever the texts in it.
func TestPrintedIsLoadedAgain(t *testing.T) {
	dir := t.TempDir()
	words := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"yes", "null", "~", "1e3", "0x1", "2024-01-01", "a: b", "#c", "- d", "!!int 3", "*x", "[", "{", " ", "\u2028", "\x00\x7f\u0085", "=", "<<", ".inf", "%"}))
	valid := 0
	rapid.Check(t, func(rt *rapid.T) {
		l := &Loaded{Config: exampleConfig()}
		l.NATS.Name = strings.ToValidUTF8(words.Draw(rt, "name"), "")
		l.NATS.User = strings.ToValidUTF8(words.Draw(rt, "user"), "")
		c := &l.Consumers[0]
		c.FilterSubjects = rapid.SliceOf(rapid.StringMatching(`[a-z0-9:#,\[\]{}&!|"'%@~-]{1,8}`)).Draw(rt, "filters")
		c.Concurrency, c.Adaptive = rapid.IntRange(1, 10000).Draw(rt, "concurrency"), rapid.Bool().Draw(rt, "adaptive")
		c.MaxBytes = rapid.Int64Min(1).Draw(rt, "bytes")
		c.Rate = rapid.Float64Range(0, 1e300).Draw(rt, "rate")
		c.Retry.Max = c.Retry.Initial + rapid.Custom(func(t *rapid.T) (d time.Duration) { return time.Duration(rapid.Int64Range(0, 1<<61).Draw(t, "d")) }).Draw(rt, "max")
		if l.Config.Validate() != nil {
			return // it is never printed
		}
		valid++
		file := dir + "/again.yaml"
		if err := os.WriteFile(file, []byte(printed(t, l)), 0o600); err != nil {
			rt.Fatal(err)
		}
		again, err := Load(Options{File: file})
		if err != nil {
			rt.Fatalf("%v in\n%s", err, printed(t, l))
		}
		if !reflect.DeepEqual(again.Config, l.Config) {
			rt.Fatalf("got  %+v\nwant %+v", again.Config, l.Config)
		}
	})
	if valid == 0 {
		t.Error("nothing was printed")
	}
}

// TestSecretsAreNeverShown puts secrets in every place that may hold one, in valid and in broken configurations.
func TestSecretsAreNeverShown(t *testing.T) {
	dir := t.TempDir()
	places := []string{
		"nats: {user: u, password: %s}", "nats: {token: %s}", "nats: {pasword: %s}", "nats: {urls: ['nats://%s:%s@h']}",
		"nats: {urls: ['nats://u:%s@h:port']}", "nats: {urls: 'tls://%s@h'}", "nats: {urls: [{a: %s}]}", "nats: %s",
		"app: {url: 'http://u:%s@h'}", "app: {url: 'u:%s@h'}", "app: {headers: {X: %s}}", "app: {headers: %s}", "app: {headers: [%s]}",
		"app: {bearer_token: %s}", "app: {bearer_token: [%s]}", "app: {signing_secret: %s}", "app: {signing_secret: [%s, %s]}",
		"admin: {token: %s}", "admin: {token: {%s: 1}, tokn: %s}", "defaults: {dlq: {alert_url: %s}}", "defaults: {dlq: {alert_url: [%s]}}",
		"nats: {password: *%s}", "nats: {password: !%s x}", "nats: {password: \"%s}", "nats: {password: '%s}", "nats:\n\tpassword: %s",
		"nats: {password: |\n%s", "nats: {password: %s, password: %s}", "nats: {token: &%s [*%s]}", "%%%s", "nats: {password: \"\\q%s\"}",
	}
	rapid.Check(t, func(rt *rapid.T) {
		secret := "S3" + rapid.StringMatching(`[A-Za-z0-9]{8,16}`).Draw(rt, "secret")
		odd := rapid.SampledFrom([]string{"", "@", "/", ":", "%", "#", "?", "%zz", " b", "\\", "]"}).Draw(rt, "odd")
		place := rapid.SampledFrom(places).Draw(rt, "place")
		text := strings.ReplaceAll(strings.ReplaceAll(place, "%s", secret+odd+secret), "%%", "%")
		ext := rapid.SampledFrom([]string{".yaml", ".json", ".toml"}).Draw(rt, "ext")
		file := dir + "/s" + ext
		if err := os.WriteFile(file, []byte(minimal+text+"\n"), 0o600); err != nil {
			rt.Fatal(err)
		}
		noSecret(t, rt, secret, Options{File: file})
	})
}

// TestSecretsOfTheEnvironmentAreNeverShown does the same to every variable of a secret.
func TestSecretsOfTheEnvironmentAreNeverShown(t *testing.T) {
	names := []string{"NATS_PASSWORD", "NATS_TOKEN", "APP_BEARER_TOKEN", "APP_SIGNING_SECRET", "ADMIN_TOKEN", "APP_HEADERS", "NATS_PASWORD", "CONSUMERS_0_DLQ_ALERT_URL", "DEFAULTS_DLQ_ALERT_URL"}
	rapid.Check(t, func(rt *rapid.T) {
		secret := "S3" + rapid.StringMatching(`[A-Za-z0-9]{8,16}`).Draw(rt, "secret")
		value := rapid.SampledFrom([]string{"%s", "X=%s", "X=%s,%s", "X=%s\n", "%s %s", "https://u:%s@h"}).Draw(rt, "value")
		name := rapid.SampledFrom(names).Draw(rt, "name")
		noSecret(t, rt, secret, Options{Environ: append([]string{prefix + name + "=" + strings.ReplaceAll(value, "%s", secret)}, oneConsumer...)})
		url := rapid.SampledFrom([]string{"NATS_URLS", "APP_URL"}).Draw(rt, "url")
		noSecret(t, rt, secret, Options{Environ: append([]string{prefix + url + "=nats://" + secret + ":" + secret + "@h,http://u:" + secret + "@h:x"}, oneConsumer...)})
	})
}

func noSecret(t *testing.T, rt *rapid.T, secret string, opts Options) {
	l, err := Load(opts)
	out := fmt.Sprint(err) + strings.Join(l.Warnings, "\n")
	if err == nil {
		out += printed(t, l)
	}
	if strings.Contains(out, secret) {
		rt.Fatalf("shows the secret %s:\n%s", secret, out)
	}
}

// FuzzFile holds that no file panics or is printed as something that is not loaded again.
func FuzzFile(f *testing.F) {
	f.Add([]byte(example()), byte(0))
	f.Add([]byte(`{"consumers": [{"stream": "A"}]}`), byte(1))
	f.Add([]byte("[[consumers]]\nstream = 'A'\n"), byte(2))
	f.Add([]byte("a: &a [*a]"), byte(0))
	f.Add([]byte("? [a]\n: b"), byte(0))
	f.Fuzz(func(t *testing.T, data []byte, language byte) {
		n, err := parse([]string{".yaml", ".json", ".toml"}[language%3], data)
		if err != nil {
			return
		}
		b := &builder{loaded: &Loaded{Config: Default(), origins: make(map[string]Origin)}, wrong: make(map[string]bool)}
		b.layers(n, Options{File: "f"})
		b.build()
		if faults := append(b.faults, b.validate()...); len(faults) > 0 {
			_ = Faults(faults).Error()
			return
		}
		if _, err := parse(".yaml", []byte(printed(t, b.loaded))); err != nil {
			t.Errorf("%v in\n%s", err, printed(t, b.loaded))
		}
	})
}
