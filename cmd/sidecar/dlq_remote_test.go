package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jetsidecar/jetsidecar/internal/dlq"
)

// apiOf is an admin listener with a DLQ of n entries, which notes what is asked of it.
func apiOf(t *testing.T, n int, asked *[]string) string {
	t.Helper()
	mux := http.NewServeMux()
	handle := func(pattern string, h http.HandlerFunc) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer secret" {
				w.WriteHeader(http.StatusUnauthorized)
				fmt.Fprint(w, `{"error":"needs a token"}`)
				return
			}
			h(w, r)
		})
	}
	handle("GET /api/dlq", func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.URL.RawQuery)
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		after, _ := dlq.ParseCursor(r.URL.Query().Get("after"))
		page := remotePageAnswer{Streams: []string{"D"}}
		for seq := after.Seq + 1; seq <= uint64(n) && len(page.Entries) < limit; seq++ {
			page.Entries = append(page.Entries, &dlq.Entry{DLQStream: "D", Seq: seq, Consumer: "w", Subject: "a", Error: "\x1b[31mno"})
		}
		if last := page.Entries[len(page.Entries)-1]; last.Seq < uint64(n) {
			page.Next = last.Cursor().String()
		}
		_ = json.NewEncoder(w).Encode(page)
	})
	handle("GET /api/dlq/D/7", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(dlq.Letter{Entry: dlq.Entry{DLQStream: "D", Seq: 7, Stream: "S"}, Body: []byte("body of 7")})
	})
	handle("GET /api/dlq/stats", func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.URL.RawQuery)
		fmt.Fprint(w, `{"entries":1,"bytes":2,"oldest":"2026-01-02T03:04:05Z","newest":"2026-01-02T03:04:05Z","groups":[],"up_to":["D:2500"]}`)
	})
	change := func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		text, _ := json.Marshal(body)
		*asked = append(*asked, string(text))
		fmt.Fprintln(w, `{"progress":{"selected":0}}`)
		fmt.Fprintf(w, "{\"report\":{\"selected\":%d,\"done\":%d,\"failures\":[],\"up_to\":[\"D:%d\"]}}\n", n, n, n)
	}
	handle("POST /api/dlq/rm", change)
	handle("POST /api/dlq/replay", change)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// tool runs a command line.
func tool(environ []string, args ...string) (code int, out, stderr string) {
	var o, e strings.Builder
	code = dispatch(args, streams{in: strings.NewReader(""), out: &o, err: &e, environ: environ})
	return code, o.String(), e.String()
}

func TestRemote(t *testing.T) {
	var asked []string
	url := apiOf(t, 2500, &asked)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name        string
		args        string
		environ     []string
		code        int
		out, stderr string // parts
		asked       string // the last that was
	}{
		{"list", "list --json --token secret", nil, 0, `"seq":2500,`, "", "after=D%3A2000&limit=1000"},
		{"list some", "list --limit 1200 --token-file " + file, nil, 0, `\x1b[31mno`, "", "after=D%3A1000&limit=200"},
		{"filters", "stats --consumer w --subject a.> --reason rejected --status none --seq 3-9 --limit 4", []string{"SIDECAR_ADMIN_TOKEN=secret"}, 0, "1 entry", "",
			"consumer=w&limit=4&reason=rejected&seq=3-9&status=0&subject=a.%3E"},
		{"stats as JSON", "stats --json --token secret", nil, 0, `{"entries":1,"bytes":2,"oldest":"2026-01-02T03:04:05Z","newest":"2026-01-02T03:04:05Z","groups":[],"foreign":0,"others":0}` + "\n", "", ""},
		{"show", "show 7 --raw --token secret", nil, 0, "body of 7", "", ""},
		{"no token", "list", nil, 1, "", "no token given, and the sidecar at " + url + " wants its admin.token: give it by --token-file or SIDECAR_ADMIN_TOKEN", ""},
		{"wrong token", "list --token other", nil, 1, "", "the token is not accepted by the sidecar at " + url + ": give its admin.token by --token-file or SIDECAR_ADMIN_TOKEN", ""},
		{"unknown stream", "list --stream X --token secret", nil, 2, "", `"X" is no DLQ stream of this configuration, which has D`, ""},
		{"unasked", "rm --seq 5- --token secret", nil, 2, "", "Remove 2500 entries?", `{"dry_run":true,"seq":"5-"}`},
		{"rm", "rm --seq 5- --yes --token secret", nil, 0, "2500 of 2500 entries removed", "", `{"dry_run":false,"seq":"5-","up_to":["D:2500"]}`},
		{"replay", "replay --to stream --rate 5 --concurrency 2 --max-replays 3 --yes --token secret", nil, 0, "2500 of 2500 entries replayed", "",
			`{"concurrency":2,"dry_run":false,"max_replays":3,"rate":5,"to":"stream","up_to":["D:2500"]}`},
		{"not there", "show 8 --token secret", nil, 1, "", "answered 404", ""},
	} {
		asked = nil
		code, out, stderr := tool(c.environ, append([]string{"dlq"}, strings.Fields(c.args+" --admin "+url)...)...)
		if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(stderr, c.stderr) {
			t.Errorf("%s: exit %d\n%.300s\n%s", c.name, code, out, stderr)
		}
		if c.asked != "" && (len(asked) == 0 || asked[len(asked)-1] != c.asked) {
			t.Errorf("%s: asked %q, want %q at the end", c.name, asked, c.asked)
		}
		if strings.ContainsRune(out+stderr, '\x1b') {
			t.Errorf("%s: control sequences", c.name)
		}
	}
	for _, bad := range []string{"--admin ftp://x", "--admin http://", "--token x", "--admin " + url + " --token a --token-file b"} {
		if code, _, stderr := tool(nil, append([]string{"dlq", "list"}, strings.Fields(bad)...)...); code != 2 || !strings.Contains(stderr, "flag") {
			t.Errorf("%s: exit %d, %s", bad, code, stderr)
		}
	}
}

