package test

import (
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// badAndGood rejects what is bad and takes the rest.
func badAndGood(c *call) reply {
	if c.subject == "orders.bad" {
		return reply{status: 400, body: "bad"}
	}
	return reply{status: 200}
}

// heldBack holds what is promised while the DLQ cannot take a message: it is tried on, not called again and not settled;
// others flow, and health and metrics say so.
func (w *world) heldBack(s *sidecar, seq uint64) {
	w.t.Helper()
	s.waitMetric("sidecar_dlq_publish_failures_total", atLeast(2))
	s.waitCheck("dlq", false)
	if code := s.admin.status("/readyz"); code != 503 {
		w.t.Errorf("/readyz is %d", code)
	}
	for range 20 {
		w.publish("orders.good", "x")
	}
	eventually(w.t, func() bool { return s.admin.verdicts("ack") >= 20 }, text("others to flow"))
	before := s.admin.metric("sidecar_dlq_publish_failures_total")
	s.waitMetric("sidecar_dlq_publish_failures_total", atLeast(before+1))
	if n := len(w.app.of(seq)); n != 1 {
		w.t.Errorf("the app was called %d times", n)
	}
	if info := w.consumer(durable); info.AckFloor.Stream >= seq || info.NumAckPending == 0 {
		w.t.Errorf("the message was settled: %+v", info)
	}
}

// recovered holds that after it the message is stored once, without another call.
func (w *world) recovered(s *sidecar, seq uint64) {
	w.t.Helper()
	w.balance()
	if n := len(w.app.of(seq)); n != 1 {
		w.t.Errorf("the app was called %d times", n)
	}
	if e := w.deadOf(seq); e.header.Get("Dlq-Deliveries") != "1" || e.header.Get("Dlq-Response") != "bad" {
		w.t.Errorf("the cause was not kept: %v", e.header)
	}
	s.waitReady()
}

func TestDLQFull(t *testing.T) {
	w := newWorld(t)
	limit := func(n int64) func(*natsjs.StreamConfig) { return func(c *natsjs.StreamConfig) { c.MaxMsgs = n } }
	w.dlqOf(limit(1))
	w.app.on(badAndGood)
	s := w.running()
	w.publish("orders.bad", "first")
	w.waitDead(1)
	held := w.publish("orders.bad", "second")
	w.heldBack(s, held)
	w.dlqOf(limit(100))
	w.recovered(s, held)
}

func TestDLQMissing(t *testing.T) {
	w := newWorld(t)
	w.app.on(badAndGood)
	s := w.sidecar(consumer(func(c *config.Consumer) { c.DLQ.Create = false }))
	s.waitCheck("dlq", false)
	held := w.publish("orders.bad", "x")
	w.heldBack(s, held)
	if w.streamInfo(dlq) != nil {
		t.Error("the DLQ stream was made")
	}
	w.dlqOf()
	w.recovered(s, held)
}

// A DLQ stream that is deleted under way is made again.
func TestDLQDeleted(t *testing.T) {
	w := newWorld(t)
	w.app.on(badAndGood)
	w.running()
	ctx, cancel := within()
	defer cancel()
	w.must(w.js.DeleteStream(ctx, dlq))
	seq := w.publish("orders.bad", "x")
	w.balance()
	if n := len(w.app.of(seq)); n != 1 {
		t.Errorf("the app was called %d times", n)
	}
}

// A work queue keeps its message until the DLQ has it.
func TestWorkQueueKeepsItsMessage(t *testing.T) {
	w := newWorld(t, func(c *natsjs.StreamConfig) { c.Retention = natsjs.WorkQueuePolicy })
	w.app.on(badAndGood)
	s := w.sidecar(consumer(func(c *config.Consumer) { c.DLQ.Create = false }))
	held := w.publish("orders.bad", "x")
	w.heldBack(s, held)
	if _, ok := w.message(stream, held); !ok {
		t.Error("the message is gone")
	}
	w.dlqOf()
	w.recovered(s, held)
	if n := w.streamInfo(stream).State.Msgs; n != 0 {
		t.Errorf("%d messages are left", n)
	}
}

// A sidecar that stops while the DLQ is away hands its message on.
func TestStopWhileTheDLQIsAway(t *testing.T) {
	w := newWorld(t)
	w.app.on(badAndGood)
	away := consumer(func(c *config.Consumer) { c.DLQ.Create = false })
	s := w.sidecar(away)
	seq := w.publish("orders.bad", "x")
	s.waitMetric("sidecar_dlq_publish_failures_total", atLeast(1))
	w.must(s.stop())
	w.dlqOf()
	w.running(away)
	w.balance()
	w.deadOf(seq)
}

// Many that wait for the DLQ keep nobody from flowing, and are all stored once it takes them.
func TestDLQFullForMany(t *testing.T) {
	w := newWorld(t)
	limit := func(n int64) func(*natsjs.StreamConfig) { return func(c *natsjs.StreamConfig) { c.MaxMsgs = n } }
	w.dlqOf(limit(5))
	w.app.on(badAndGood)
	s := w.running(consumer(func(c *config.Consumer) { c.Concurrency, c.Prefetch = 2, 2 }))
	for range 60 {
		w.publish("orders.bad", "x")
	}
	s.waitMetric("sidecar_dlq_publish_failures_total", atLeast(2))
	for range 20 {
		w.publish("orders.good", "x")
	}
	eventually(t, func() bool { return s.admin.verdicts("ack") == 20 }, text("others to flow"))
	if n := len(w.dead()); n != 5 {
		t.Errorf("%d entries, the limit is 5", n)
	}
	w.dlqOf(limit(1000))
	w.balance()
	if n := w.app.count(); n != 80 {
		t.Errorf("%d calls for 80 messages", n)
	}
}
