package admin_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/admin"
	"github.com/jetsidecar/jetsidecar/internal/admin/admintest"
	"github.com/jetsidecar/jetsidecar/internal/admin/openapitest"
	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/dlq"
	"github.com/jetsidecar/jetsidecar/internal/pipeline"
	"github.com/jetsidecar/jetsidecar/internal/telemetry"
)

// world is an admin listener with made up consumers and dead letters.
type world struct {
	t        *testing.T
	doc      *openapitest.Document
	letters  *admintest.Letters
	consumer *admintest.Consumer
	server   *admin.Server
	url      string
	client   *http.Client
	stop     func()
}

func newWorld(t *testing.T) *world { return worldWith(t, config.Admin{}, "ORDERS_DLQ") }

func worldWith(t *testing.T, cfg config.Admin, streams ...string) *world {
	t.Helper()
	c := admintest.NewConsumer("ORDERS", "worker")
	return worldOf(t, cfg, c, c.Admin(), streams...)
}

func worldOf(t *testing.T, cfg config.Admin, consumer *admintest.Consumer, served admin.Consumer, streams ...string) *world {
	t.Helper()
	w := &world{t: t, doc: openapitest.Open(t, openAPI), letters: admintest.NewLetters(streams...), consumer: consumer}
	w.server = admin.New(admin.Options{
		Config: cfg, Ready: func() admin.Readiness { return admin.Checks(true, true, "", []pipeline.Status{w.consumer.Status()}) },
		Consumers: []admin.Consumer{served}, Letters: w.letters, Changes: w.letters, Version: "v1", Log: slog.New(slog.DiscardHandler),
		HistoryStep: 10 * time.Millisecond,
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.url = "http://" + ln.Addr().String()
	transport := &http.Transport{}
	w.client = &http.Client{Transport: transport}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := w.server.Serve(ctx, ln); err != nil {
			t.Error(err)
		}
	})
	w.stop = sync.OnceFunc(func() { cancel(); serving.Wait() })
	t.Cleanup(func() { w.stop(); transport.CloseIdleConnections() })
	return w
}

// open asks and returns the answer, whose body is closed at the end of the test.
func (w *world) open(ctx context.Context, method, path, body string) *http.Response {
	w.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := w.client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// ask checks status and schema of an answer, and unpacks it.
func (w *world) ask(method, path, body string, status int, schema string, into any) {
	w.t.Helper()
	resp := w.open(w.t.Context(), method, path, body)
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		w.t.Fatalf("%s %s: %d %v, want %d: %s", method, path, resp.StatusCode, err, status, text)
	}
	if kind := resp.Header.Get("Content-Type"); kind != "application/json" {
		w.t.Errorf("content type %q", kind)
	}
	if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") {
		w.t.Errorf("policy %q", csp)
	}
	w.doc.Valid(schema, text)
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) refused(method, path, body string, status int, why string) {
	w.t.Helper()
	var f struct{ Error string }
	w.ask(method, path, body, status, "Fault", &f)
	if !strings.Contains(f.Error, why) {
		w.t.Errorf("%s %s: %q, want %q", method, path, f.Error, why)
	}
}

