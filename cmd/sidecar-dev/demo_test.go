package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestEveryMessageIsSettled runs the whole demo, and compares its summary with what was planned.
func TestEveryMessageIsSettled(t *testing.T) {
	t.Parallel()
	const n, perSecond = 150, 300
	want := map[string]int{"published": n, "total": n}
	plan := newPlan(1, perSecond/5) // the stream forgets an id after 0.2 s
	for range n {
		switch m := plan.message(); {
		case m.of != nil:
			want["duplicates"]++
		case fateOf(m.id) == trial:
			want["dropped"]++
		case fateOf(m.id) == negative || fateOf(m.id) == nameless || fateOf(m.id) == hopeless:
			want["dead letters"]++
		default:
			want["acked"]++
		}
	}

	out, errs, code := play(t, t.Context(), &output{}, "--messages", strconv.Itoa(n), "--rate", strconv.Itoa(perSecond))
	if code != exitOK || errs != "" {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	got := table(t, out)
	mustAddUp(t, got)
	for row, n := range want {
		if got[row] != n {
			t.Errorf("%s: %d, want %d", row, got[row], n)
		}
	}
	if got["not settled"] != 0 {
		t.Errorf("%d are not settled", got["not settled"])
	}
	checkLines(t, out, got)
}

// row is a line of a settled delivery.
var row = regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d  #(\d+) +orders\.(?:created|paid|shipped) +([1-4])/4 +(ack|retry|dlq|duplicate|drop) +(\d{3}|-) +(\d+|-)(?:  (.*))?$`)

// checkLines checks that there is one line for each end, that attempts count up, and what follows.
func checkLines(t *testing.T, out string, rows map[string]int) {
	t.Helper()
	ends, attempts := make(map[string]int), make(map[string]int)
	for _, m := range row.FindAllStringSubmatch(out, -1) {
		seq, try, verdict, follows := m[1], m[2], m[3], m[6]
		ends[verdict]++
		attempts[seq]++
		if verdict != "duplicate" && try != strconv.Itoa(attempts[seq]) {
			t.Errorf("attempt %s of #%s is its line %d", try, seq, attempts[seq])
		}
		want := map[string]string{
			"ack": `^$`, "retry": `^again in [\d.]+m?s, \w`, "dlq": `^(rejected|max_deliver): .* -> ORDERS_DLQ$`, "drop": `^not wanted: a test order$`,
			"duplicate": `^same id as #\d+, app not called$`,
		}[verdict]
		if !regexp.MustCompile(want).MatchString(follows) {
			t.Errorf("%s of #%s is followed by %q", verdict, seq, follows)
		}
	}
	for verdict, name := range map[string]string{"ack": "acked", "dlq": "dead letters", "duplicate": "duplicates", "drop": "dropped"} {
		if ends[verdict] != rows[name] {
			t.Errorf("%d lines of %s, want %d", ends[verdict], verdict, rows[name])
		}
	}
	if ends["retry"] == 0 {
		t.Error("nothing was retried")
	}
	if strings.Contains(out, "\x1b") {
		t.Error("there is colour in what goes to no terminal")
	}
}

// TestOwnApp drives an app that is not the sample app, and that answers what a terminal must not get.
func TestOwnApp(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	ids := make(map[string]int)
	own := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		id := r.Header.Get("Nats-Msg-Id")
		mu.Lock()
		ids[id]++
		mu.Unlock()
		if !strings.Contains(string(body), `"order":"`+id+`"`) || r.Header.Get("Content-Type") != "application/json" {
			w.WriteHeader(http.StatusTeapot)
		} else if id == "A-0003" {
			w.Header().Set("Sidecar-Reason", "\u009b31m\u202e\xff no")
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	}))
	defer own.Close()

	out, errs, code := play(t, t.Context(), &output{}, "--app", strings.Replace(own.URL, "http://", "http://me:hush@", 1), "--messages", "20", "--rate", "1000")
	if code != exitOK || errs != "" {
		t.Fatalf("exit code %d, %s\n%s", code, errs, out)
	}
	rows := table(t, out)
	mustAddUp(t, rows)
	if rows["acked"] != 18 || rows["dead letters"] != 1 || rows["duplicates"] != 1 || len(ids) != 19 {
		t.Errorf("%v, and the app saw %v", rows, ids)
	}
	if !strings.Contains(out, `rejected: \u009b31m\u202e\xff no -> ORDERS_DLQ`) {
		t.Errorf("the reason is not shown:\n%s", out)
	}
	if strings.ContainsAny(out, "\u009b\u202e\x1b") || strings.Contains(out, "hush") || strings.Contains(out, "sample app") {
		t.Errorf("shown what must not be:\n%s", out)
	}
}

