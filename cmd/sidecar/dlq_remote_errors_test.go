package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/dlq"
	"github.com/jetsidecar/jetsidecar/internal/localnats"
	"github.com/jetsidecar/jetsidecar/internal/terminal"
)

// What is wrong at the other end is said in terms of what can be done about it.
func TestRemoteThatIsNone(t *testing.T) {
	port, err := localnats.FreePort() // that nobody comes to listen on
	if err != nil {
		t.Fatal(err)
	}
	refusing := fmt.Sprint("http://127.0.0.1:", port)
	nats := listener(t)
	greets(t, nats)
	for _, c := range []struct{ url, want string }{
		{refusing, "nothing listens at " + refusing + ": does a sidecar run there, and is its admin.listen this address?"},
		{"http://" + nats.Addr().String(), "a NATS server answers at http://" + nats.Addr().String() + ": --admin is the URL of a sidecar's admin listener, admin.listen"},
		{"https://" + nats.Addr().String(), "a NATS server answers at https://" + nats.Addr().String()},
	} {
		code, out, stderr := tool(nil, "dlq", "list", "--admin", c.url)
		if code != exitFailed || out != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit %d\n%s%s", c.url, code, out, stderr)
		}
	}
}

func listener(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// greets speaks first to all who come, as a NATS server does.
func greets(t *testing.T, ln net.Listener) {
	ended := make(chan struct{})
	t.Cleanup(func() { ln.Close(); <-ended })
	go func() {
		defer close(ended)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, "INFO {\"server_id\":\"X\"}\r\n")
			_, _ = c.Read(make([]byte, 1)) // it hangs up once it is asked something else
			c.Close()
		}
	}()
}

// A sidecar that is killed leaves what failed until then, and the way to go on.
func TestRemoteThatIsKilled(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			DryRun bool `json:"dry_run"`
		}
		text, _ := io.ReadAll(r.Body)
		switch _ = json.Unmarshal(text, &body); {
		case r.Method == http.MethodGet:
			fmt.Fprint(w, `{"streams":["D"],"entries":[]}`)
		case body.DryRun:
			fmt.Fprint(w, `{"report":{"selected":9,"done":9,"failures":[],"up_to":["D:9"]}}`)
		default:
			fmt.Fprintln(w, `{"progress":{"selected":9,"done":1,"kept":2},"failures":[{"result":"kept","dlq_stream":"D","consumer":"w","status":503,"why":"no stock","count":2,"example":4}]}`)
			fmt.Fprintln(w, `{"progress":{"selected":9,"done":2,"kept":2}}`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}))
	defer s.Close()
	code, out, stderr := tool(nil, "dlq", "replay", "--yes", "--admin", s.URL)
	if code != exitFailed || !strings.Contains(stderr, "the sidecar at "+s.URL+" went away: run it again, it continues") {
		t.Errorf("exit %d\n%s%s", code, out, stderr)
	}
	if !strings.Contains(out, "at least 2 of 9 entries replayed, 2 left as they were; what came of the other 5 the sidecar did not say") || !strings.Contains(out, "no stock") {
		t.Errorf("what failed is lost:\n%s", out)
	}
}

// A replay that is stopped here says what failed and why until then.
func TestRemoteThatIsStopped(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, `{"progress":{"selected":9,"done":1,"kept":2},"failures":[{"result":"kept","dlq_stream":"D","consumer":"w","why":"no stock","count":2,"example":4}]}`)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer s.Close()
	base, err := remoteURL(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	r := &remote{base: base, client: s.Client()}
	ctx, stop := context.WithCancel(t.Context())
	report, err := r.post(ctx, "replay", map[string]any{}, 9, func(dlq.Progress) { stop() })
	if err != nil || !report.Interrupted || !report.Partial || report.Kept != 2 || len(report.Failures) != 1 || report.Failures[0].Why != "no stock" {
		t.Errorf("%+v, %v", report, err)
	}
}

