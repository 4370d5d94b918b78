package config

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

var oneConsumer = []string{"SIDECAR_CONSUMERS_0_STREAM=A", "SIDECAR_CONSUMERS_0_DURABLE=b"}

// values are a value that is not the default for keys that take no arbitrary text.
var values = map[string]string{
	"nats.urls": "nats://a, nats://b", "app.url": "unix:///run/app.sock", "app.protocol": "h2c", "app.headers": "a=b,c=d=e",
	"admin.listen": ":0", "log.level": "debug", "log.format": "json", "consumers[0].manage": "none",
	"consumers[0].deliver_policy": "17", "consumers[0].path": "/x", "consumers[0].method": "PUT", "consumers[0].ack": "async",
	"consumers[0].status.ack": "200,3xx", "consumers[0].dlq.subject": "dead.{subject}", "consumers[0].dedupe.store": "off",
	"app.ready.path": "/ready", "consumers[0].ack_wait": "45s",
}

// value is an admissible value of the key, as the environment gives it, that is not its default.
func value(f field, path string) string {
	if v, ok := values[path]; ok {
		return v
	}
	switch f.kind {
	case number:
		return "3"
	case real:
		return "1"
	case boolean:
		return map[bool]string{true: "false", false: "true"}[f.key == "enabled" || f.key == "create"]
	case duration:
		return "90s"
	case size:
		return "3KiB"
	}
	return "text"
}

// TestEveryVariable holds that every key can be set by its variable alone, and by nothing else.
func TestEveryVariable(t *testing.T) {
	cfg := exampleConfig()
	keys := 0
	eachLeaf(schema().sub, "", reflect.ValueOf(cfg), func(f field, path string, _ reflect.Value) {
		keys++
		name := prefix + strings.ToUpper(strings.NewReplacer("[", "_", "]", "", ".", "_").Replace(path))
		b := &builder{loaded: &Loaded{Config: Default(), origins: make(map[string]Origin)}, wrong: make(map[string]bool)}
		b.layers(&node{}, Options{Environ: []string{name + "=" + value(f, path)}})
		b.build()
		if len(b.faults) > 0 || len(b.loaded.Warnings) > 0 || b.loaded.Origin(path).Name != name {
			t.Errorf("%s: origins %v, faults %v, warnings %v", name, b.loaded.origins, b.faults, b.loaded.Warnings)
		}
	})
	if keys < 60 || len(variables()) < keys {
		t.Errorf("saw %d keys and %d variables", keys, len(variables()))
	}
}

func TestEnvironmentAlone(t *testing.T) {
	l := mustLoad(t, Options{Environ: append([]string{
		"SIDECAR_CONFIG=ignored", "SIDECAR_NATS_URLS=nats://a, nats://b", "SIDECAR_APP_HEADERS=A=b=c, D=e",
		"SIDECAR_CONSUMERS_0_MAX_DELIVER=3", "SIDECAR_CONSUMERS_0_MAX_BYTES=1KiB", "SIDECAR_CONSUMERS_0_STATUS_DROP=404,2xx",
		"SIDECAR_CONSUMERS_0_DLQ_MAX_AGE=0", "SIDECAR_CONSUMERS_0_FILTER_SUBJECTS=", "SIDECAR_NATS_NAME=", "SIDECAR_ADMIN_PPROF=true",
	}, oneConsumer...)})
	c := l.Consumers[0]
	if !reflect.DeepEqual(l.NATS.URLs, []string{"nats://a", "nats://b"}) || l.App.Headers["A"] != "b=c" || l.App.Headers["D"] != "e" ||
		c.MaxDeliver != 3 || c.MaxBytes != 1024 || len(c.Status.Drop) != 2 || len(c.FilterSubjects) != 0 || l.NATS.Name != "" || !l.Admin.PProf {
		t.Errorf("got %+v", l.Config)
	}
}

