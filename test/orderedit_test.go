package test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// slowly is an app that takes some time.
func slowly(c *call) reply { return reply{status: 200, delay: 20 * time.Millisecond} }

// A durable that is deleted under way is made anew by the sidecar, after what was done in a row; the order stays, and nothing is called again.
func TestOrderOverADeletedDurable(t *testing.T) {
	w := newWorld(t)
	w.app.on(slowly)
	s := w.running(ordered("subject"))
	for range 3 {
		until := w.app.count() + 15
		w.publishKeys(4, 10)
		eventually(t, func() bool { return w.app.count() >= until }, text("calls"))
		w.try("delete the durable", func(ctx context.Context) error { return w.js.DeleteConsumer(ctx, stream, durable) })
		eventually(t, func() bool { return len(s.log.lines("the durable is lost, looking for it")) > 0 }, text("the sidecar to notice"))
	}
	w.balance()
	w.inOrder(bySubject)
}

// A stream that is deleted and made anew begins anew, in order.
func TestOrderOverAStreamMadeAnew(t *testing.T) {
	w := newWorld(t)
	w.app.on(slowly)
	w.running(ordered("subject"))
	w.publishKeys(4, 30)
	eventually(t, func() bool { return w.app.count() >= 20 }, text("calls"))
	w.anew(stream)
	w.published = nil
	w.makeStream()
	const messages = 100
	for i := range messages {
		w.publish(fmt.Sprint("orders.k", i%4), "anew")
	}
	var calls []call
	eventually(t, func() bool {
		calls = slices.DeleteFunc(w.app.all(), func(c call) bool { return c.body != "anew" || c.ended.IsZero() })
		return len(calls) == messages
	}, text("all of the new stream to be called"))
	last := map[string]call{}
	for _, c := range calls {
		if before := last[c.subject]; c.seq <= before.seq || c.begun.Before(before.ended) {
			t.Errorf("of %s, %d was called after %d", c.subject, c.seq, before.seq)
		}
		last[c.subject] = c
	}
}

// A durable may be edited under way: its filter, what it lets be pending, its priority group.
func TestOrderOverEdits(t *testing.T) {
	w := newWorld(t)
	w.app.on(slowly)
	w.running(ordered("subject"))
	for i, edit := range []func(c *natsjs.ConsumerConfig){
		func(c *natsjs.ConsumerConfig) {
			c.FilterSubjects = []string{"orders.k0", "orders.k1", "orders.k2", "orders.k3"}
		},
		func(c *natsjs.ConsumerConfig) { c.MaxAckPending = 3 },
		func(c *natsjs.ConsumerConfig) {
			c.PriorityPolicy, c.PriorityGroups, c.PinnedTTL = natsjs.PriorityPolicyNone, nil, 0
		},
		func(c *natsjs.ConsumerConfig) {
			c.PriorityPolicy, c.PriorityGroups, c.PinnedTTL = natsjs.PriorityPolicyPinned, []string{"other"}, time.Second
		},
		func(c *natsjs.ConsumerConfig) { c.MaxAckPending, c.AckWait, c.FilterSubjects = 1000, time.Second, nil },
	} {
		until := w.app.count() + 15
		w.publishKeys(4, 10)
		// A request that waits as the group changes can wait until it expires, after 30 s.
		eventuallyWithin(t, 30*time.Second+patience, func() bool { return w.app.count() >= until }, func() string {
			return fmt.Sprintf("calls after edit %d; the durable: %+v", i, w.consumer(durable))
		})
		cfg := w.consumer(durable).Config
		edit(&cfg)
		w.try("edit the durable", func(ctx context.Context) error {
			_, err := w.js.UpdateConsumer(ctx, stream, cfg)
			return err
		})
	}
	w.balance()
	w.inOrder(bySubject)
}

// With more keys than may be leased, no more than may be leased is, and no key is kept once its messages are done.
func TestOrderOfManyKeys(t *testing.T) {
	w := newWorld(t)
	const keys, most = 3000, 12
	for i := range keys {
		w.publish(fmt.Sprint("orders.k", i), "x")
	}
	w.running(ordered("subject", func(c *config.Consumer) { c.Concurrency, c.Prefetch = 4, most-4 }))
	dwindles(t, func() int {
		if n := w.consumer(durable).NumAckPending; n > most {
			t.Fatalf("%d are leased", n)
		}
		return keys - w.app.count()
	}, func() string { return fmt.Sprintf("%d calls, there are %d", keys, w.app.count()) })
	w.balance()
	if n := w.app.count(); n != keys {
		t.Errorf("%d calls", n)
	}
}
