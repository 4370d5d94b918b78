package test

import (
	"fmt"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// failsPoison answers poison with 503 and takes the rest.
func failsPoison(c *call) reply {
	if c.body == "poison" {
		return reply{status: 503}
	}
	return reply{status: 200}
}

// deliver has everything in the stream delivered n times without a verdict, as by processes that die or stop.
func (w *world) deliver(n int) {
	w.t.Helper()
	if n == 0 {
		return
	}
	ctx, cancel := within()
	defer cancel()
	cons, err := w.js.Consumer(ctx, stream, durable)
	w.must(err)
	for want := uint64(len(w.published) * n); w.consumer(durable).Delivered.Consumer < want; {
		batch, err := cons.FetchNoWait(len(w.published))
		w.must(err)
		for m := range batch.Messages() {
			w.must(m.Nak())
		}
	}
	eventually(w.t, func() bool { return w.consumer(durable).NumAckPending == len(w.published) }, text("the naks to be known"))
}

// Poison that fills every worker, whether at its limit or past it, does not keep good messages that come later from being pulled: they
// close the breaker.
func TestPoisonAtEveryWorkerDoesNotLockOut(t *testing.T) {
	for _, delivered := range []int{0, 1} {
		for _, n := range []int{4, 7} {
			t.Run(fmt.Sprint(n, " poisons delivered ", delivered), func(t *testing.T) {
				w := newWorld(t)
				w.app.on(failsPoison)
				w.durableOf(func(c *natsjs.ConsumerConfig) { c.MaxDeliver = -1 })
				for range n {
					w.publish("orders.new", "poison")
				}
				w.deliver(delivered)
				s := w.sidecar(breaking(func(c *config.Consumer) { c.MaxDeliver, c.Concurrency = 1, 4 }))
				s.waitMetric("sidecar_breaker_open", atLeast(1))
				good := w.publish("orders.new", "good")
				eventually(t, func() bool { return len(w.app.of(good)) == 1 }, text("a good one to be called"))
				eventually(t, func() bool { w.publish("orders.new", "good"); return len(w.dead()) == n }, text("the poison to be dead-lettered while good ones come"))
				w.waitDone()
				w.balance()
			})
		}
	}
}