func TestGetConsumers(t *testing.T) {
	w := newWorld(t)
	since := time.Now().Add(-time.Minute)
	w.consumer.Change(func(s *pipeline.Status, n *telemetry.Counts, f *[]telemetry.Failure) {
		*s = pipeline.Status{
			Stream: "ORDERS", Consumer: "worker", Detail: "no durable", BreakerOpen: true, BreakerSince: since, BreakerCause: "status 503",
			Leased: 3, Pending: 7, AckPending: 10, MaxAckPending: 100, DLQEnabled: true, DLQDetail: "full", DLQStream: "ORDERS_DLQ", DLQDepth: 4,
		}
		*n = telemetry.Counts{Ack: 5, Retry: 4, DLQ: 3, Drop: 2, Duplicate: 1, Requests: 15, InFlight: 2}
		*f = []telemetry.Failure{{Time: since, Subject: "\xffa", Sequence: 9, Delivered: 2, Result: pipeline.ResultDLQ, Reason: "rejected", Status: 422, Error: "bad"}}
	})
	var o admin.Overview
	w.ask("GET", "/api/consumers", "", 200, "Overview", &o)
	c := o.Consumers[0]
	if o.Version != "v1" || o.Ready || len(o.Checks) != 4 || c.State != "waiting" || c.Detail != "no durable" || c.Parked != 7 || c.Leased != 3 ||
		c.InFlight != 2 || c.Pending != 7 || c.MaxAckPending != 100 || c.Counts != (admin.Counts{Ack: 5, Retry: 4, DLQ: 3, Drop: 2, Duplicate: 1, Requests: 15}) {
		t.Errorf("%+v", c)
	}
	if !c.Breaker.Open || !c.Breaker.Since.Equal(since) || c.Breaker.Reason != "status 503" || c.DLQ.Depth != 4 || c.DLQ.OK || c.DLQ.Detail != "full" {
		t.Errorf("%+v %+v", c.Breaker, c.DLQ)
	}
	if len(c.Errors) != 1 || c.Errors[0].Status != 422 || c.Errors[0].Verdict != "dlq" || c.Errors[0].Subject != "\ufffda" {
		t.Errorf("%+v", c.Errors)
	}
	if n := len(c.Retry.Attempts); n != 9 || c.Retry.Attempts[0] != (admin.Delay{Attempt: 2, Shortest: 0.5, Longest: 1}) || c.Retry.More {
		t.Errorf("%d attempts: %+v", n, c.Retry)
	}
	for len(o.Consumers[0].History.Points) < 60 { // until it is full
		w.ask("GET", "/api/consumers", "", 200, "Overview", &o)
	}
}

// TestConcurrencyInEffect holds that the API says how many requests there may be, and not how many without an order.
func TestConcurrencyInEffect(t *testing.T) {
	c := admintest.NewConsumer("ORDERS", "worker")
	served := c.Admin()
	served.Config.Order = "stream"
	var o admin.Overview
	worldOf(t, config.Admin{}, c, served).ask("GET", "/api/consumers", "", 200, "Overview", &o)
	if o.Consumers[0].Concurrency != 1 {
		t.Errorf("concurrency %d", o.Consumers[0].Concurrency)
	}
}

func TestGetDLQ(t *testing.T) {
	w := newWorld(t)
	var page admin.Page
	w.ask("GET", "/api/dlq", "", 200, "Page", &page)
	if len(page.Entries) != 0 || page.Next != "" || page.Streams[0] != "ORDERS_DLQ" {
		t.Errorf("%+v", page)
	}
	w.letters.Fill(250)
	for _, c := range []struct {
		query           string
		first, last     uint64
		entries         int
		nextOfTheAnswer string
	}{
		{"", 1, 100, 100, "ORDERS_DLQ:100"},
		{"limit=10", 1, 10, 10, "ORDERS_DLQ:10"},
		{"limit=10&after=ORDERS_DLQ:245", 246, 250, 5, ""},
		{"limit=5&after=ORDERS_DLQ:245", 246, 250, 5, ""},
		{"order=newest", 250, 151, 100, "ORDERS_DLQ:151"},
		{"order=newest&limit=10&after=ORDERS_DLQ:11", 10, 1, 10, ""},
		{"order=newest&limit=9&after=ORDERS_DLQ:11", 10, 2, 9, "ORDERS_DLQ:2"},
		{"order=newest&after=ORDERS_DLQ:1", 0, 0, 0, ""},
		{"order=newest&seq=20-30", 30, 20, 11, ""},
		{"order=newest&seq=20-30&after=ORDERS_DLQ:25", 24, 20, 5, ""},
		{"order=newest&seq=20-30&after=ORDERS_DLQ:100", 30, 20, 11, ""},
		{"seq=7", 7, 7, 1, ""},
		{"seq=249-", 249, 250, 2, ""},
		{"seq=-2", 1, 2, 2, ""},
		{"status=404&limit=1", 10, 10, 1, "ORDERS_DLQ:10"},
		{"status=404&order=newest&limit=1", 250, 250, 1, "ORDERS_DLQ:250"},
		{"stream=ORDERS_DLQ&consumer=orders-worker&subject=orders.new&reason=rejected&since=100h&until=1s&limit=1", 1, 1, 1, "ORDERS_DLQ:1"},
		{"since=2000-01-01T00:00:00Z&until=2001-01-01T00:00:00Z", 0, 0, 0, ""},
	} {
		t.Run(c.query, func(t *testing.T) {
			var page admin.Page
			w.ask("GET", "/api/dlq?"+c.query, "", 200, "Page", &page)
			if n := len(page.Entries); n != c.entries || page.Next != c.nextOfTheAnswer ||
				n > 0 && (page.Entries[0].Seq != c.first || page.Entries[n-1].Seq != c.last) {
				t.Errorf("%d entries, next %q: %+v", n, page.Next, page.Entries)
			}
		})
	}
}

