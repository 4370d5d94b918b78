package test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// once is a durable that delivers each message once.
func (w *world) once() {
	w.t.Helper()
	w.durableOf(func(c *natsjs.ConsumerConfig) { c.MaxDeliver = 1 })
}

// few is a consumer of few leases, with so much time for a stop.
func few(stop time.Duration, batch int) option {
	return func(c *config.Config) {
		c.ShutdownTimeout = stop
		one := &c.Consumers[0]
		one.Concurrency, one.Prefetch, one.Batch.MaxMessages = 2, 6, batch
	}
}

func noRetryStream(c *config.Config) { c.Consumers[0].RetryStream.Enabled = false }

// leases publishes messages and waits until there are calls, and leases beyond.
func (w *world) leases(n int) {
	w.t.Helper()
	for range n {
		w.publish("orders.new", "x")
	}
	eventually(w.t, func() bool { return w.app.inFlight() == 2 && w.consumer(durable).NumAckPending >= n/2 }, text("two calls, and leases beyond"))
}

// noneDead holds that no message was dead-lettered by being handed back.
func (w *world) noneDead() {
	w.t.Helper()
	if n := len(w.dead()); n != 0 {
		w.t.Errorf("%d dead letters by hand-backs", n)
	}
}

// Hand-backs dead-letter nothing, also where the server delivers a message no more: neither what is prefetched nor what is cut off.
func TestHandBacksOfTheLastDelivery(t *testing.T) {
	for _, retention := range []natsjs.RetentionPolicy{natsjs.LimitsPolicy, natsjs.WorkQueuePolicy} {
		t.Run(fmt.Sprint(retention), func(t *testing.T) {
			w := newWorld(t, func(c *natsjs.StreamConfig) { c.Retention = retention })
			w.once()
			w.app.on(always(reply{status: 200, gate: make(chan struct{})}))
			s := w.running(few(time.Second, 1))
			w.leases(8)
			w.must(s.stop())
			s = w.running(few(time.Second, 1))
			eventually(t, func() bool { return w.app.inFlight() > 0 }, text("a call"))
			w.must(s.stop())
			w.app.on(always(reply{status: 200}))
			w.running(few(time.Second, 1))
			w.balance()
			w.noneDead()
		})
	}
}

// What must not be handed back is worked off at a stop.
func TestStopWorksOffTheLastDelivery(t *testing.T) {
	for _, batch := range []int{1, 2} {
		t.Run(fmt.Sprint("batches of ", batch), func(t *testing.T) {
			w := newWorld(t)
			w.once()
			open := make(chan struct{})
			w.app.on(always(reply{status: 200, gate: open}))
			balance := w.balance
			if batch > 1 {
				a := w.batchApp(func(*batchCall) (reply, map[string]verdict) { return reply{status: 200, gate: open}, nil })
				balance = func() { a.balance(false) }
			}
			s := w.running(few(20*time.Second, batch), noRetryStream)
			w.leases(8)
			s.stopping()
			close(open)
			if err := s.stop(); err != nil {
				t.Errorf("the stop: %v", err)
			}
			if n := w.consumer(durable).NumAckPending; n != 0 {
				t.Errorf("%d are pending", n)
			}
			if n := w.app.peak(); n != 2 {
				t.Errorf("%d calls at a time", n)
			}
			w.running(few(20*time.Second, batch), noRetryStream) // for what was not leased
			balance()
			w.noneDead()
		})
	}
}

// So is what waits for a connection.
func TestStopWorksOffWhatWaitsForTheApp(t *testing.T) {
	w := newWorld(t)
	w.once()
	s := w.running(few(20*time.Second, 1), noRetryStream, func(c *config.Config) { c.App.Ready.Interval = time.Hour }) // the message finds out
	w.app.down()
	w.publish("orders.new", "x")
	s.waitCheck("app", false)
	eventually(t, func() bool { return w.consumer(durable).NumAckPending == 1 }, text("the message to be leased"))
	s.stopping()
	w.app.up()
	if err := s.stop(); err != nil {
		t.Errorf("the stop: %v", err)
	}
	w.balance()
	w.noneDead()
}

// So is what has to be tried alone and waits behind a batch.
func TestStopWorksOffWhatWaitsBehindABatch(t *testing.T) {
	w := newWorld(t)
	w.durableOf(func(c *natsjs.ConsumerConfig) { c.MaxDeliver = 5 })
	past := w.publish("orders.past", "x")
	ctx, cancel := within()
	defer cancel()
	cons, err := w.js.Consumer(ctx, stream, durable)
	w.must(err)
	var held natsjs.Msg // delivered four times, and once more when it is given back
	for n := range 4 {
		batch, err := cons.Fetch(1)
		w.must(err)
		for m := range batch.Messages() {
			if held = m; n < 3 {
				w.must(m.Nak())
			}
		}
	}
	first, second := make(chan struct{}), make(chan struct{})
	w.app.on(func(c *call) reply {
		switch { // batches, but for the one that is tried alone
		case strings.Contains(c.body, "orders.first"):
			return reply{status: 200, gate: first}
		case strings.Contains(c.body, "orders.second"):
			return reply{status: 200, gate: second}
		}
		return reply{status: 200}
	})
	w.publish("orders.first", "x")
	s := w.running(few(20*time.Second, 4), noRetryStream, consumer(func(c *config.Consumer) { c.Concurrency, c.MaxDeliver = 1, 3 }))
	eventually(t, func() bool { return w.app.inFlight() == 1 }, text("the first call"))
	calls := func() (n int) {
		for _, c := range w.app.all() {
			if c.seq == past || strings.Contains(c.body, "orders.past") {
				n++
			}
		}
		return n
	}
	w.publish("orders.second", "x")
	eventually(t, func() bool { return w.consumer(durable).Delivered.Consumer == 6 }, text("the second to be leased"))
	w.must(held.Nak())
	eventually(t, func() bool { return w.consumer(durable).Delivered.Consumer == 7 }, text("all to be leased"))
	close(first)
	eventually(t, func() bool { return w.app.count() == 2 }, text("the second call"))
	s.stopping()
	close(second)
	if err := s.stop(); err != nil {
		t.Errorf("the stop: %v", err)
	}
	if n := calls(); n != 1 {
		t.Errorf("%d calls of what waited", n)
	}
	if n := w.consumer(durable).NumAckPending; n != 0 {
		t.Errorf("%d are pending", n)
	}
	w.noneDead()
}
