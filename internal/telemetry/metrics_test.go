package telemetry

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/jetsidecar/jetsidecar/internal/pipeline"
)

// served is what the operator's documentation says there is, with labels.
var served = map[string][]string{
	"sidecar_messages_total":             {"consumer", "stream", "verdict"},
	"sidecar_requests_total":             {"code", "consumer", "stream"},
	"sidecar_request_duration_seconds":   {"consumer", "stream"},
	"sidecar_delivery_latency_seconds":   {"consumer", "stream"},
	"sidecar_in_flight":                  {"consumer", "stream"},
	"sidecar_concurrency_limit":          {"consumer", "stream"},
	"sidecar_leased":                     {"consumer", "stream"},
	"sidecar_breaker_open":               {"consumer", "stream"},
	"sidecar_parked":                     {"consumer", "stream"},
	"sidecar_moved_total":                {"consumer", "stream"},
	"sidecar_pending":                    {"consumer", "stream"},
	"sidecar_ack_pending":                {"consumer", "stream"},
	"sidecar_max_ack_pending":            {"consumer", "stream"},
	"sidecar_consumer_bound":             {"consumer", "stream"},
	"sidecar_dlq_depth":                  {"consumer", "stream"},
	"sidecar_dlq_alert":                  {"consumer", "stream"},
	"sidecar_dlq_publish_failures_total": {"consumer", "stream"},
	"sidecar_headers_dropped_total":      {"consumer", "stream"},
	"sidecar_dedupe_errors_total":        {"consumer", "stream"},
	"sidecar_app_up":                     nil,
	"sidecar_nats_connected":             nil,
	"sidecar_build_info":                 {"commit", "goversion", "version"},
}

func telemetry(statuses ...pipeline.Status) *Telemetry {
	return New(Options{
		Statuses: func() []pipeline.Status { return statuses },
		AppUp:    func() bool { return true }, NATSConnected: func() bool { return false },
		Version: "v1.2.3", Commit: "abc",
	})
}

