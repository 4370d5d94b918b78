package test

import (
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

// rejecting is an app that takes what is good alone.
func rejecting(c *call) reply {
	if c.subject == "orders.good" {
		return reply{status: 200}
	}
	return reply{status: 422, body: "bad"}
}

// partOfTheDLQ holds what is promised where the DLQ takes the entries of no message of orders.held, and all others: others flow however many
// of them there are, and health and the log say what is held back.
func (w *world) partOfTheDLQ(s *sidecar) {
	w.t.Helper()
	failures := s.admin.metric("sidecar_dlq_publish_failures_total")
	const n = 400
	for i := range n {
		switch {
		case i%20 == 0:
			w.publish("orders.held", "x")
		case i%2 == 1:
			w.publish("orders.bad", "x")
		default:
			w.publish("orders.good", "x")
		}
	}
	dwindles(w.t, func() int {
		return max(n*9/20-int(s.admin.verdicts("ack")), 0) + max(n/2-int(s.admin.verdicts("dlq")), 0)
	}, func() string {
		return "others to flow: " + s.admin.text("/readyz") + "\n" + s.log.end()
	})
	s.waitMetric("sidecar_dlq_publish_failures_total", atLeast(failures+n/20))
	s.waitTold("dlq", true, "orders.held", "is held back")
	if text := s.log.String(); strings.Count(text, "the dlq cannot take an entry") > 3 || strings.Contains(text, "takes entries again") {
		w.t.Errorf("the log is full of it:\n%s", s.log.end())
	}
}

// With a user that may not publish the entries of one subject.
func TestOneSubjectOfTheDLQDenied(t *testing.T) {
	w := newWorldOn(t, localnats.Options{Config: permitted(`"dlq.ORDERS.worker.orders.held"`)})
	w.app.on(rejecting)
	s := w.running(some, consumer(func(c *config.Consumer) { c.MaxAckPending = 40 }))
	w.partOfTheDLQ(s)
	w.must(w.nats.Reload(permitted()))
	w.balance()
	if calls := w.app.count(); calls != 400 {
		t.Errorf("%d calls for 400 messages", calls)
	}
}

// With a DLQ stream that takes so many entries a subject.
func TestOneSubjectOfTheDLQFull(t *testing.T) {
	w := newWorld(t)
	limit := func(n int64) func(*natsjs.StreamConfig) {
		return func(c *natsjs.StreamConfig) { c.DiscardNewPerSubject, c.MaxMsgsPerSubject = true, n }
	}
	w.dlqOf(limit(200))
	w.app.on(rejecting)
	s := w.running(consumer(func(c *config.Consumer) { c.MaxAckPending = 40 }))
	for range 200 {
		w.publish("orders.held", "x")
	}
	w.waitDead(200)
	w.partOfTheDLQ(s)
	w.dlqOf(limit(1000))
	w.balance()
	if calls := w.app.count(); calls != 600 {
		t.Errorf("%d calls for 600 messages", calls)
	}
}

// What the server refuses by name is not stored: a stop hands it back, and is clean.
func TestStopWithADeadLetterDenied(t *testing.T) {
	for _, order := range []string{"none", "subject"} {
		t.Run(order, func(t *testing.T) {
			w := newWorldOn(t, localnats.Options{Config: permitted(`"dlq.>"`)})
			w.app.on(rejecting)
			s := w.running(some, consumer(func(c *config.Consumer) { c.Order = order }), func(c *config.Config) { c.ShutdownTimeout = 3 * time.Second })
			for range 20 {
				w.publish("orders.held", "x")
			}
			s.waitMetric("sidecar_dlq_publish_failures_total", atLeast(3))
			if detail := s.waitTold("dlq", false, "dlq.ORDERS.worker.orders.held"); strings.Contains(detail, "may be stored") {
				t.Errorf("/readyz says %q", detail)
			}
			if err := s.stop(); err != nil {
				t.Errorf("the stop: %v", err)
			}
			w.running()
			w.balance()
		})
	}
}

// With an order a key waits for its dead letter: once it may be stored, that is soon.
func TestOneSubjectOfTheDLQDeniedWithAnOrder(t *testing.T) {
	w := newWorldOn(t, localnats.Options{Config: permitted(`"dlq.ORDERS.worker.orders.held"`)})
	w.app.on(rejecting)
	s := w.running(some, consumer(func(c *config.Consumer) { c.Order = "subject" }))
	for range 20 {
		w.publish("orders.held", "x")
		w.publish("orders.bad", "x")
	}
	w.waitDead(20)
	s.waitMetric("sidecar_dlq_publish_failures_total", atLeast(6)) // five pauses, of 8 s together
	w.must(w.nats.Reload(permitted()))
	w.balance()
	if calls := w.app.count(); calls != 40 {
		t.Errorf("%d calls for 40 messages", calls)
	}
}