func TestEnvironmentFaults(t *testing.T) {
	for _, tt := range []struct{ name, env, want string }{
		{"empty number", "SIDECAR_CONSUMERS_0_RETRY_JITTER=", `SIDECAR_CONSUMERS_0_RETRY_JITTER: consumers[0].retry.jitter = "": is empty`},
		{"empty duration", "SIDECAR_APP_TIMEOUT=", `SIDECAR_APP_TIMEOUT: app.timeout = "": is empty`},
		{"bool", "SIDECAR_ADMIN_PPROF=1", `SIDECAR_ADMIN_PPROF: admin.pprof = "1": must be true or false`},
		{"bare duration", "SIDECAR_APP_TIMEOUT=30", `SIDECAR_APP_TIMEOUT: app.timeout = "30": has no unit: write it as a duration, for example 30s`},
		{"gap", "SIDECAR_CONSUMERS_2_STREAM=A", `SIDECAR_CONSUMERS_2_STREAM: consumers[2]: leaves a gap: there is no consumers[1]; the next index is 1`},
		{"huge", "SIDECAR_CONSUMERS_4294967296_STREAM=A", `SIDECAR_CONSUMERS_4294967296_STREAM: consumers[4294967296]: leaves a gap: there is no consumers[1]; the next index is 1`},
		{"beyond any integer", "SIDECAR_CONSUMERS_99999999999999999999_STREAM=A", `SIDECAR_CONSUMERS_99999999999999999999_STREAM: consumers[99999999999999999999]: leaves a gap: there is no consumers[1]; the next index is 1`},
		{"map without =", "SIDECAR_APP_HEADERS=hunter2", `SIDECAR_APP_HEADERS: app.headers: entry 1 has no =: write a=b,c=d (a value with a comma can only be given in a file)`},
		{"map twice", "SIDECAR_APP_HEADERS=A=b,A=c", `SIDECAR_APP_HEADERS: app.headers.A: is given twice`},
		{"list element", "SIDECAR_NATS_URLS=nats://a,,nats://b", `SIDECAR_NATS_URLS: nats.urls[1] = "": has no scheme: write nats://host:4222`},
		{"second signing secret", "SIDECAR_APP_SIGNING_SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw,hunter2", `SIDECAR_APP_SIGNING_SECRET: app.signing_secret[1]: is not whsec_ followed by base64`},
		{"defaults", "SIDECAR_DEFAULTS_RETRY_INITIAL=0s", `SIDECAR_DEFAULTS_RETRY_INITIAL: defaults.retry.initial = 0s: must be at least 1ms: less is a tight loop`},
		{"secret file missing", "SIDECAR_NATS_TOKEN_FILE=/nowhere/t", `SIDECAR_NATS_TOKEN_FILE: nats.token_file = "/nowhere/t": open the file: no such file or directory`},
		{"empty secret file", "SIDECAR_NATS_TOKEN_FILE=/dev/null", `SIDECAR_NATS_TOKEN_FILE: nats.token_file = "/dev/null": the file is empty`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Load(Options{Environ: append([]string{tt.env}, oneConsumer...)})
			if err == nil || err.Error() != tt.want {
				t.Errorf("got\n%v\nwant\n%s", err, tt.want)
			}
		})
	}
}

