package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/pipeline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func options() Options {
	return Options{
		Ready:   func() Readiness { return Checks(true, true, "", nil) },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "metrics here\n") }),
		Log:     slog.New(slog.DiscardHandler),
	}
}

func ask(h http.Handler, method, path string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(method, path, nil))
	return rec
}

func TestRoutes(t *testing.T) {
	h := New(options()).Handler()
	for _, c := range []struct {
		method, path string
		status       int
		kind, body   string
	}{
		{"GET", "/livez", 200, "text/plain; charset=utf-8", "ok\n"},
		{"HEAD", "/livez", 200, "text/plain; charset=utf-8", ""},
		{"POST", "/livez", 405, "text/plain; charset=utf-8", "only GET and HEAD"},
		{"GET", "/readyz", 200, "application/json", `"ready":true`},
		{"DELETE", "/readyz", 405, "text/plain; charset=utf-8", "only GET and HEAD"},
		{"GET", "/metrics", 200, "", "metrics here"},
		{"PUT", "/metrics", 405, "", "only GET and HEAD"},
		{"GET", "/", 403, "text/plain; charset=utf-8", "/readyz"}, // not on a loopback listener, and no token
		{"GET", "/nothing", 404, "text/plain; charset=utf-8", "no such path"},
		{"GET", "/livez/more", 404, "text/plain; charset=utf-8", "no such path"},
		{"POST", "/nothing", 405, "", "only GET and HEAD"},
		{"GET", "/debug/pprof/", 404, "", "no such path"}, // not asked for
	} {
		t.Run(c.method+c.path, func(t *testing.T) {
			rec := ask(h, c.method, c.path)
			if rec.Code != c.status || !strings.Contains(rec.Body.String(), c.body) {
				t.Errorf("%d %q, want %d with %q", rec.Code, rec.Body, c.status, c.body)
			}
			if kind := rec.Header().Get("Content-Type"); c.kind != "" && kind != c.kind {
				t.Errorf("content type %q, want %q", kind, c.kind)
			}
			if c.status == 405 && rec.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("Allow: %q", rec.Header().Get("Allow"))
			}
			for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"} {
				if got := rec.Header().Values(name); !reflect.DeepEqual(got, []string{want}) {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
		})
	}
}

func TestIndexListsWhatThereIs(t *testing.T) {
	o := options()
	with := ask(New(o).Handler(), "GET", "/").Body.String()
	o.Metrics, o.Config.PProf = nil, true
	other := ask(New(o).Handler(), "GET", "/").Body.String()
	if !strings.Contains(with, "/metrics") || strings.Contains(with, "pprof") {
		t.Errorf("%q", with)
	}
	if strings.Contains(other, "/metrics") || !strings.Contains(other, "/debug/pprof/") {
		t.Errorf("%q", other)
	}
}