// The cursor of a page names the DLQ streams that it has to, so that its length does not grow with the configuration: oldest first those of
// which something was brought, newest first those of which something is left.
func TestCursorNamesFewStreams(t *testing.T) {
	w := worldWith(t, config.Admin{}, "A_DLQ", "B_DLQ", "C_DLQ", "D_DLQ")
	for _, name := range []string{"B_DLQ", "B_DLQ", "C_DLQ", "A_DLQ"} { // 1 to 4
		w.letters.Add(dlq.Letter{Entry: dlq.Entry{DLQStream: name, Stream: "S", Consumer: "c", Reason: "rejected"}})
	}
	for order, want := range map[string][]string{
		"oldest": {"B_DLQ:1", "B_DLQ:2", "B_DLQ:2.C_DLQ:3", ""},
		"newest": {"A_DLQ:4.B_DLQ:3.C_DLQ:4", "B_DLQ:3.C_DLQ:3", "B_DLQ:2", ""},
	} {
		after, all := "", 0
		for n, next := range want {
			var page admin.Page
			w.ask("GET", fmt.Sprintf("/api/dlq?order=%s&limit=1&after=%s", order, after), "", 200, "Page", &page)
			if all += len(page.Entries); page.Next != next {
				t.Errorf("page %d of %s: next is %q, want %q", n, order, page.Next, next)
			}
			after = page.Next
		}
		if all != 4 {
			t.Errorf("%s: %d entries", order, all)
		}
	}
}

// Newest first goes through several DLQ streams as oldest first does, the other way round.
func TestNewestOfSeveralStreams(t *testing.T) {
	w := worldWith(t, config.Admin{}, "A_DLQ", "B_DLQ", "C_DLQ")
	for i := range 30 {
		w.letters.Add(dlq.Letter{Entry: dlq.Entry{DLQStream: w.letters.Streams()[i%3], Stream: "S", Consumer: "c", Reason: "rejected"}})
	}
	walk := func(order string, limit int) []string {
		var all []string
		for after := ""; ; {
			var page admin.Page
			w.ask("GET", fmt.Sprintf("/api/dlq?order=%s&limit=%d&after=%s", order, limit, after), "", 200, "Page", &page)
			for _, e := range page.Entries {
				all = append(all, e.Cursor().String())
			}
			if after = page.Next; after == "" {
				return all
			}
		}
	}
	oldest := walk("oldest", 100)
	for _, limit := range []int{1, 3, 7, 10, 29, 30} {
		newest := walk("newest", limit)
		if len(newest) != 30 {
			t.Fatalf("pages of %d: %d entries: %q", limit, len(newest), newest)
		}
		for i := range newest {
			if newest[i] != oldest[29-i] {
				t.Fatalf("pages of %d: %q\nis not the reverse of %q", limit, newest, oldest)
			}
		}
	}
}

func TestStatsAndEntry(t *testing.T) {
	w := newWorld(t)
	w.ask("GET", "/api/dlq/stats", "", 200, "Stats", nil)
	w.letters.Fill(20)
	var stats dlq.Stats
	w.ask("GET", "/api/dlq/stats?reason=rejected", "", 200, "Stats", &stats)
	if stats.Entries != 12 {
		t.Errorf("%+v", stats)
	}
	var letter struct {
		Headers map[string][]string
		Body    string
		Raw     []byte `json:"body_base64"`
	}
	w.ask("GET", "/api/dlq/ORDERS_DLQ/3", "", 200, "Letter", &letter)
	if letter.Headers["Content-Type"][0] != "application/json" || letter.Body != string(letter.Raw) || !json.Valid(letter.Raw) {
		t.Errorf("%+v", letter)
	}
	seq := w.letters.Add(dlq.Letter{Entry: dlq.Entry{Stream: "S", Consumer: "c"}, Headers: map[string][]string{"\xff": {"\xff\x00"}}, Body: []byte("\xff\x00")})
	w.ask("GET", fmt.Sprintf("/api/dlq/ORDERS_DLQ/%d", seq), "", 200, "Letter", &letter)
	if string(letter.Raw) != "\xff\x00" {
		t.Errorf("the body is %q", letter.Raw)
	}
	empty := w.letters.Add(dlq.Letter{Entry: dlq.Entry{Stream: "S", Consumer: "c"}})
	w.ask("GET", fmt.Sprintf("/api/dlq/ORDERS_DLQ/%d", empty), "", 200, "Letter", nil)
}