func TestUnknownVariablesWarn(t *testing.T) {
	const section = "; it is a section, whose variables begin with "
	for _, tt := range []struct{ name, near string }{
		{"SIDECAR_CONSUMER_0_STREAM", "; did you mean SIDECAR_CONSUMERS_0_STREAM?"},
		{"SIDECAR_CONSUMER_3_STREAM", "; did you mean SIDECAR_CONSUMERS_3_STREAM?"},
		{"SIDECAR_CONSUMERS_0_FOO", "; the nearest known one is SIDECAR_CONSUMERS_0_ACK"},
		{"SIDECAR_X", "; the nearest known one is SIDECAR_CONFIG"},
		{"SIDECAR_ADMIN_PORT", "; the nearest known one is SIDECAR_ADMIN_PPROF"},
		{"SIDECAR_NATS_PASSWRD", "; did you mean SIDECAR_NATS_PASSWORD?"},
		{"SIDECAR_CONSUMERS_0_RETRY_MAKS", "; did you mean SIDECAR_CONSUMERS_0_RETRY_MAX?"},
		{"SIDECAR_CONSUMERS_7_RETRY_MAKS", "; did you mean SIDECAR_CONSUMERS_7_RETRY_MAX?"},
		{"SIDECAR_CONSUMERS_007_STREAM", "; did you mean SIDECAR_CONSUMERS_7_STREAM?"},
		{"SIDECAR_APP_TIME_OUT", "; did you mean SIDECAR_APP_TIMEOUT?"},
		{"SIDECAR_CONFIGS", "; did you mean SIDECAR_CONFIG?"},
		{"SIDECAR_SERVICE_HOST", "; the nearest known one is SIDECAR_APP_TIMEOUT"},
		{"SIDECAR_PORT_8080_TCP_ADDR", "; the nearest known one is SIDECAR_APP_READY_PATH"},
		{"SIDECAR_CONSUMERS_SERVICE_HOST", "; the nearest known one is SIDECAR_CONSUMERS_0_REPLICAS"},
		{"SIDECAR_CONSUMERS_0", section + "SIDECAR_CONSUMERS_0_"},
		{"SIDECAR_CONSUMERS", section + "SIDECAR_CONSUMERS_"},
		{"SIDECAR_NATS_TLS", section + "SIDECAR_NATS_TLS_"},
		{"SIDECAR_", "; the nearest known one is SIDECAR_CONFIG"},
	} {
		l, err := Load(Options{Environ: append([]string{tt.name + "=hunter2"}, oneConsumer...)})
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		want := []string{"environment variable " + tt.name + " is not known and ignored" + tt.near}
		if !reflect.DeepEqual(l.Warnings, want) {
			t.Errorf("%s: got %q, want %q", tt.name, l.Warnings, want)
		}
	}
}

// TestWarningsComeWithErrors holds that a misspelt variable is named also when it is what made the error.
func TestWarningsComeWithErrors(t *testing.T) {
	env := []string{"SIDECAR_CONSUMER_0_STREAM=A"}
	for _, file := range []string{"", "/nowhere/s.yaml", write(t, "a.yaml", "nats: ["), write(t, "b.yaml", "consumers: []")} {
		l, err := Load(Options{File: file, Environ: env})
		if err == nil || l == nil || len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], "did you mean SIDECAR_CONSUMERS_0_STREAM?") {
			t.Errorf("%s: got %+v, %v", file, l, err)
		}
	}
}

// TestRedactedIsNoSecret holds that what sidecar config prints is not taken for a secret.
func TestRedactedIsNoSecret(t *testing.T) {
	for _, env := range []string{
		"NATS_PASSWORD=[redacted]", "NATS_TOKEN=[redacted]", "APP_BEARER_TOKEN=[redacted]", "ADMIN_TOKEN=[redacted]",
		"APP_HEADERS=A=b,C=[redacted]", "APP_URL=http://[redacted]@h", "NATS_URLS=nats://a,nats://[redacted]@h",
	} {
		_, err := Load(Options{Environ: append([]string{prefix + env, "SIDECAR_NATS_USER="}, oneConsumer...)})
		if err == nil || !strings.Contains(err.Error(), "holds the mark [redacted]") || strings.Contains(err.Error(), "not a URL") {
			t.Errorf("%s: got %v", env, err)
		}
	}
}

func TestUnexpandedWarns(t *testing.T) {
	file := write(t, "a.yaml", "consumers: [{stream: \"${STREAM}\", durable: \"a-${B}\"}]\nnats: {urls: [\"nats://${USER}:x@h:4222\"]}\n")
	l, _ := Load(Options{File: file})
	want := []string{
		"a.yaml:2: nats.urls = [\"nats://[redacted]@h:4222\"]: ${...} is not expanded: put the value itself here or into SIDECAR_NATS_URLS",
		"a.yaml:1: consumers[0].stream = \"${STREAM}\": ${...} is not expanded: put the value itself here or into SIDECAR_CONSUMERS_0_STREAM",
		"a.yaml:1: consumers[0].durable = \"a-${B}\": ${...} is not expanded: put the value itself here or into SIDECAR_CONSUMERS_0_DURABLE",
	}
	if !reflect.DeepEqual(l.Warnings, want) {
		t.Errorf("got %q", l.Warnings)
	}
	l, _ = Load(Options{Environ: append([]string{"SIDECAR_APP_URL=http://${HOST}"}, oneConsumer...)})
	if len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], "is not expanded by the sidecar") {
		t.Errorf("got %q", l.Warnings)
	}
}

