package test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// Each check fails with what it looks at, alone of its kind, and recovers; the process is alive all the while.
func TestReadyz(t *testing.T) {
	w := newWorld(t)
	s := w.running()
	for _, c := range s.admin.readiness().Checks {
		want := check{Name: c.Name, OK: true}
		if c.Name == "consumer" || c.Name == "dlq" {
			want.Stream, want.Consumer = stream, durable
		}
		if c != want {
			t.Errorf("%+v, want %+v", c, want)
		}
	}
	if n := len(s.admin.readiness().Checks); n != 4 {
		t.Errorf("%d checks", n)
	}
	for _, c := range []struct {
		name         string
		fail, repair func()
	}{
		{"app", w.app.down, w.app.up},
		{"nats", w.nats.Shutdown, func() { w.must(w.nats.Restart()) }},
		{"consumer", func() { w.anew(stream) }, func() { w.makeStream() }},
	} {
		c.fail()
		if detail := s.waitCheck(c.name, false); detail == "" {
			t.Errorf("%s fails without a detail", c.name)
		}
		if ready, live := s.admin.status("/readyz"), s.admin.status("/livez"); ready != 503 || live != 200 {
			t.Errorf("%s away: /readyz %d, /livez %d", c.name, ready, live)
		}
		if s.admin.readiness().Ready {
			t.Errorf("%s away: the body says ready", c.name)
		}
		c.repair()
		s.waitCheck(c.name, true)
		s.waitReady()
	}
	w.publish("orders.a", "x")
	w.balance()
}

func TestNoDLQHasNoCheck(t *testing.T) {
	w := newWorld(t)
	s := w.running(consumer(func(c *config.Consumer) { c.DLQ.Enabled = false }))
	if c, found := s.admin.readiness().check("dlq"); found {
		t.Errorf("%+v", c)
	}
}

func TestMetrics(t *testing.T) {
	w := newWorld(t)
	open := make(chan struct{})
	w.app.on(func(c *call) reply {
		return map[string]reply{
			"orders.good":  {status: 200},
			"orders.bad":   {status: 418},
			"orders.drop":  {status: 200, header: map[string]string{"Sidecar-Action": "drop"}},
			"orders.retry": {status: 503, header: map[string]string{"Retry-After": "300"}},
			"orders.reset": {reset: true},
			"orders.held":  {status: 200, gate: open},
		}[c.subject]
	})
	s := w.running(consumer(func(c *config.Consumer) { c.Retry.Initial, c.Retry.Max = 3e11, 3e11 }))
	for _, subject := range []string{"good", "good", "bad", "drop", "retry", "reset", "held"} {
		w.publish("orders."+subject, "x")
	}
	labels := `{consumer="worker",stream="ORDERS"`
	for series, want := range map[string]float64{
		"sidecar_messages_total" + labels + `,verdict="ack"`:       2,
		"sidecar_messages_total" + labels + `,verdict="dlq"`:       1,
		"sidecar_messages_total" + labels + `,verdict="drop"`:      1,
		"sidecar_messages_total" + labels + `,verdict="retry"`:     2,
		"sidecar_messages_total" + labels + `,verdict="duplicate"`: 0,
		`sidecar_requests_total{code="200"`:                        3,
		`sidecar_requests_total{code="418"`:                        1,
		`sidecar_requests_total{code="503"`:                        1,
		`sidecar_requests_total{code="error"`:                      1,
		"sidecar_request_duration_seconds_count":                   6,
		"sidecar_delivery_latency_seconds_count":                   4,
		"sidecar_in_flight":                                        1,
		"sidecar_parked":                                           2,
		"sidecar_pending":                                          0,
		"sidecar_ack_pending":                                      3,
		"sidecar_max_ack_pending":                                  10000,
		"sidecar_consumer_bound":                                   1,
		"sidecar_dlq_alert":                                        0,
		"sidecar_dlq_publish_failures_total":                       0,
		"sidecar_headers_dropped_total":                            0,
		"sidecar_dedupe_errors_total":                              0,
		"sidecar_app_up":                                           1,
		"sidecar_nats_connected":                                   1,
		"sidecar_build_info":                                       1,
		"sidecar_dlq_depth":                                        1,
	} {
		s.waitMetric(series, func(v float64) bool { return v == want })
	}
	if body := s.admin.text("/metrics"); strings.Contains(body, "orders.") {
		t.Error("a subject is in the metrics")
	}
	close(open)
	w.app.down()
	s.waitMetric("sidecar_app_up", func(v float64) bool { return v == 0 })
	w.nats.Shutdown()
	s.waitMetric("sidecar_nats_connected", func(v float64) bool { return v == 0 })
}

// One line for each settled message, whatever the subject holds.
func TestLogLine(t *testing.T) {
	w := newWorld(t)
	w.app.on(func(c *call) reply {
		if c.nth == 1 {
			return reply{status: 503, header: map[string]string{"Sidecar-Reason": "busy"}}
		}
		return reply{status: 422, header: map[string]string{"Sidecar-Reason": "bad"}}
	})
	s := w.running()
	seq := w.publish("orders.a", "x")
	other := w.publish("orders.b", "x")
	w.balance()
	s.log.waitSettled(t, other, 2)
	lines := s.log.waitSettled(t, seq, 2)
	if len(lines) != 2 || len(s.log.lines("settled")) != 4 {
		t.Fatalf("%d lines of the message, %d in all", len(lines), len(s.log.lines("settled")))
	}
	for i, want := range []map[string]any{
		{"level": "INFO", "verdict": "retry", "reason": "", "status": 503.0, "delivered": 1.0, "error": "busy"},
		{"level": "WARN", "verdict": "dlq", "reason": "rejected", "status": 422.0, "delivered": 2.0, "delay": "0s", "error": "bad"},
	} {
		want["stream"], want["consumer"], want["subject"], want["sequence"] = stream, durable, "orders.a", float64(seq)
		for field, v := range want {
			if lines[i][field] != v {
				t.Errorf("line %d: %s is %v, want %v", i+1, field, lines[i][field], v)
			}
		}
		for _, field := range []string{"delay", "duration", "time"} {
			if fmt.Sprint(lines[i][field]) == "" || lines[i][field] == nil {
				t.Errorf("line %d has no %s: %v", i+1, field, lines[i])
			}
		}
	}
}
