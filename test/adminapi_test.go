package test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/admin/openapitest"
	"github.com/jetsidecar/jetsidecar/internal/config"
)

// ask asks the API of a sidecar, holds its answer against the description of it, and unpacks it; it returns the status.
func (a adminClient) ask(t *testing.T, method, path, body string, into any) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp := a.open(ctx, t, method, path, body)
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	described(t, method, path, resp.StatusCode, text)
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatalf("%s %s: %v in %s", method, path, err, text)
		}
	}
	return resp.StatusCode
}

// many is ask for an answer of lines: it returns the last one.
func (a adminClient) many(t *testing.T, path, body string) (last []byte) {
	t.Helper()
	resp := a.open(t.Context(), t, "POST", path, body)
	for in := bufio.NewScanner(resp.Body); in.Scan(); {
		last = append(last[:0], in.Bytes()...)
		described(t, "POST", path, resp.StatusCode, last)
	}
	return last
}

// described holds an answer, or a line of one, against docs/openapi.yaml.
func described(t *testing.T, method, path string, status int, text []byte) {
	t.Helper()
	path, _, _ = strings.Cut(path, "?")
	schema := map[string]string{
		"GET /api/consumers": "Overview", "GET /api/dlq": "Page", "GET /api/dlq/stats": "Stats", "POST /api/dlq/replay": "Line", "POST /api/dlq/rm": "Line",
	}[method+" "+path]
	switch {
	case status == http.StatusConflict && strings.Contains(string(text), `"result"`):
		schema = "Outcome"
	case status != http.StatusOK:
		schema = "Fault"
	case schema == "" && method == "GET":
		schema = "Letter"
	case schema == "":
		schema = "Outcome"
	}
	openapitest.Open(t, "../docs/openapi.yaml").Valid(schema, text)
}