func TestChecks(t *testing.T) {
	good := pipeline.Status{Stream: "S", Consumer: "c", Bound: true, DLQEnabled: true, DLQOK: true}
	change := func(f func(*pipeline.Status)) []pipeline.Status {
		s := good
		f(&s)
		return []pipeline.Status{s}
	}
	nats, app := Check{Name: "nats", OK: true}, Check{Name: "app", OK: true}
	consumer := Check{Name: "consumer", Stream: "S", Consumer: "c", OK: true}
	dlq := Check{Name: "dlq", Stream: "S", Consumer: "c", OK: true}
	not := func(c Check, detail string) Check {
		c.OK, c.Detail = false, detail
		return c
	}
	noted := func(c Check, detail string) Check {
		c.Detail = detail
		return c
	}
	for _, c := range []struct {
		name      string
		nats, app bool
		detail    string
		statuses  []pipeline.Status
		ready     bool
		checks    []Check
	}{
		{"all well", true, true, "", []pipeline.Status{good}, true, []Check{nats, app, consumer, dlq}},
		{"no consumers", true, true, "", nil, true, []Check{nats, app}},
		{"nats away", false, true, "", []pipeline.Status{good}, false, []Check{not(nats, "not connected"), app, consumer, dlq}},
		{"app away", true, false, "refused", nil, false, []Check{nats, not(app, "refused")}},
		{"app away, nothing known", true, false, "", nil, false, []Check{nats, not(app, "not reachable")}},
		{"app back, old error", true, true, "refused", nil, true, []Check{nats, app}},
		{"not bound", true, true, "", change(func(s *pipeline.Status) { s.Bound, s.Detail = false, "no durable" }), false,
			[]Check{nats, app, not(consumer, "no durable"), dlq}},
		{"not bound, nothing known", true, true, "", change(func(s *pipeline.Status) { s.Bound = false }), false,
			[]Check{nats, app, not(consumer, "not bound"), dlq}},
		{"bound, with a note", true, true, "", change(func(s *pipeline.Status) { s.Detail = "waits" }), true,
			[]Check{nats, app, noted(consumer, "waits"), dlq}},
		{"dlq full", true, true, "", change(func(s *pipeline.Status) { s.DLQOK, s.DLQDetail = false, "full" }), false,
			[]Check{nats, app, consumer, not(dlq, "full")}},
		{"dlq full, nothing known", true, true, "", change(func(s *pipeline.Status) { s.DLQOK = false }), false,
			[]Check{nats, app, consumer, not(dlq, "cannot take an entry")}},
		{"no dlq", true, true, "", change(func(s *pipeline.Status) { s.DLQEnabled, s.DLQOK = false, false }), true,
			[]Check{nats, app, consumer}},
		{"one of two", true, true, "", []pipeline.Status{{Stream: "S", Consumer: "c"}, good}, false,
			[]Check{nats, app, not(consumer, "not bound"), consumer, dlq}},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := Readiness{Ready: c.ready, Checks: c.checks}
			if got := Checks(c.nats, c.app, c.detail, c.statuses); !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestReadyzJSON(t *testing.T) {
	for _, c := range []struct {
		name   string
		r      Readiness
		status int
		body   string
	}{
		{"ready", Checks(true, true, "", []pipeline.Status{{Stream: "S", Consumer: "c", Bound: true, DLQEnabled: true, DLQOK: true}}), 200,
			`{"ready":true,"checks":[{"name":"nats","ok":true,"detail":""},{"name":"app","ok":true,"detail":""},` +
				`{"name":"consumer","stream":"S","consumer":"c","ok":true,"detail":""},{"name":"dlq","stream":"S","consumer":"c","ok":true,"detail":""}]}`},
		{"not ready", Checks(false, true, "", nil), 503,
			`{"ready":false,"checks":[{"name":"nats","ok":false,"detail":"not connected"},{"name":"app","ok":true,"detail":""}]}`},
		{"nothing looked at", Readiness{}, 503, `{"ready":false,"checks":[]}`},
		{"stopping", Checks(true, true, "", []pipeline.Status{{Stream: "S", Consumer: "c", Bound: true}}).Stopping(), 503,
			`{"ready":false,"checks":[{"name":"nats","ok":true,"detail":""},{"name":"app","ok":true,"detail":""},` +
				`{"name":"consumer","stream":"S","consumer":"c","ok":false,"detail":"the sidecar is stopping"}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options()
			o.Ready = func() Readiness { return c.r }
			rec := ask(New(o).Handler(), "GET", "/readyz")
			if rec.Code != c.status || rec.Body.String() != c.body+"\n" {
				t.Errorf("%d %s\nwant %d %s", rec.Code, rec.Body, c.status, c.body)
			}
			if head := ask(New(o).Handler(), "HEAD", "/readyz"); head.Code != c.status {
				t.Errorf("HEAD: %d, want %d", head.Code, c.status)
			}
		})
	}
}

func TestReadyzDetailIsValidJSONWhateverItHolds(t *testing.T) {
	o := options()
	o.Ready = func() Readiness { return Checks(true, false, "\xff\"\n\x1b", nil) }
	rec := ask(New(o).Handler(), "GET", "/readyz")
	if !json.Valid(rec.Body.Bytes()) || strings.ContainsAny(rec.Body.String(), "\x1b") {
		t.Errorf("%q", rec.Body)
	}
}

// serve runs a server until the test's end, or until stop is called, which returns what Serve returned.
func serve(t *testing.T, s *Server, ln net.Listener) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, ln) }()
	var err error
	over := false
	stop = func() error {
		cancel()
		if !over {
			err, over = <-ended, true
		}
		return err
	}
	t.Cleanup(func() { stop() })
	return stop
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// elsewhere is a listener that says it can be reached from other machines.
type elsewhere struct{ net.Listener }

func (elsewhere) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero, Port: 9090} }

func TestProfilesArePrivate(t *testing.T) {
	for _, c := range []struct {
		name          string
		token         string
		elsewhere     bool
		host          string
		authorization string
		status        int
	}{
		{"loopback", "", false, "", "", 200},
		{"localhost", "", false, "localhost", "", 200},
		{"localhost with a port", "", false, "LOCALHOST:9090", "", 200},
		{"127.0.0.2", "", false, "127.0.0.2:9090", "", 200},
		{"ipv6", "", false, "[::1]:9090", "", 200},
		{"ipv6 without a port", "", false, "[::1]", "", 200},
		{"rebound name", "", false, "evil.example:9090", "", 403},
		{"name that begins well", "", false, "localhost.evil.example", "", 403},
		{"address that begins well", "", false, "127.0.0.1.evil.example", "", 403},
		{"address of others", "", false, "10.0.0.1:9090", "", 403},
		{"listener for others", "", true, "127.0.0.1:9090", "", 403},
		{"listener for others, some token", "", true, "127.0.0.1:9090", "Bearer x", 403},
		{"token", "secret", true, "sidecar.example", "Bearer secret", 200},
		{"token, scheme in small letters", "secret", true, "sidecar.example", "bearer secret", 200},
		{"no token", "secret", false, "127.0.0.1", "", 401},
		{"wrong token", "secret", false, "127.0.0.1", "Bearer secret2", 401},
		{"start of the token", "secret", false, "127.0.0.1", "Bearer secre", 401},
		{"empty token", "secret", false, "127.0.0.1", "Bearer ", 401},
		{"other scheme", "secret", false, "127.0.0.1", "Basic secret", 401},
		{"no scheme", "secret", false, "127.0.0.1", "secret", 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options()
			o.Config = config.Admin{PProf: true, Token: c.token}
			ln := listen(t)
			address := "http://" + ln.Addr().String()
			if c.elsewhere {
				ln = elsewhere{ln}
			}
			serve(t, New(o), ln)
			for _, path := range []string{"/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/debug/pprof/cmdline", "/debug/pprof/symbol"} {
				if got := get(t, address+path, c.host, c.authorization); got != c.status {
					t.Errorf("%s: %d, want %d", path, got, c.status)
				}
			}
			if got := get(t, address+"/livez", "evil.example", ""); got != 200 {
				t.Errorf("/livez: %d, want 200 for everyone", got)
			}
		})
	}
}

func get(t *testing.T, url, host, authorization string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}

func TestHandlerWithoutServeIsNotLoopback(t *testing.T) {
	o := options()
	o.Config.PProf = true
	r := httptest.NewRequest("GET", "/debug/pprof/", nil)
	r.Host = "localhost"
	rec := httptest.NewRecorder()
	New(o).Handler().ServeHTTP(rec, r)
	if rec.Code != 403 {
		t.Errorf("%d, want 403", rec.Code)
	}
}

func TestIsLoopback(t *testing.T) {
	for _, c := range []struct {
		a    net.Addr
		want bool
	}{
		{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, true},
		{&net.TCPAddr{IP: net.IPv6loopback}, true},
		{&net.TCPAddr{IP: net.IPv4zero}, false},
		{&net.TCPAddr{IP: net.IPv6unspecified}, false},
		{&net.TCPAddr{}, false},
		{&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, false},
		{&net.UnixAddr{Name: "/run/x"}, true},
		{address("127.0.0.1:1"), true},
		{address("[::ffff:127.0.0.1]:1"), true},
		{address("10.0.0.1:1"), false},
		{address("localhost:1"), false},
		{address(""), false},
	} {
		if got := isLoopback(c.a); got != c.want {
			t.Errorf("isLoopback(%v) = %v", c.a, got)
		}
	}
}

type address string

func (address) Network() string  { return "test" }
func (a address) String() string { return string(a) }

func TestServeEndsWithTheRequestUnderWay(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	o := options()
	o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-release
		io.WriteString(w, "late")
	})
	ln := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- New(o).Serve(ctx, ln) }()
	answered := make(chan int, 1)
	go func() { answered <- get(t, "http://"+ln.Addr().String()+"/metrics", "", "") }()
	<-begun
	cancel()
	select {
	case err := <-ended:
		t.Fatalf("Serve ended before the request: %v", err)
	default:
	}
	close(release)
	if got := <-answered; got != 200 {
		t.Errorf("%d, want 200", got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		t.Error("the listener is still open")
	}
}

func TestServeCutsARequestThatDoesNotEnd(t *testing.T) {
	begun := make(chan struct{})
	o := options()
	o.Metrics = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
	})
	ln := listen(t)
	stop := serve(t, New(o), ln)
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
	<-begun
	start := time.Now()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if d := time.Since(start); d < time.Second {
		t.Errorf("Serve ended after %v, want about 2s", d)
	}
}

func TestServeWithAContextThatEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ln := listen(t)
	if err := New(options()).Serve(ctx, ln); err != nil {
		t.Error(err)
	}
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is open: %v", err)
	}
}

func TestServeTellsWhyItCannot(t *testing.T) {
	ln := listen(t)
	ln.Close()
	if err := New(options()).Serve(t.Context(), ln); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v, want net.ErrClosed", err)
	}
}

func TestHeadersAreBounded(t *testing.T) {
	ln := listen(t)
	serve(t, New(options()), ln)
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 2*maxHeader)+"\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%d, want 431", resp.StatusCode)
	}
}