// A sidecar that ends its answer early is no success, and what it said last is not lost.
func TestRemoteThatEndsEarly(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			DryRun bool `json:"dry_run"`
		}
		switch _ = json.NewDecoder(r.Body).Decode(&body); {
		case r.Method == http.MethodGet:
			fmt.Fprint(w, `{"streams":["D"],"entries":[]}`)
		case body.DryRun:
			fmt.Fprint(w, `{"report":{"selected":9,"done":9,"failures":[],"up_to":["D:9"]}}`)
		default:
			fmt.Fprintln(w, `{"progress":{"selected":9,"done":4}}`)
		}
	}))
	defer s.Close()
	code, out, stderr := tool(nil, "dlq", "replay", "--yes", "--admin", s.URL)
	if code != 1 || !strings.Contains(out, "at least 4 of 9 entries replayed; what came of the other 5 the sidecar did not say") || !strings.Contains(stderr, "ended its answer without a report") {
		t.Errorf("exit %d\n%s%s", code, out, stderr)
	}
}

// What was confirmed and was not there any more when the sidecar began is told, and is no success: it can have failed again.
func TestRemoteThatMissesSome(t *testing.T) {
	for name, c := range map[string]struct {
		last   string // line
		code   int
		out    string
		stderr string
	}{
		"all there":   {`{"report":{"selected":9,"done":9,"failures":[]}}`, 0, "9 of 9 entries removed\n", ""},
		"some":        {`{"report":{"selected":6,"done":6,"failures":[]}}`, 1, "gone or changed since they were selected: 3 of 9 entries; look with `sidecar dlq stats`\n6 of 6 entries removed\n", ""},
		"none":        {`{"report":{"selected":0,"failures":[]}}`, 1, "gone or changed since they were selected: 9 of 9 entries; look with `sidecar dlq stats`\n", ""},
		"an error":    {`{"report":{"selected":0,"failures":[]},"error":"stream D was deleted"}`, 1, "", "stream D was deleted"},
		"interrupted": {`{"report":{"selected":0,"failures":[],"interrupted":true}}`, 1, "it was interrupted before anything was done\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var body struct {
					DryRun bool `json:"dry_run"`
				}
				switch _ = json.NewDecoder(r.Body).Decode(&body); {
				case r.Method == http.MethodGet:
					fmt.Fprint(w, `{"streams":["D"],"entries":[],"up_to":["D:9"]}`)
				case body.DryRun:
					fmt.Fprint(w, `{"report":{"selected":9,"done":9,"failures":[],"up_to":["D:9"]}}`)
				default:
					fmt.Fprintln(w, c.last)
				}
			}))
			defer s.Close()
			code, out, stderr := tool(nil, "dlq", "rm", "--yes", "--admin", s.URL)
			if code != c.code || out != c.out || !strings.Contains(stderr, c.stderr) {
				t.Errorf("exit %d\n%s%s", code, out, stderr)
			}
			if _, out, _ := tool(nil, "dlq", "rm", "--yes", "--json", "--admin", s.URL); strings.Contains(out, `"missed":`) != strings.Contains(c.out, "since they were selected") {
				t.Errorf("%s", out)
			}
		})
	}
}