// A sidecar that does not know what is to be stopped is left, unless the report comes: behind one address there can be several.
func TestRemoteThatAsksAnotherToStop(t *testing.T) {
	for name, ends := range map[string]bool{"it goes on": false, "it has ended": true} {
		t.Run(name, func(t *testing.T) {
			told, left := make(chan struct{}), make(chan bool, 1)
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/api/dlq/stop" {
					w.WriteHeader(http.StatusNotFound)
					close(told)
					return
				}
				fmt.Fprintln(w, `{"change":"X","progress":{"selected":9,"done":4}}`)
				_ = http.NewResponseController(w).Flush()
				<-told
				if ends {
					fmt.Fprintln(w, `{"report":{"selected":9,"done":5,"interrupted":true,"failures":[]}}`)
					return
				}
				select {
				case <-r.Context().Done():
					left <- true
				case <-time.After(time.Minute):
					left <- false
				}
			}))
			defer s.Close()
			base, err := remoteURL(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			r := &remote{base: base, client: s.Client(), leave: time.Hour, late: time.Millisecond}
			if ends {
				r.late = time.Hour
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			report, err := r.post(ctx, "replay", map[string]any{}, 9, func(dlq.Progress) { stop() })
			done := 4
			if ends {
				done = 5
			} else if !<-left {
				t.Error("it is read on")
			}
			if err != nil || !report.Interrupted || report.Partial == ends || report.Done != done {
				t.Errorf("%+v, %v", report, err)
			}
		})
	}
}

// What a sidecar that was left has done is not known: nobody says that it is nothing.
func TestRemoteThatIsLeft(t *testing.T) {
	for name, begun := range map[string]string{"before it answered": "", "before it told": `{"progress":{"selected":0,"done":0}}` + "\n"} {
		ctx, stop := context.WithCancel(t.Context())
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if text, _ := io.ReadAll(r.Body); strings.Contains(string(text), `"dry_run":true`) {
				fmt.Fprint(w, `{"report":{"selected":9,"done":9,"failures":[],"up_to":["D:9"]}}`)
				return
			}
			if begun != "" {
				fmt.Fprint(w, begun)
				_ = http.NewResponseController(w).Flush()
			}
			stop()
			<-r.Context().Done()
		}))
		defer s.Close()
		base, err := remoteURL(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		r := &remote{base: base, client: s.Client()}
		report, err := r.Remove(ctx, dlq.Filter{}, dlq.RemoveOptions{})
		if err != nil || !report.Interrupted || !report.Partial || report.Selected != 9 || report.Handled() {
			t.Errorf("%s: %+v, %v", name, report, err)
		}
		var out strings.Builder
		writeReport(&out, terminal.Style{}, report, "removed")
		if !strings.Contains(out.String(), "the sidecar did not say what it did with the 9 entries that are selected: look with `sidecar dlq stats`") {
			t.Errorf("%s: %s", name, out.String())
		}
	}
}

// User and password inside the URL are for a proxy before the sidecar, and are shown nowhere.
func TestRemoteURLWithAUser(t *testing.T) {
	status := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "alice" || password != "hush" {
			t.Errorf("asked as %q, %q", user, password)
		}
		w.WriteHeader(status)
		fmt.Fprint(w, `{"streams":["D"],"entries":[]}`)
	}))
	defer s.Close()
	address := strings.Replace(s.URL, "//", "//alice:hush@", 1)
	for _, status = range []int{http.StatusOK, http.StatusUnauthorized, http.StatusTeapot, http.StatusFound} {
		code, out, stderr := tool(nil, "dlq", "list", "--admin", address)
		if (code == exitOK) != (status == http.StatusOK) || strings.Contains(out+stderr, "alice") || strings.Contains(out+stderr, "hush") {
			t.Errorf("%d: exit %d\n%s%s", status, code, out, stderr)
		}
	}
	s.Close()
	for _, address := range []string{address, "http://alice:hush@127.0.0.1:1x", "ftp://alice:hush@x", "http://alice:hush@nowhere.invalid"} {
		if code, out, stderr := tool(nil, "dlq", "list", "--admin", address); code == exitOK || strings.Contains(out+stderr, "alice") || strings.Contains(out+stderr, "hush") {
			t.Errorf("exit %d\n%s%s", code, out, stderr)
		}
	}
}
