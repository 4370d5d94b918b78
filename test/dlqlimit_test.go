package test

import (
	"fmt"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// entries is a limit of a DLQ stream.
func entries(n int64) func(*natsjs.StreamConfig) {
	return func(c *natsjs.StreamConfig) { c.MaxMsgs = n }
}

// On a durable with a limit of its own a dead letter spends no delivery that it has not got while it waits for the DLQ: the server
// would give up on it, and its cause would be lost.
func TestDLQFullOnALimitedDurable(t *testing.T) {
	for _, manage := range []string{"create", "none"} {
		for _, limit := range []int{1, 2} {
			t.Run(fmt.Sprint(manage, " ", limit), func(t *testing.T) {
				w := newWorld(t)
				w.dlqOf(entries(1))
				w.durableOf(func(c *natsjs.ConsumerConfig) { c.MaxDeliver = limit })
				w.app.on(badAndGood)
				s := w.running(consumer(func(c *config.Consumer) { c.Manage = manage }))
				w.publish("orders.bad", "first")
				w.waitDead(1)
				held := w.publish("orders.bad", "second")
				w.heldBack(s, held)
				w.dlqOf(entries(100))
				w.recovered(s, held)
			})
		}
	}
}

// What the server gives up on while its dead letter waits for the DLQ keeps its cause.
func TestGivenUpWhileItWaitsForTheDLQ(t *testing.T) {
	w := newWorld(t)
	w.dlqOf(entries(1))
	w.durableOf(func(c *natsjs.ConsumerConfig) { c.MaxDeliver = 100 })
	w.app.on(badAndGood)
	s := w.running()
	w.publish("orders.bad", "first")
	w.waitDead(1)
	held := w.publish("orders.bad", "second")
	s.waitMetric("sidecar_dlq_publish_failures_total", atLeast(3)) // so that it waits for a second and more
	ctx, cancel := within()
	defer cancel()
	lowered := w.consumer(durable).Config
	lowered.MaxDeliver = 1
	_, err := w.js.UpdateConsumer(ctx, stream, lowered)
	w.must(err)
	before := s.admin.metric("sidecar_dlq_publish_failures_total")
	eventually(t, func() bool {
		return w.streamInfo("sidecar-advisories").State.LastSeq > 0 || s.admin.metric("sidecar_dlq_publish_failures_total") >= before+3
	}, text("the server gives up, or it was leased just then and still is"))
	w.dlqOf(entries(100))
	e := w.deadOf(held)
	w.recovered(s, held)
	if e.header.Get("Dlq-Reason") != "rejected" {
		t.Errorf("reason %s", e.header.Get("Dlq-Reason"))
	}
}