// TestStoreIsKept runs twice on one store. The first run leaves messages to the second.
func TestStoreIsKept(t *testing.T) {
	t.Parallel()
	var status atomic.Int64
	status.Store(http.StatusServiceUnavailable)
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(status.Load()))
	}))
	defer app.Close()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, errs, code := play(t, ctx, &output{watch: " retry ", seen: cancel}, "--store", dir, "--app", app.URL, "--stream", "KEPT", "--rate", "1000")
	first := table(t, out)
	mustAddUp(t, first)
	if code != exitOK || errs != "" || first["not settled"] == 0 || !strings.Contains(out, "the next run goes on with them") || !strings.Contains(out, "stopping") {
		t.Fatalf("exit code %d, %s\n%s", code, errs, out)
	}

	status.Store(http.StatusOK)
	out, errs, code = play(t, t.Context(), &output{}, "--store", dir, "--app", app.URL, "--stream", "KEPT", "--rate", "1000", "--messages", "5")
	second := table(t, out)
	mustAddUp(t, second)
	if code != exitOK || errs != "" || second["published"] != 5 || second["not settled"] != 0 {
		t.Errorf("exit code %d, %s\n%s", code, errs, out)
	}
	if !strings.Contains(out, " #"+strconv.Itoa(first["published"]+1)+" ") {
		t.Errorf("the second run does not go on after message %d:\n%s", first["published"], out)
	}
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	ln := listen(t)
	port := strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
	out, errs, code := play(t, t.Context(), &output{}, "--port", port)
	if code != exitFailed || out != "" || !strings.Contains(errs, "cannot have port "+port) || !strings.Contains(errs, "choose another with --port") {
		t.Errorf("exit code %d, %s\n%s", code, errs, out)
	}
}

func TestAdminInUse(t *testing.T) {
	t.Parallel()
	ln := listen(t)
	out, errs, code := play(t, t.Context(), &output{}, "--admin", ln.Addr().String(), "--messages", "2", "--rate", "1000")
	if code != exitOK || errs != "" || !strings.Contains(out, "cannot have "+ln.Addr().String()) {
		t.Errorf("exit code %d, %s\n%s", code, errs, out)
	}
	if strings.Contains(out, "curl -s http://"+ln.Addr().String()) {
		t.Errorf("the commands name the address of another:\n%s", out)
	}
}

// TestHeaderCommandsWork asks the addresses that the header names, while it runs.
func TestHeaderCommandsWork(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	settled := make(chan struct{})
	out := &output{watch: " ack ", seen: func() { close(settled) }}
	ended := make(chan int)
	go func() {
		_, _, code := play(t, ctx, out)
		ended <- code
	}()
	<-settled
	for _, m := range regexp.MustCompile(`curl -s (\S+)`).FindAllStringSubmatch(out.String(), -1) {
		works := func() bool { // it may not be ready yet
			resp, err := http.Get(m[1])
			if err != nil {
				return false
			}
			resp.Body.Close()
			return resp.StatusCode == http.StatusOK
		}
		look := time.NewTicker(5 * time.Millisecond)
		for end := time.Now().Add(time.Minute); !works(); <-look.C {
			if time.Now().After(end) {
				t.Fatalf("%s does not answer 200", m[1])
			}
		}
		look.Stop()
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if code := <-ended; code != exitOK {
		t.Errorf("exit code %d", code)
	}
	mustAddUp(t, table(t, out.String()))
}

func TestStreamThatCannotBe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, errs, code := play(t, t.Context(), &output{}, "--store", dir, "--stream", "FOO", "--messages", "1", "--rate", "1000"); code != exitOK {
		t.Fatal(errs)
	}
	out, errs, code := play(t, t.Context(), &output{}, "--store", dir, "--stream", "foo", "--messages", "1")
	if code != exitFailed || out != "" || !strings.Contains(errs, "open stream foo: ") {
		t.Errorf("exit code %d, %s\n%s", code, errs, out)
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}