func TestMetricNamesAndLabels(t *testing.T) {
	tel := telemetry(pipeline.Status{Stream: "S", Consumer: "c", DLQEnabled: true})
	c := tel.Consumer("S", "c")
	c.Requested(200, time.Millisecond)
	families, err := tel.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	runtimes := 0
	for _, f := range families {
		name := f.GetName()
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			runtimes++
			continue
		}
		got[name] = true
		want, ok := served[name]
		if !ok {
			t.Errorf("%s is served and not in the list", name)
			continue
		}
		if f.GetHelp() == "" {
			t.Errorf("%s has no help", name)
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		if slices.Sort(labels); !slices.Equal(labels, want) {
			t.Errorf("%s has labels %v, want %v", name, labels, want)
		}
	}
	for name := range served {
		if !got[name] {
			t.Errorf("%s is not served", name)
		}
	}
	if runtimes < 10 {
		t.Errorf("%d metrics of Go and the process", runtimes)
	}
	problems, err := testutil.GatherAndLint(tel.registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

// expect compares the metrics named with their text.
func expect(t *testing.T, tel *Telemetry, want string, names ...string) {
	t.Helper()
	var samples strings.Builder
	rec := httptest.NewRecorder()
	tel.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for l := range strings.Lines(rec.Body.String()) {
		for _, n := range names {
			if strings.HasPrefix(l, n+"{") || strings.HasPrefix(l, n+" ") {
				samples.WriteString(l)
			}
		}
	}
	if samples.String() != want {
		t.Errorf("served:\n%swant:\n%s", samples.String(), want)
	}
}

func TestMessagesByVerdict(t *testing.T) {
	tel := telemetry()
	c := tel.Consumer("S", "c")
	for i, r := range results {
		for range i + 1 {
			c.Settled(&pipeline.Settled{Result: r, Latency: time.Duration(i) * time.Second})
		}
	}
	tel.Consumer("S", "c").Settled(&pipeline.Settled{Result: pipeline.ResultAck, Latency: -time.Hour}) // a clock that is behind
	tel.Consumer("T", "c")
	c.Settled(&pipeline.Settled{Result: "unheard of"})
	expect(t, tel, `sidecar_messages_total{consumer="c",stream="S",verdict="ack"} 2
sidecar_messages_total{consumer="c",stream="S",verdict="dlq"} 3
sidecar_messages_total{consumer="c",stream="S",verdict="drop"} 4
sidecar_messages_total{consumer="c",stream="S",verdict="duplicate"} 5
sidecar_messages_total{consumer="c",stream="S",verdict="retry"} 2
sidecar_messages_total{consumer="c",stream="T",verdict="ack"} 0
sidecar_messages_total{consumer="c",stream="T",verdict="dlq"} 0
sidecar_messages_total{consumer="c",stream="T",verdict="drop"} 0
sidecar_messages_total{consumer="c",stream="T",verdict="duplicate"} 0
sidecar_messages_total{consumer="c",stream="T",verdict="retry"} 0
`, "sidecar_messages_total")
	// 0 s twice, 2 s three times, 3 s four times, 4 s five times, no retry; the word unheard of ended its message too.
	expect(t, tel, `sidecar_delivery_latency_seconds_sum{consumer="c",stream="S"} 38
sidecar_delivery_latency_seconds_count{consumer="c",stream="S"} 15
sidecar_delivery_latency_seconds_sum{consumer="c",stream="T"} 0
sidecar_delivery_latency_seconds_count{consumer="c",stream="T"} 0
`, "sidecar_delivery_latency_seconds_sum", "sidecar_delivery_latency_seconds_count")
}

func TestRequestsByCode(t *testing.T) {
	tel := telemetry()
	c := tel.Consumer("S", "c")
	for _, status := range []int{0, 0, 100, 200, 200, 599, 503, -1, 1, 2, 99, 600, 999, 1 << 40} {
		c.Requested(status, 2*time.Second)
	}
	expect(t, tel, `sidecar_request_duration_seconds_sum{consumer="c",stream="S"} 28
sidecar_request_duration_seconds_count{consumer="c",stream="S"} 14
sidecar_requests_total{code="100",consumer="c",stream="S"} 1
sidecar_requests_total{code="200",consumer="c",stream="S"} 2
sidecar_requests_total{code="503",consumer="c",stream="S"} 1
sidecar_requests_total{code="599",consumer="c",stream="S"} 1
sidecar_requests_total{code="error",consumer="c",stream="S"} 2
sidecar_requests_total{code="other",consumer="c",stream="S"} 7
`, "sidecar_requests_total", "sidecar_request_duration_seconds_sum", "sidecar_request_duration_seconds_count")
}

func TestSeriesAreBounded(t *testing.T) {
	tel := telemetry()
	c := tel.Consumer("S", "c")
	for status := -1000; status < 3000; status++ {
		c.Requested(status, 0)
	}
	n, err := testutil.GatherAndCount(tel.registry, "sidecar_requests_total")
	if err != nil || n != 502 { // 100 to 599, error, other
		t.Errorf("%d series, %v; want 502", n, err)
	}
}

func TestCountersAndInFlight(t *testing.T) {
	tel := telemetry()
	c := tel.Consumer("S", "c")
	c.HeadersDropped(3)
	c.HeadersDropped(0)
	c.HeadersDropped(-1)
	c.DeadLetterFailed(1, io.EOF)
	c.DedupeFailed()
	c.DedupeFailed()
	c.InFlight(1)
	c.InFlight(1)
	c.InFlight(-1)
	expect(t, tel, `sidecar_dedupe_errors_total{consumer="c",stream="S"} 2
sidecar_dlq_publish_failures_total{consumer="c",stream="S"} 1
sidecar_headers_dropped_total{consumer="c",stream="S"} 3
sidecar_in_flight{consumer="c",stream="S"} 1
`, "sidecar_dedupe_errors_total", "sidecar_dlq_publish_failures_total", "sidecar_headers_dropped_total", "sidecar_in_flight")
}

func TestGaugesAreReadAtTheScrape(t *testing.T) {
	statuses := []pipeline.Status{
		{Stream: "S", Consumer: "a", Leased: 2, Pending: 10, AckPending: 5, MaxAckPending: 7, Bound: true, DLQEnabled: true, DLQDepth: 4, DLQAlert: true},
		{Stream: "S", Consumer: "b", Leased: 3, AckPending: 1, DLQDepth: 9, DLQAlert: true},
	}
	up := true
	tel := New(Options{
		Statuses: func() []pipeline.Status { return statuses }, AppUp: func() bool { return up },
		NATSConnected: func() bool { return !up },
	})
	names := []string{"sidecar_leased", "sidecar_pending", "sidecar_ack_pending", "sidecar_parked", "sidecar_max_ack_pending", "sidecar_consumer_bound", "sidecar_dlq_depth", "sidecar_dlq_alert", "sidecar_app_up", "sidecar_nats_connected"}
	expect(t, tel, `sidecar_ack_pending{consumer="a",stream="S"} 5
sidecar_ack_pending{consumer="b",stream="S"} 1
sidecar_app_up 1
sidecar_consumer_bound{consumer="a",stream="S"} 1
sidecar_consumer_bound{consumer="b",stream="S"} 0
sidecar_dlq_alert{consumer="a",stream="S"} 1
sidecar_dlq_depth{consumer="a",stream="S"} 4
sidecar_leased{consumer="a",stream="S"} 2
sidecar_leased{consumer="b",stream="S"} 3
sidecar_max_ack_pending{consumer="a",stream="S"} 7
sidecar_max_ack_pending{consumer="b",stream="S"} 0
sidecar_nats_connected 0
sidecar_parked{consumer="a",stream="S"} 3
sidecar_parked{consumer="b",stream="S"} 0
sidecar_pending{consumer="a",stream="S"} 10
sidecar_pending{consumer="b",stream="S"} 0
`, names...)
	statuses, up = statuses[1:], false
	expect(t, tel, `sidecar_ack_pending{consumer="b",stream="S"} 1
sidecar_app_up 0
sidecar_consumer_bound{consumer="b",stream="S"} 0
sidecar_leased{consumer="b",stream="S"} 3
sidecar_max_ack_pending{consumer="b",stream="S"} 0
sidecar_nats_connected 1
sidecar_parked{consumer="b",stream="S"} 0
sidecar_pending{consumer="b",stream="S"} 0
`, names...)
}

func TestNothingToReadIsLeftOut(t *testing.T) {
	expect(t, New(Options{}), "", "sidecar_leased", "sidecar_app_up", "sidecar_nats_connected")
}

func TestLabelsAreText(t *testing.T) {
	tel := telemetry(pipeline.Status{Stream: "\xff", Consumer: "c"})
	tel.Consumer("\xff", "c").InFlight(1)
	expect(t, tel, `sidecar_in_flight{consumer="c",stream="�"} 1
sidecar_leased{consumer="c",stream="�"} 0
`, "sidecar_in_flight", "sidecar_leased")
}

func TestABadMetricCostsNotTheScrape(t *testing.T) {
	var w output
	log, done := logger(t, &w, "info", "json")
	defer done()
	tel := New(Options{Log: log, AppUp: func() bool { return true }, Statuses: func() []pipeline.Status {
		return make([]pipeline.Status, 2) // the same labels twice
	}})
	rec := httptest.NewRecorder()
	tel.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if rec.Code != http.StatusOK || !strings.Contains(rec.Body.String(), "sidecar_app_up 1") {
		t.Errorf("status %d, the rest of the metrics is not served", rec.Code)
	}
	if !strings.Contains(w.String(), "metrics are incomplete") {
		t.Errorf("log: %q", w.String())
	}
}

func TestScrapesWhileCounting(t *testing.T) {
	tel := telemetry(pipeline.Status{Stream: "S", Consumer: "c"})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			c := tel.Consumer("S", "c")
			for i := range 1000 {
				c.Requested(100+i%500, 0)
				c.Settled(&pipeline.Settled{Result: pipeline.ResultAck})
			}
		})
	}
	for range 5 {
		if _, err := tel.registry.Gather(); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	expect(t, tel, `sidecar_messages_total{consumer="c",stream="S",verdict="ack"} 4000
sidecar_requests_total{code="200",consumer="c",stream="S"} 8
`, `sidecar_messages_total{consumer="c",stream="S",verdict="ack"}`, `sidecar_requests_total{code="200",consumer="c",stream="S"}`)
}