// TestAdminListen holds that nothing but admin.listen is needed to know it.
func TestAdminListen(t *testing.T) {
	wrong := write(t, "wrong.yaml", "nats: 1\nfoo: 2\nadmin: {listen: \":7\", pprof: 5}\n")
	for _, tt := range []struct {
		name, file, env, want string
		fails                 bool
	}{
		{"default", "", "X=", "127.0.0.1:9090", false},
		{"file with other faults", wrong, "SIDECAR_APP_TIMEOUT=x", ":7", false},
		{"environment", wrong, "SIDECAR_ADMIN_LISTEN=:8", ":8", false},
		{"environment without its file", "/nowhere", "SIDECAR_ADMIN_LISTEN=:8", ":8", false},
		{"no file", "/nowhere", "X=", "", true},
		{"no address", wrong, "SIDECAR_ADMIN_LISTEN=x", "", true},
		{"no text", write(t, "a.yaml", "admin: {listen: 5}"), "X=", "", true},
		{"no section", write(t, "a.yaml", "admin: 5"), "X=", "", true},
	} {
		got, err := AdminListen(Options{File: tt.file, Environ: []string{tt.env}})
		if got != tt.want || (err != nil) != tt.fails {
			t.Errorf("%s: got %q, %v", tt.name, got, err)
		}
	}
}

// TestAmbiguousNames holds that the walk goes back from keys that are the beginning of others.
func TestAmbiguousNames(t *testing.T) {
	fields := []field{
		{key: "a", kind: section, index: 0, sub: []field{{key: "b_c", kind: text}, {key: "d", kind: text, index: 1, secret: "file"}}},
		{key: "a_b", kind: section, index: 1, sub: []field{{key: "d", kind: text}, {key: "d_file", kind: text, index: 1}}},
	}
	type two struct{ X, Y string }
	def := reflect.ValueOf(struct{ A, B two }{})
	for name, want := range map[string]string{
		"A_B_C": "a.b_c", "A_B_D": "a_b.d", "A_D": "a.d", "A_D_FILE": "a.d", "A_B_D_FILE": "a_b.d_file", "A_B": "", "A": "", "A_B_": "",
	} {
		got, ok := resolve(name, fields, nil, def)
		if ok != (want != "") || strings.Join(got.path, ".") != want || got.twin != (name == "A_D_FILE") {
			t.Errorf("%s: got %v twin %v, want %s", name, got.path, got.twin, want)
		}
	}
}