func TestReplayAndRemoveOne(t *testing.T) {
	w := newWorld(t)
	w.letters.Fill(5)
	w.letters.App = func(l *dlq.Letter) dlq.Outcome {
		if l.Seq == 2 {
			return dlq.Outcome{Result: dlq.Failed, Status: 503, Reason: "max_deliver", Why: "busy"}
		}
		return dlq.Outcome{Result: dlq.Acked, Status: 204}
	}
	for _, c := range []struct {
		method, path, body string
		want               dlq.Result
	}{
		{"POST", "/api/dlq/ORDERS_DLQ/1/replay", "", dlq.Acked},
		{"POST", "/api/dlq/ORDERS_DLQ/2/replay", `{"to": "app", "rate": 0, "max_replays": 3}`, dlq.Failed},
		{"POST", "/api/dlq/ORDERS_DLQ/3/replay", `{"to": "stream"}`, dlq.Published},
		{"DELETE", "/api/dlq/ORDERS_DLQ/4", "", dlq.Removed},
	} {
		var o dlq.Outcome
		w.ask(c.method, c.path, c.body, 200, "Outcome", &o)
		if o.Result != c.want || o.Entry == nil || (o.NewSeq == 6 && o.NewStream == "ORDERS_DLQ") != (c.want == dlq.Failed) {
			t.Errorf("%s: %+v", c.path, o)
		}
		w.refused(c.method, c.path, c.body, 404, "no such entry")
	}
	if n := w.letters.Len(); n != 2 { // 5, and 2 stored anew
		t.Errorf("%d entries are left", n)
	}
	if n := w.consumer.Looks(); n != 4 {
		t.Errorf("the depth was looked up %d times", n)
	}
}

// A fault is said once, however often it would be found.
func TestLimitIsOneFault(t *testing.T) {
	w := newWorld(t)
	resp, err := w.client.Get(w.url + "/api/dlq?limit=-1")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusBadRequest || strings.Count(string(text), "limit") != 1 {
		t.Errorf("%d %s, %v", resp.StatusCode, text, err)
	}
}

// An entry of a consumer that is not in the configuration is changed only if that consumer is named.
func TestOneOfAnotherConsumer(t *testing.T) {
	w := newWorld(t)
	for range 2 {
		w.letters.Add(dlq.Letter{Entry: dlq.Entry{Stream: "ORDERS", Consumer: "other"}, Other: true})
	}
	for _, c := range []struct {
		method, path string
		want         dlq.Result
	}{{"DELETE", "/api/dlq/ORDERS_DLQ/1", dlq.Removed}, {"POST", "/api/dlq/ORDERS_DLQ/2/replay", dlq.Acked}} {
		w.refused(c.method, c.path, "", 409, "of consumer other of stream ORDERS, which is not in this configuration")
		w.refused(c.method, c.path+"?consumer=worker", "", 404, "no such entry")
		var o dlq.Outcome
		if w.ask(c.method, c.path+"?consumer=other", "", 200, "Outcome", &o); o.Result != c.want {
			t.Errorf("%s: %+v", c.path, o)
		}
	}
}

// An entry that was shown is changed only if it is the one that is there: another has its sequence once the DLQ stream was made anew.
func TestOneThatWasShown(t *testing.T) {
	w := newWorld(t)
	w.letters.Fill(2)
	for _, c := range []struct{ method, entry, path string }{{"DELETE", "/api/dlq/ORDERS_DLQ/1", ""}, {"POST", "/api/dlq/ORDERS_DLQ/2", "/replay"}} {
		var shown struct {
			Time string `json:"time"`
		}
		w.ask("GET", c.entry, "", 200, "Letter", &shown)
		w.refused(c.method, c.entry+c.path+"?time="+url.QueryEscape("2001-01-01T00:00:00Z"), "", 409, "made anew")
		w.ask(c.method, c.entry+c.path+"?time="+url.QueryEscape(shown.Time), "", 200, "Outcome", &dlq.Outcome{})
	}
}

