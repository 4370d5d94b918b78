package test

import (
	"fmt"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// A stream that is purged under way: what the app works on is finished, what waits here is called, what is gone is gone, and
// what comes after flows.
func TestStreamPurgedUnderWay(t *testing.T) {
	for _, retention := range []natsjs.RetentionPolicy{natsjs.LimitsPolicy, natsjs.WorkQueuePolicy} {
		t.Run(retention.String(), func(t *testing.T) {
			w := newWorld(t, func(c *natsjs.StreamConfig) { c.Retention = retention })
			open := make(chan struct{})
			w.app.on(func(*call) reply { return reply{status: 200, gate: open} })
			s := w.running(consumer(func(c *config.Consumer) { c.Concurrency, c.Prefetch, c.AckWait = 2, 2, shortAckWait }))
			for range 20 {
				w.publish("orders.a", "before")
			}
			eventually(t, func() bool { return w.app.inFlight() == 2 && w.consumer(durable).NumAckPending == 4 }, text("two calls, and two that wait"))
			w.purge()
			w.published = nil
			close(open)
			for range 20 {
				w.publish("orders.a", "after")
			}
			w.waitDone()
			after := map[uint64]int{}
			for _, c := range w.app.all() {
				after[c.seq]++
			}
			for _, seq := range w.published {
				if after[seq] != 1 {
					t.Errorf("message %d was called %d times", seq, after[seq])
				}
			}
			if n := len(w.app.all()); n < 22 || n > 24 {
				t.Errorf("%d calls", n)
			}
			if s.admin.status("/readyz") != 200 {
				t.Errorf("not ready: %s", s.admin.text("/readyz"))
			}
		})
	}
}

// A stream whose subjects and limits are edited under way is served on, with what it still has.
func TestStreamEditedUnderWay(t *testing.T) {
	w := newWorld(t)
	w.app.on(func(c *call) reply {
		if c.seq%7 == 0 && c.nth == 1 {
			return reply{status: 503}
		}
		return reply{status: 200, delay: 2 * time.Millisecond}
	})
	s := w.running()
	load := func(subject string) {
		for i := range 30 {
			w.publish(subject, "x", fmt.Sprintf("Nats-Msg-Id: %s-%d-%d", subject, i, len(w.published)))
		}
	}
	load("orders.a")
	w.makeStream(func(c *natsjs.StreamConfig) { c.Subjects = []string{"orders.>", "bills.>"} })
	load("bills.a")
	w.makeStream(func(c *natsjs.StreamConfig) { c.Subjects = []string{"bills.>"} })
	load("bills.b")
	w.waitDone()
	w.makeStream(func(c *natsjs.StreamConfig) { c.Subjects, c.MaxMsgs, c.MaxAge = []string{"bills.>"}, 10, time.Hour })
	for range 5 { // one at a time: else the limit may take what was not delivered yet
		w.publish("bills.c", "x")
		w.waitDone()
	}
	w.makeStream(func(c *natsjs.StreamConfig) { c.Description = "all is well" })
	load("orders.b")
	w.balance()
	s.waitReady()
}

// A limit that takes messages before they are called takes no other ones along: the server has them no more.
func TestStreamShrunkUnderWay(t *testing.T) {
	w := newWorld(t)
	open := make(chan struct{})
	w.app.on(func(*call) reply { return reply{status: 200, gate: open} })
	w.running(consumer(func(c *config.Consumer) { c.Concurrency, c.Prefetch, c.AckWait = 2, 2, shortAckWait }))
	for range 50 {
		w.publish("orders.a", "x")
	}
	eventually(t, func() bool { return w.app.inFlight() == 2 }, text("two calls"))
	w.makeStream(func(c *natsjs.StreamConfig) { c.MaxMsgs = 10 })
	close(open)
	w.published = w.published[40:]
	w.waitDone()
	for _, seq := range w.published {
		if n := len(w.app.of(seq)); n != 1 {
			t.Errorf("message %d was called %d times", seq, n)
		}
	}
	if dead := w.dead(); len(dead) > 0 {
		t.Errorf("%d entries in the DLQ", len(dead))
	}
}