func TestSecretFiles(t *testing.T) {
	secret := func(content string) string { return write(t, "secret", content) }
	load := func(file string, env ...string) (*Loaded, error) {
		return Load(Options{File: write(t, "s.yaml", minimal+file), Environ: env})
	}
	for _, tt := range []struct {
		name, file string
		env        []string
		want       string // password, or an error's end
	}{
		{"one newline is trimmed", "nats: {user: u, password_file: " + secret("hunter2\n\n") + "}", nil, "hunter2\n"},
		{"windows newline", "nats: {user: u, password_file: " + secret("hunter2\r\n") + "}", nil, "hunter2"},
		{"blanks stay", "nats: {user: u, password_file: " + secret(" hunter2 ") + "}", nil, " hunter2 "},
		{"by environment", "nats: {user: u}", []string{"SIDECAR_NATS_PASSWORD_FILE=" + secret("hunter2\n")}, "hunter2"},
		{"environment over file", "nats: {user: u, password: x}", []string{"SIDECAR_NATS_PASSWORD_FILE=" + secret("hunter2\n")}, "hunter2"},
		{"environment over a file that is missing", "nats: {user: u, password_file: /nowhere}", []string{"SIDECAR_NATS_PASSWORD=hunter2"}, "hunter2"},
		{"an empty key is none", "nats: {user: u, password: '', password_file: " + secret("hunter2") + "}", nil, "hunter2"},
		{"both", "nats: {user: u}", []string{"SIDECAR_NATS_PASSWORD=x", "SIDECAR_NATS_PASSWORD_FILE=" + secret("x")}, "both password and password_file are set"},
		{"only a newline", "nats: {user: u, password_file: " + secret("\n") + "}", nil, "the file is empty"},
		{"a directory", "nats: {user: u, password_file: " + t.TempDir() + "}", nil, "is a directory"},
		{"too large", "nats: {user: u, password_file: " + secret(strings.Repeat("x", maxSecret+1)) + "}", nil, "larger than 65536 bytes"},
	} {
		l, err := load(tt.file, tt.env...)
		switch {
		case err == nil && l.NATS.Password != tt.want:
			t.Errorf("%s: got %q", tt.name, l.NATS.Password)
		case err != nil && (!strings.HasSuffix(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2")):
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// Signing secrets come from anywhere, and are shown nowhere.
func TestSigningSecrets(t *testing.T) {
	const one, two = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	file := t.TempDir() + "/secrets"
	for name, c := range map[string]struct {
		content, app string
		env          []string
		want         []string
		fault        string
	}{
		"none":                  {app: "{signing_secret: ''}"},
		"an empty list":         {app: "{signing_secret: []}", want: []string{}},
		"one":                   {app: "{signing_secret: " + one + "}", want: []string{one}},
		"two":                   {app: "{signing_secret: [" + one + ", " + two + "]}", want: []string{one, two}},
		"environment":           {env: []string{"SIDECAR_APP_SIGNING_SECRET=" + one + "," + two}, want: []string{one, two}},
		"file":                  {content: one + "\r\n\n" + two + " \n", app: "{signing_secret_file: " + file + "}", want: []string{one, two}},
		"file by environment":   {content: one, env: []string{"SIDECAR_APP_SIGNING_SECRET_FILE=" + file}, want: []string{one}},
		"empty key beside file": {content: one, app: "{signing_secret: '', signing_secret_file: " + file + "}", want: []string{one}},
		"both":                  {content: one, app: "{signing_secret: " + one + ", signing_secret_file: " + file + "}", fault: "both signing_secret and signing_secret_file are set"},
		"file of blanks":        {content: " \n", app: "{signing_secret_file: " + file + "}", fault: "the file is empty"},
		"file of something":     {content: one + "\nhunter2", app: "{signing_secret_file: " + file + "}", fault: "app.signing_secret[1]: is not whsec_ followed by base64"},
		"an empty one of two":   {app: "{signing_secret: ['', " + two + "]}", fault: "app.signing_secret[0]: is the base64 of 0 bytes and must be that of 24 to 64"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(file, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			config := minimal
			if c.app != "" {
				config += "app: " + c.app + "\n"
			}
			l, err := Load(Options{File: write(t, "s.yaml", config), Environ: c.env})
			if c.fault != "" {
				if err == nil || !strings.Contains(err.Error(), c.fault) || strings.Contains(err.Error(), "hunter2") {
					t.Errorf("%v, want %s", err, c.fault)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(l.App.SigningSecret, c.want) {
				t.Fatalf("%q, %v", l.App.SigningSecret, err)
			}
			if text := printed(t, l); strings.Contains(text, one) || strings.Contains(text, two) {
				t.Error(text)
			}
		})
	}
}

// FuzzEnvironment holds that no environment panics, and that what is not known never is an error.
func FuzzEnvironment(f *testing.F) {
	for _, name := range variables() {
		f.Add(strings.TrimPrefix(name, prefix), "1")
	}
	f.Add("CONSUMERS_99999999999999999999_STREAM", "x")
	f.Add("CONSUMERS_1000000000_BATCH", "x")
	f.Fuzz(func(t *testing.T, name, value string) {
		if strings.ContainsAny(name, "=\x00") {
			return
		}
		if strings.HasSuffix(name, "_FILE") {
			value = os.DevNull
		}
		l, err := Load(Options{Environ: append([]string{prefix + name + "=" + value}, oneConsumer...)})
		_, known := resolve(name, schema().sub, nil, reflect.ValueOf(Default()))
		if !known && name != "CONFIG" && (err != nil || len(l.Warnings) == 0) {
			t.Errorf("unknown %q: %v", name, err)
		}
		if err == nil && len(l.Consumers) > 2 {
			t.Errorf("%d consumers", len(l.Consumers))
		}
	})
}