// lines reads an answer of many lines.
func (w *world) lines(body io.Reader) []admin.Line {
	w.t.Helper()
	var all []admin.Line
	for in := bufio.NewScanner(body); in.Scan(); {
		w.doc.Valid("Line", in.Bytes())
		var l admin.Line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			w.t.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}

func TestReplayAndRemoveMany(t *testing.T) {
	w := newWorld(t)
	w.letters.Fill(200)
	w.letters.App = func(l *dlq.Letter) dlq.Outcome {
		if l.Status == 503 {
			return dlq.Outcome{Result: dlq.Kept, Status: 503, Why: "busy"}
		}
		return dlq.Outcome{Result: dlq.Acked}
	}
	for _, c := range []struct {
		path, body           string
		selected, done, kept int
		left                 int
	}{
		{"/api/dlq/replay", `{"dry_run": true}`, 200, 200, 0, 200},
		{"/api/dlq/rm", `{"dry_run": true, "reason": "rejected"}`, 120, 120, 0, 200},
		{"/api/dlq/rm", `{"up_to": []}`, 0, 0, 0, 200},
		{"/api/dlq/rm", `{"up_to": ["OTHER:200"]}`, 0, 0, 0, 200},
		{"/api/dlq/rm", `{"dry_run": true, "up_to": ["ORDERS_DLQ:7"]}`, 7, 7, 0, 200},
		{"/api/dlq/rm", `{"dry_run": true, "up_to": null}`, 200, 200, 0, 200},
		{"/api/dlq/rm", `{"status": 404}`, 20, 20, 0, 180},
		{"/api/dlq/rm", `{"status": "0", "limit": 5}`, 5, 5, 0, 175},
		{"/api/dlq/rm", `{"seq": 1, "stream": "ORDERS_DLQ", "consumer": "orders-worker"}`, 1, 1, 0, 174},
		{"/api/dlq/rm", `{"seq": "1-4", "since": "1000h", "until": "0s"}`, 3, 3, 0, 171},
		{"/api/dlq/replay", `{"to": "app", "rate": 0, "concurrency": 4, "max_replays": 5}`, 171, 112, 59, 59},
		{"/api/dlq/replay", `{"to": "stream", "subject": "nothing"}`, 0, 0, 0, 59},
	} {
		looks := w.consumer.Looks()
		resp := w.open(t.Context(), "POST", c.path, c.body)
		all := w.lines(resp.Body)
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/x-ndjson" || len(all) < 2 {
			t.Fatalf("%s %s: %d %v", c.path, c.body, resp.StatusCode, all)
		}
		for _, l := range all[:len(all)-1] {
			if l.Progress == nil {
				t.Errorf("a line before the last one has no progress: %+v", l)
			}
		}
		if w.consumer.Looks() == looks {
			t.Error("the depth was not looked up")
		}
		r := all[len(all)-1].Report
		if r == nil || r.Selected != c.selected || r.Done != c.done || r.Kept != c.kept || w.letters.Len() != c.left {
			t.Errorf("%s %s: %+v, %d entries are left", c.path, c.body, r, w.letters.Len())
		}
	}
}