func benchmarkLogger(b *testing.B, level, format string) *slog.Logger {
	log, done, err := NewLogger(io.Discard, level, format)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(done)
	return log
}

func BenchmarkSettled(b *testing.B) {
	s := &pipeline.Settled{
		Subject: "orders.new.eu", Sequence: 123456, Delivered: 3, Result: pipeline.ResultRetry, Status: 503,
		Delay: 1534 * time.Millisecond, Duration: 2345 * time.Microsecond, Latency: time.Second, Error: "service unavailable",
	}
	for _, c := range []struct{ name, level, format string }{{"json", "info", "json"}, {"text", "info", "text"}, {"off", "error", "json"}} {
		b.Run(c.name, func(b *testing.B) {
			consumer := New(Options{Log: benchmarkLogger(b, c.level, c.format)}).Consumer("ORDERS", "orders-worker")
			b.ReportAllocs()
			for b.Loop() {
				consumer.Settled(s)
			}
		})
	}
}

func BenchmarkRequested(b *testing.B) {
	c := New(Options{}).Consumer("ORDERS", "orders-worker")
	b.ReportAllocs()
	for b.Loop() {
		c.Requested(200, 3*time.Millisecond)
	}
}

func TestSettledAllocatesLittle(t *testing.T) {
	log, done, err := NewLogger(&bytes.Buffer{}, "info", "json")
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	c := New(Options{Log: log}).Consumer("S", "c")
	s := &pipeline.Settled{Subject: "s", Result: pipeline.ResultAck, Delay: time.Second, Duration: time.Second}
	if n := testing.AllocsPerRun(100, func() { c.Settled(s) }); n > lineAllocations {
		t.Errorf("%v allocations for a line, want %d at most", n, lineAllocations)
	}
	if n := testing.AllocsPerRun(100, func() { c.Requested(200, time.Second); c.InFlight(1) }); n > 0 {
		t.Errorf("%v allocations for a request, want none", n)
	}
}
