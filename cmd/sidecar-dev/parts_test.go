package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/pipeline"
	"github.com/jetsidecar/jetsidecar/policy"
)

func TestSubjects(t *testing.T) {
	for pattern, want := range map[string]string{
		"orders.>":     "orders.created",
		"orders.*":     "orders.created",
		">":            "created",
		"orders":       "orders",
		"*.orders.*.>": "sample.orders.sample.created",
	} {
		if got := (source{subjects: []string{pattern, "other"}}).subject("created"); got != want {
			t.Errorf("%s: %s, want %s", pattern, got, want)
		}
	}
}

func TestLedger(t *testing.T) {
	l := newLedger()
	settle := func(sequence uint64, r pipeline.Result) uint64 {
		return l.settled(&pipeline.Settled{Sequence: sequence, Result: r, Reason: policy.ReasonRejected})
	}
	settle(1, pipeline.ResultAck) // left from before
	l.publishing(0)
	l.published(2, false)
	settle(2, pipeline.ResultRetry)
	l.publishing(2)
	if of := settle(3, pipeline.ResultDuplicate); of != 2 { // before its confirmation is seen
		t.Errorf("message 3 repeats %d", of)
	}
	l.published(3, false)
	l.publishing(2)
	l.published(2, true)
	l.publishing(2)
	l.published(5, false)
	settle(4, pipeline.ResultAck) // published by hand
	if of := settle(5, pipeline.ResultDLQ); of != 2 {
		t.Errorf("message 5 repeats %d", of)
	}
	l.publishedAll()
	select {
	case <-l.done:
		t.Error("done although message 2 waits")
	default:
	}
	c := l.counts()
	if c.published != 4 || c.repeated != 3 || c.held != 1 || c.others != 2 || c.waiting != 1 || c.ended() != 4 || c.deliveries != 5 {
		t.Errorf("%+v", c)
	}
	settle(2, pipeline.ResultAck)
	<-l.done
	settle(6, pipeline.ResultAck)
	if c := l.counts(); c.waiting != 0 || c.others != 3 || c.ended() != c.published-c.held+c.others || c.reasons[policy.ReasonRejected] != 1 {
		t.Errorf("%+v", c)
	}
}

// TestPlan holds that two runs publish the same, and that each kind is among the first few.
func TestPlan(t *testing.T) {
	a, b := newPlan(1, 0), newPlan(1, 0)
	fates, repeated := make(map[fate]bool), 0
	for i := range 500 {
		x, y := a.message(), b.message()
		if x.id != y.id || x.event != y.event || string(x.body) != string(y.body) || (x.of == nil) != (y.of == nil) {
			t.Fatalf("message %d: %+v and %+v", i, x, y)
		}
		if x.of != nil {
			repeated++
			if fateOf(x.id) != fine || string(x.of.body) != string(x.body) {
				t.Errorf("%s is repeated", x.id)
			}
		}
		if fates[fateOf(x.id)] = true; i == 15 && (len(fates) != 7 || repeated == 0) {
			t.Errorf("the first messages show %v, and %d are repeated", fates, repeated)
		}
	}
	if repeated < 20 || repeated > 60 {
		t.Errorf("%d of 500 are repeated", repeated)
	}
}

func TestSampleApp(t *testing.T) {
	for _, c := range []struct {
		name, body, delivered string
		status                int
		header, value         string
	}{
		{"fine", `{"order":"A-0001","customer":"x","total":1.50}`, "1", 200, "Sidecar-Reason", ""},
		{"by hand", `{"order":"mine"}`, "1", 200, "", ""},
		{"text", `hello`, "1", 200, "", ""},
		{"empty", ``, "", 200, "", ""},
		{"other types", `{"order":7,"total":"x"}`, "1", 200, "", ""},
		{"busy", `{"order":"A-0003"}`, "1", 503, "Sidecar-Reason", "the warehouse is busy"},
		{"busy no more", `{"order":"A-0003"}`, "2", 200, "", ""},
		{"busy for long", `{"order":"A-0010"}`, "2", 503, "Retry-After", "2"},
		{"busy for long no more", `{"order":"A-0010"}`, "3", 200, "", ""},
		{"hopeless", `{"order":"A-0008"}`, "4", 503, "Retry-After", ""},
		{"negative", `{"order":"bad","total":-1}`, "1", 422, "Sidecar-Reason", "the total is negative"},
		{"nameless", `{"customer":""}`, "1", 422, "Sidecar-Reason", "the customer is missing"},
		{"trial", `{"test":true,"total":-1}`, "1", 200, "Sidecar-Action", "drop"},
		{"large", strings.Repeat("x", maxOrder+1), "1", 413, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(c.body))
			r.Header.Set("Nats-Num-Delivered", c.delivered)
			w := httptest.NewRecorder()
			receive(w, r)
			if w.Code != c.status || c.header != "" && w.Header().Get(c.header) != c.value {
				t.Errorf("%d %v", w.Code, w.Header())
			}
		})
	}
}

func TestHeaderOfOwnApp(t *testing.T) {
	r := running{
		nats: "nats://127.0.0.1:4222", app: withoutUser("http://me:hush@127.0.0.1:8080"), admin: "127.0.0.1:9090", adminBusy: "cannot have it",
		source: source{name: "S", subjects: []string{"it's.>"}}, dlq: "S_DLQ", store: store{dir: "/keep\x1b"}, own: true,
	}
	text := r.header(style{})
	for _, want := range []string{"http://redacted@127.0.0.1:8080  your app\n", `kept in /keep\x1b`, "cannot have it", `pub 'it'\''s.created' '{"order":"mine"}'`, "web page; /readyz", "dlq list --admin http://127.0.0.1:9090\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %q:\n%s", want, text)
		}
	}
	for _, not := range []string{"hush", "sample app", "bad", "\x1b"} {
		if strings.Contains(text, not) {
			t.Errorf("it has %q:\n%s", not, text)
		}
	}
	r.own, r.app, r.nats, r.source.subjects = false, "http://127.0.0.1:50000", "nats://127.0.0.1:54222", []string{"orders.>"}
	for line := range strings.Lines(text + r.header(style{})) {
		if len(line) > 81 {
			t.Errorf("wider than a terminal: %q", line)
		}
	}
}

// TestAppIsBack shows an app that comes back, and not one that is found at the start.
func TestAppIsBack(t *testing.T) {
	out := &output{}
	d := &demo{screen: newScreen(out, func() {})}
	changed := d.appChanged("http://127.0.0.1:8080")
	changed(true, nil)
	changed(false, http.ErrServerClosed)
	changed(true, nil)
	d.screen.close()
	if text := out.String(); strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "info  the app is back at http://127.0.0.1:8080\n") {
		t.Errorf("%q", text)
	}
}

func TestSummaryLine(t *testing.T) {
	l := newLedger()
	l.publishing(0)
	l.published(1, false)
	l.settled(&pipeline.Settled{Sequence: 1, Result: pipeline.ResultRetry})
	want := "-- 10s: 1 published, 0 ack, 1 retry, 0 duplicate, 0 dlq, 0 drop, 1 open --"
	if got := (lines{}).now(10*time.Second, l.counts()); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