// Closing the request stops the work, and so do a request to stop it and the stop of the sidecar; after these its report comes.
func TestManyIsCancelled(t *testing.T) {
	w := newWorld(t)
	w.letters.Fill(50)
	release := w.letters.Hold()
	defer release()
	for _, end := range []string{"close", "ask", "stop"} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resp := w.open(ctx, "POST", "/api/dlq/rm", "{}")
		in := bufio.NewReader(resp.Body)
		line, err := in.ReadBytes('\n') // it has begun
		if err != nil {
			t.Fatal(err)
		}
		w.doc.Valid("Line", line)
		var first struct{ Change string }
		if err := json.Unmarshal(line, &first); err != nil || first.Change == "" {
			t.Fatalf("%s, %v", line, err)
		}
		await(t, func() bool { return w.letters.Held() == 1 })
		ask := fmt.Sprintf(`{"change": %q}`, first.Change)
		switch end {
		case "close":
			cancel()
		case "ask":
			w.refused("POST", "/api/dlq/stop", `{"change": "another"}`, 404, "no such change")
			w.ask("POST", "/api/dlq/stop", ask, 200, "StopRequest", nil)
		case "stop":
			w.server.StopLong()
		}
		if end != "close" {
			all := w.lines(in)
			if l := all[len(all)-1]; l.Report == nil || !l.Report.Interrupted || l.Report.Selected != 50 {
				t.Errorf("the last line is %+v", l)
			}
			w.refused("POST", "/api/dlq/stop", ask, 404, "no such change, or it has ended")
		}
		await(t, func() bool { return w.letters.Held() == 0 })
	}
	if n := w.letters.Len(); n != 50 {
		t.Errorf("%d entries are left", n)
	}
	w.refused("POST", "/api/dlq/rm", "{}", 503, "stopping")
}