// open asks, and leaves the answer to be read.
func (a adminClient) open(ctx context.Context, t *testing.T, method, path, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+string(a)+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// overview is the answer to GET /api/consumers, as far as it is looked at.
type overview struct {
	Consumers []struct {
		State                        string
		Counts                       map[string]uint64
		Leased, Parked               int
		AckPending                   int `json:"ack_pending"`
		MaxAckPending                int `json:"max_ack_pending"`
		DLQ                          struct{ Depth int }
		Breaker                      struct{ Open bool }
		Errors                       []struct{ Verdict, Reason, Error string }
		Retry                        struct{ Attempts []struct{ Attempt int } }
		InFlight                     int `json:"in_flight"`
		Pending, Concurrency, Prefet int
	}
}

// page is the answer to GET /api/dlq.
type page struct {
	Entries []struct {
		Seq, Sequence uint64
		Reason        string
		Status        int
	}
	Next string
}

// From a failure seen over the API to its replay: each step shows in the next answer.
func TestAdminAPI(t *testing.T) {
	w := newWorld(t, func(c *natsjs.StreamConfig) { c.Duplicates = 100 * time.Millisecond })
	var fixed atomic.Bool
	w.app.on(func(c *call) reply {
		if c.subject == "orders.bad" && !fixed.Load() {
			return reply{status: 422, header: map[string]string{"Sidecar-Reason": "no such customer"}}
		}
		return reply{status: 200}
	})
	s := w.running()
	w.publish("orders.good", "x")
	bad := w.publish("orders.bad", `{"id": 1}`, "Nats-Msg-Id: id-1")
	w.balance()

	var o overview
	eventually(t, func() bool {
		s.admin.ask(t, "GET", "/api/consumers", "", &o)
		c := o.Consumers[0]
		return c.Counts["ack"] == 1 && c.Counts["dlq"] == 1 && c.DLQ.Depth == 1 && c.AckPending == 0
	}, func() string { return fmt.Sprintf("the counts: %+v", o) })
	c := o.Consumers[0]
	if c.State != "bound" || c.MaxAckPending != 10000 || c.Concurrency != 16 || len(c.Retry.Attempts) != 9 || c.Breaker.Open {
		t.Errorf("%+v", c)
	}
	if len(c.Errors) != 1 || c.Errors[0].Verdict != "dlq" || c.Errors[0].Reason != "rejected" || c.Errors[0].Error != "no such customer" {
		t.Errorf("%+v", c.Errors)
	}

	for _, query := range []string{"", "?status=422", "?reason=rejected&order=newest", "?subject=orders.*&consumer=worker", "?stream=" + dlq} {
		var p page
		if code := s.admin.ask(t, "GET", "/api/dlq"+query, "", &p); code != 200 || len(p.Entries) != 1 || p.Entries[0].Sequence != bad {
			t.Errorf("%s: %d %+v", query, code, p)
		}
	}
	entry := fmt.Sprintf("/api/dlq/%s/1", dlq)
	var letter struct{ Body string }
	if code := s.admin.ask(t, "GET", entry, "", &letter); code != 200 || letter.Body != `{"id": 1}` {
		t.Errorf("%d %+v", code, letter)
	}
	var outcome struct {
		Result string
		Status int
		NewSeq uint64 `json:"new_seq"`
	}
	if code := s.admin.ask(t, "POST", entry+"/replay", "", &outcome); code != 200 || outcome.Result != "failed" || outcome.Status != 422 || outcome.NewSeq != 2 {
		t.Errorf("%d %+v", code, outcome)
	}
	fixed.Store(true)
	if code := s.admin.ask(t, "POST", fmt.Sprintf("/api/dlq/%s/2/replay", dlq), "", &outcome); code != 200 || outcome.Result != "acked" {
		t.Errorf("%d %+v", code, outcome)
	}
	if code := s.admin.ask(t, "GET", entry, "", nil); code != 404 {
		t.Errorf("the entry is still there: %d", code)
	}
	calls := w.app.of(bad)
	if len(calls) != 3 || calls[2].header.Get("Dlq-Replays") != "2" || calls[2].header.Get("Idempotency-Key") != calls[0].header.Get("Idempotency-Key") {
		t.Errorf("%d calls", len(calls))
	}
	again := w.publishAfterWindow("orders.bad", `{"id": 1}`, "id-1") // it is known now
	s.waitMetric("sidecar_messages_total{consumer=\"worker\",stream=\"ORDERS\",verdict=\"duplicate\"", func(v float64) bool { return v == 1 })
	if n := len(w.app.of(again)); n != 0 {
		t.Errorf("a duplicate of what was replayed is delivered %d times", n)
	}
	var stats struct{ Entries int }
	if code := s.admin.ask(t, "GET", "/api/dlq/stats", "", &stats); code != 200 || stats.Entries != 0 {
		t.Errorf("%d %+v", code, stats)
	}
}

// Many at a time: progress comes as it goes on, a closed request ends it, and a second one goes on.
func TestAdminAPIReplaysMany(t *testing.T) {
	w := newWorld(t)
	w.app.on(each(reply{status: 422}, reply{status: 200}))
	const n = 40
	s := w.running()
	for i := range n {
		w.publish("orders.a", fmt.Sprint(i))
	}
	w.balance()
	ctx, cancel := context.WithCancel(t.Context())
	resp := s.admin.open(ctx, t, "POST", "/api/dlq/replay", `{"rate": 1}`)
	in := bufio.NewScanner(resp.Body)
	var line struct {
		Progress *struct{ Selected, Done int }
		Report   *struct{ Selected, Done, Failed, Kept int }
		Error    string
	}
	for in.Scan() {
		if err := json.Unmarshal(in.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		if line.Progress.Done > 0 {
			break
		}
	}
	if line.Progress.Selected != n {
		t.Errorf("%+v", line.Progress)
	}
	cancel()
	last := s.admin.many(t, "/api/dlq/replay", `{"rate": 0, "concurrency": 4}`)
	if err := json.Unmarshal(last, &line); err != nil || line.Report == nil || line.Report.Done == 0 || line.Report.Done == n || len(w.dead()) != 0 {
		t.Errorf("%v: the last line is %s, %d are left", err, last, len(w.dead()))
	}
	for _, c := range w.app.all() {
		if c.nth > 2 {
			t.Errorf("message %d was replayed twice", c.seq)
		}
	}
}

// NATS away: the API says so, in time, and the events go on.
func TestAdminAPIWhileNATSIsAway(t *testing.T) {
	w := newWorld(t)
	s := w.running()
	w.nats.Shutdown()
	s.waitCheck("nats", false)
	for _, path := range []string{"/api/dlq", "/api/dlq/stats", "/api/dlq/" + dlq + "/1"} {
		var f struct{ Error string }
		if code := s.admin.ask(t, "GET", path, "", &f); code < 503 || f.Error == "" {
			t.Errorf("%s: %d %+v", path, code, f)
		}
	}
	if code := s.admin.ask(t, "POST", "/api/dlq/"+dlq+"/1/replay", "", nil); code < 503 {
		t.Errorf("replay: %d", code)
	}
	var o overview
	if code := s.admin.ask(t, "GET", "/api/consumers", "", &o); code != 200 || len(o.Consumers) != 1 {
		t.Errorf("/api/consumers: %d %+v", code, o)
	}
	w.must(w.nats.Restart())
	s.waitReady()
	eventually(t, func() bool { return s.admin.ask(t, "GET", "/api/dlq", "", nil) == 200 }, text("the dead letters to be there again"))
}

// Listeners and a replay do not hold up the stop: they end when it begins, not when it ends.
func TestStopEndsStreams(t *testing.T) {
	w := newWorld(t)
	gate := make(chan struct{})
	w.app.on(func(c *call) reply {
		if c.subject == "orders.slow" {
			return reply{status: 200, gate: gate}
		}
		return reply{status: 422}
	})
	s := w.running()
	for range 30 {
		w.publish("orders.a", "x")
	}
	w.balance()
	w.publish("orders.slow", "x")
	s.waitMetric("sidecar_in_flight", func(v float64) bool { return v == 1 })
	events := s.admin.open(t.Context(), t, "GET", "/api/events", "")
	replay := s.admin.open(t.Context(), t, "POST", "/api/dlq/replay", `{"rate": 1}`)
	s.cancel()
	for what, body := range map[string]io.Reader{"the events": events.Body, "the replay": replay.Body} {
		ended := make(chan struct{})
		go func() { defer close(ended); _, _ = io.Copy(io.Discard, body) }()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Errorf("%s do not end", what)
		}
	}
	if code := s.admin.status("/livez"); code != 200 {
		t.Errorf("/livez is %d while a request is in flight", code)
	}
	close(gate)
	if err := s.stop(); err != nil {
		t.Errorf("the stop: %v", err)
	}
}

// Without the token nothing of a message is to be had, and the page is there.
func TestAdminToken(t *testing.T) {
	w := newWorld(t)
	s := w.running(func(c *config.Config) { c.Admin.Token = "secret" })
	for path, want := range map[string]int{"/": 200, "/assets/app.js": 200, "/readyz": 200, "/metrics": 200, "/api/consumers": 401, "/api/dlq": 401, "/api/events": 401} {
		if code := s.admin.status(path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
}

// The tools do over the API what they do by themselves.
func TestToolsOverTheAPI(t *testing.T) {
	w := newWorld(t)
	w.app.on(each(reply{status: 422, header: map[string]string{"Sidecar-Reason": "bad"}}, reply{status: 200}))
	s := w.running(func(c *config.Config) { c.Admin.Token = "secret" })
	for i := range 5 {
		w.publish("orders.a", fmt.Sprint("body ", i))
	}
	w.balance()
	tool := func(args ...string) said {
		t.Helper()
		return w.dlqWith([]string{"SIDECAR_ADMIN_TOKEN=secret"}, append(args, "--admin", string(s.admin))...)
	}
	for _, c := range []struct{ args, out string }{
		{"list --json", `"reason":"rejected","status":422,"error":"bad"`},
		{"list --seq 2-3 --limit 1", "orders.a"},
		{"stats", "5 entries"},
		{"show 1 --raw", "body "},
		{"replay --seq 1-3 --yes", "3 of 3 entries replayed"},
		{"rm --seq 4- --yes", "2 of 2 entries removed"},
		{"stats", "0 entries"},
	} {
		if got := tool(strings.Fields(c.args)...); got.code != 0 || !strings.Contains(got.out, c.out) {
			t.Errorf("%s: %+v", c.args, got)
		}
	}
	if got := w.dlqWith(nil, "list", "--admin", string(s.admin)); got.code != 1 || !strings.Contains(got.err, "--token-file") {
		t.Errorf("without the token: %+v", got)
	}
}

// Every answer over entries that are done with, that fail again and that stay is as it is described, and a second request takes no
// more than a first one saw.
func TestAnswersOfTheAPI(t *testing.T) {
	w := newWorld(t)
	w.app.on(always(reply{status: 422, body: "no"}))
	s := w.running()
	for range 3 {
		w.publish("orders.a", "x")
	}
	w.balance()
	made := fmt.Sprint("@", w.streamInfo("ORDERS_DLQ").Created.UnixNano()) // tells the stream from one made anew
	for _, c := range []struct{ path, body, want string }{
		{"replay", `{"dry_run": true}`, `"selected":3,"done":3,"failed":0,"kept":0,"gone":0,"interrupted":false,"failures":[],"up_to":["ORDERS_DLQ:3` + made + `"]}}`},
		{"replay", `{"up_to": ["ORDERS_DLQ:2"], "rate": 0}`, `"selected":2,"done":0,"failed":2,`}, // 4 and 5 in their place
		{"replay", `{"max_replays": 1, "rate": 0}`, `"selected":3,"done":0,"failed":1,"kept":2,`},
		{"rm", `{"dry_run": true, "limit": 1}`, `"up_to":["ORDERS_DLQ:4` + made + `"]}}`},
		{"rm", `{"up_to": ["ORDERS_DLQ:4@1"]}`, `the DLQ stream was made anew`},
		{"rm", `{"up_to": ["ORDERS_DLQ:4` + made + `"]}`, `"selected":1,"done":1,`},
		{"rm", `{"up_to": []}`, `"selected":0,`},
	} {
		if last := s.admin.many(t, "/api/dlq/"+c.path, c.body); !strings.Contains(string(last), c.want) {
			t.Errorf("%s %s: %s", c.path, c.body, last)
		}
	}
	var outcome struct{ Result string }
	for _, c := range []struct {
		method, path, body, want string
		code                     int
	}{{"POST", "/5/replay", `{"max_replays": 1}`, "kept", 409}, {"DELETE", "/5", "", "removed", 200}} {
		if code := s.admin.ask(t, c.method, "/api/dlq/"+dlq+c.path, c.body, &outcome); code != c.code || outcome.Result != c.want {
			t.Errorf("%s %s: %d %+v", c.method, c.path, code, outcome)
		}
	}
	if code := s.admin.ask(t, "DELETE", "/api/dlq/"+dlq+"/5", "", nil); code != 404 {
		t.Errorf("a second time: %d", code)
	}
}