// Who ends a replay early, or whose sidecar dies, has read by then what failed and why.
func TestFailuresSoFar(t *testing.T) {
	w := newWorld(t)
	w.letters.Fill(4)
	goOn := make(chan struct{})
	w.letters.App = func(l *dlq.Letter) dlq.Outcome {
		if l.Seq == 3 {
			<-goOn
		}
		return dlq.Outcome{Result: dlq.Kept, Status: 503, Why: "busy"}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body := w.open(ctx, "POST", "/api/dlq/replay", "{}").Body
	in := bufio.NewScanner(body)
	var last admin.Line
	for last.Progress == nil || last.Progress.Kept < 2 || len(last.Failures) == 0 {
		if !in.Scan() {
			t.Fatalf("the answer ends after %+v", last)
		}
		last = admin.Line{}
		w.doc.Valid("Line", in.Bytes())
		if err := json.Unmarshal(in.Bytes(), &last); err != nil {
			t.Fatal(err)
		}
	}
	if f := last.Failures[0]; f.Count != last.Progress.Kept || f.Why != "busy" || f.Status != 503 || f.Stream != "ORDERS_DLQ" || f.Example != 1 {
		t.Errorf("after %+v it says %+v", last.Progress, f)
	}
	cancel()
	close(goOn)
}

func TestManyCannotGoOn(t *testing.T) {
	w := newWorld(t)
	w.letters.Fill(2)
	w.letters.Fail(dlq.ErrAppAway)
	all := w.lines(w.open(t.Context(), "POST", "/api/dlq/replay", "{}").Body)
	if l := all[len(all)-1]; l.Error != dlq.ErrAppAway.Error() || l.Report == nil || l.Report.Selected != 2 {
		t.Errorf("the last line is %+v", l)
	}
}

func TestFaults(t *testing.T) {
	w := newWorld(t)
	w.letters.Fill(1)
	for _, c := range []struct {
		method, path, body string
		status             int
		why                string
	}{
		{"GET", "/api/", "", 404, "no such path"},
		{"GET", "/api/nothing", "", 404, "no such path"},
		{"POST", "/api/consumers", "", 405, "only GET"},
		{"DELETE", "/api/dlq", "", 405, "only GET"},
		{"PUT", "/api/dlq/ORDERS_DLQ/1", "", 405, "only GET, DELETE"},
		{"GET", "/api/dlq/replay", "", 405, "only POST"},
		{"GET", "/api/dlq?colour=red", "", 400, `no parameter "colour"`},
		{"GET", "/api/dlq?seq=1&seq=2", "", 400, "more than once"},
		{"GET", "/api/dlq?seq=b", "", 400, "seq:"},
		{"GET", "/api/dlq?seq=5-2", "", 400, "seq:"},
		{"GET", "/api/dlq?seq=0", "", 400, "seq:"},
		{"GET", "/api/dlq?seq=-", "", 400, "seq:"},
		{"GET", "/api/dlq?seq=0-", "", 400, "seq:"},
		{"GET", "/api/dlq?seq=-0", "", 400, "seq:"},
		{"GET", "/api/dlq?seq=18446744073709551615", "", 400, "seq:"},
		{"GET", "/api/dlq?status=ok", "", 400, "status:"},
		{"GET", "/api/dlq?status=1000", "", 400, "status:"},
		{"GET", "/api/dlq?since=yesterday&limit=0", "", 400, "limit:"},
		{"GET", "/api/dlq?since=yesterday&limit=0", "", 400, "since:"},
		{"GET", "/api/dlq?since=-5m", "", 400, "since:"},
		{"GET", "/api/dlq?limit=1001", "", 400, "limit:"},
		{"GET", "/api/dlq?after=x", "", 400, "after:"},
		{"GET", "/api/dlq?after=ORDERS_DLQ:1.", "", 400, "after:"},
		{"GET", "/api/dlq?after=ORDERS_DLQ:1.ORDERS_DLQ:2", "", 400, "twice"},
		{"GET", "/api/dlq?after=OTHER:1", "", 400, "it names none of its DLQ streams, which are ORDERS_DLQ"},
		{"GET", "/api/dlq?order=newest&after=OTHER:1", "", 400, "it names none of its DLQ streams"},
		{"GET", "/api/dlq?stream=ORDERS_DLQ&after=OTHER:1", "", 400, "which are ORDERS_DLQ"},
		{"GET", "/api/dlq?order=random", "", 400, "order:"},
		{"GET", "/api/dlq?up_to=ORDERS_DLQ:1", "", 400, `no parameter "up_to"`},
		{"GET", "/api/dlq?reason=nonsense", "", 400, "reason:"},
		{"GET", "/api/dlq/stats?reason=nonsense", "", 400, "reason:"},
		{"POST", "/api/dlq/rm", `{"reason": "nonsense"}`, 400, "reason:"},
		{"POST", "/api/dlq/rm", `{"up_to": "ORDERS_DLQ:1"}`, 400, "up_to: it must not be a string"},
		{"POST", "/api/dlq/rm", `{"up_to": ["ORDERS_DLQ"]}`, 400, "up_to:"},
		{"POST", "/api/dlq/rm", `{"up_to": [""]}`, 400, "up_to:"},
		{"GET", "/api/dlq/stats?order=newest", "", 400, "order"},
		{"GET", "/api/dlq/ORDERS_DLQ/0", "", 400, "number"},
		{"GET", "/api/dlq/ORDERS_DLQ/-1", "", 400, "number"},
		{"GET", "/api/dlq/ORDERS_DLQ/99", "", 404, "no such entry"},
		{"GET", "/api/dlq/ORDERS/1", "", 404, "no such DLQ stream"},
		{"DELETE", "/api/dlq/ORDERS/1", "", 404, "no such DLQ stream"},
		{"POST", "/api/dlq/ORDERS_DLQ/1/replay", `{"to": "moon"}`, 400, "to:"},
		{"POST", "/api/dlq/ORDERS_DLQ/1/replay", `{"too": "app"}`, 400, "too"},
		{"POST", "/api/dlq/replay", "", 400, "JSON object"},
		{"POST", "/api/dlq/replay", "[]", 400, "JSON object"},
		{"POST", "/api/dlq/replay", "{} {}", 400, "more than one"},
		{"POST", "/api/dlq/replay", `{"rate": -1}`, 400, "rate:"},
		{"POST", "/api/dlq/replay", `{"rate": 1000001}`, 400, "rate: 0 to 1000000"},
		{"POST", "/api/dlq/replay", `{"concurrency": 0}`, 400, "concurrency: 1 to 64"},
		{"POST", "/api/dlq/replay", `{"concurrency": 65}`, 400, "concurrency:"},
		{"POST", "/api/dlq/replay", `{"max_replays": -1}`, 400, "max_replays:"},
		{"POST", "/api/dlq/replay", `{"status": true}`, 400, "JSON object"},
		{"POST", "/api/dlq/rm", `{"to": "app"}`, 400, `"to"`},
		{"POST", "/api/dlq/rm", `{"seq": "x"}`, 400, "seq:"},
		{"POST", "/api/dlq/rm", "null", 400, "JSON object"},
		{"POST", "/api/dlq/replay", `{"rate": "fast"}`, 400, "rate: it must not be a string"},
		{"POST", "/api/dlq/rm", `{"subject": "` + strings.Repeat("x", admin.MaxBody) + `"}`, 413, "larger"},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			w.refused(c.method, c.path, c.body, c.status, c.why)
		})
	}
	for err, status := range map[error]int{
		errors.New("nats: no servers"): 503, dlq.ErrNotFound: 404, dlq.ErrNoClaims: 503, context.DeadlineExceeded: 504,
	} {
		w.letters.Fail(err)
		for _, path := range []string{"/api/dlq", "/api/dlq?order=newest", "/api/dlq/stats", "/api/dlq/ORDERS_DLQ/1"} {
			w.refused("GET", path, "", status, err.Error())
		}
	}
	if n := w.letters.Len(); n != 1 {
		t.Errorf("%d entries are left", n)
	}
}

// A form on any page can send a body that is JSON as text; what says that it is one is refused, whatever else it says.
func TestForms(t *testing.T) {
	w := newWorld(t)
	w.letters.Fill(1)
	for kind, status := range map[string]int{
		"text/plain": 415, "text/plain; charset=UTF-8": 415, "multipart/form-data; boundary=x": 415,
		"application/json": 200, "application/json; charset=utf-8": 200, "application/x-www-form-urlencoded": 200, "": 200,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/api/dlq/rm", strings.NewReader(`{"dry_run": true}`))
		if err != nil {
			t.Fatal(err)
		}
		if kind != "" {
			req.Header.Set("Content-Type", kind)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != status {
			t.Errorf("%q: %d, want %d", kind, resp.StatusCode, status)
		}
	}
}

// await waits for a condition.
func await(t *testing.T, cond func() bool) {
	t.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(time.Minute); !cond(); <-look.C {
		if time.Now().After(end) {
			t.Fatal("waited too long")
		}
	}
}

// Stats, and the report of a dry run, say what they saw: with that a second request does no more than somebody agreed to.
func TestUpTo(t *testing.T) {
	w := worldWith(t, config.Admin{}, "A_DLQ", "B_DLQ")
	w.letters.Fill(5)
	var stats struct {
		UpTo json.RawMessage `json:"up_to"`
	}
	w.ask("GET", "/api/dlq/stats?limit=3", "", 200, "Stats", &stats)
	if string(stats.UpTo) != `["A_DLQ:3","B_DLQ:0"]` {
		t.Errorf("of the oldest three: %s", stats.UpTo)
	}
	w.ask("GET", "/api/dlq/stats", "", 200, "Stats", &stats)
	dry := w.lines(w.open(t.Context(), "POST", "/api/dlq/replay", `{"dry_run": true}`).Body)
	upTo, err := json.Marshal(dry[len(dry)-1].Report.UpTo)
	if err != nil || string(upTo) != `["A_DLQ:5","B_DLQ:5"]` || string(stats.UpTo) != string(upTo) {
		t.Errorf("%v: the dry run says %s, the stats %s", err, upTo, stats.UpTo)
	}
	w.letters.Fill(4)
	all := w.lines(w.open(t.Context(), "POST", "/api/dlq/rm", fmt.Sprintf(`{"up_to": %s}`, upTo)).Body)
	if r := all[len(all)-1].Report; r.Selected != 5 || r.UpTo != nil || w.letters.Len() != 4 {
		t.Errorf("%+v, %d are left", r, w.letters.Len())
	}
}

// A replay leaves what was replayed 100 times, unless another number is given.
func TestMaxReplays(t *testing.T) {
	w := newWorld(t)
	seq := w.letters.Add(dlq.Letter{Entry: dlq.Entry{Stream: "S", Consumer: "c", Reason: "rejected", Replays: 100}})
	one := fmt.Sprintf("/api/dlq/ORDERS_DLQ/%d/replay", seq)
	for _, body := range []string{"", "{}", `{"max_replays": 100}`} {
		var o struct {
			dlq.Outcome
			Error string
		}
		if w.ask("POST", one, body, 409, "Outcome", &o); o.Result != dlq.Kept || o.Error != "it was replayed 100 times already" || o.Why != o.Error {
			t.Errorf("%s: %+v", body, o)
		}
	}
	all := w.lines(w.open(t.Context(), "POST", "/api/dlq/replay", "{}").Body)
	if r := all[len(all)-1].Report; r.Kept != 1 {
		t.Errorf("%+v", r)
	}
	var o dlq.Outcome
	if w.ask("POST", one, `{"max_replays": 0}`, 200, "Outcome", &o); o.Result != dlq.Acked {
		t.Errorf("%+v", o)
	}
}
