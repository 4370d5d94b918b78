package test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// failing is an app that fails until it is told to be well; then it is someFail.
func (w *world) failing() (well *atomic.Bool) {
	well = &atomic.Bool{}
	w.app.on(func(c *call) reply {
		if !well.Load() {
			return reply{status: 503}
		}
		return reply{status: 200, delay: 5 * time.Millisecond}
	})
	return well
}

// leaveRetries has messages wait in the retry stream and at the durable when it returns, and no sidecar.
func (w *world) leaveRetries() {
	w.t.Helper()
	w.publishKeys(3, 20)
	s := w.running(narrow(3*time.Second), consumer(func(c *config.Consumer) { c.AckWait = shortAckWait }))
	eventually(w.t, func() bool { return w.waiting() >= 10 }, text("messages in the retry stream"))
	if err := s.stop(); err != nil {
		w.t.Fatal(err)
	}
}

// oneAtATime holds that of each key one message at a time was called.
func (w *world) oneAtATime(calls []call, key func(call) string) {
	w.t.Helper()
	last := map[string]call{}
	for _, c := range calls {
		if before, ok := last[key(c)]; ok && (before.ended.IsZero() || c.begun.Before(before.ended)) {
			w.t.Errorf("of key %s, %d was called while %d was in work", key(c), c.seq, before.seq)
		}
		last[key(c)] = c
	}
}

// What waits in the retry stream from before an order was set is delivered, one of a key at a time, and the log says so once.
func TestOrderIsSetWhileRetriesWait(t *testing.T) {
	for _, by := range []string{"subject", "stream"} {
		t.Run(by, func(t *testing.T) {
			w := newWorld(t)
			well := w.failing()
			w.leaveRetries()
			before := w.app.count()
			well.Store(true)
			later := w.publish("orders.k0", "x")
			w.publishKeys(3, 10)
			s := w.running(ordered(by))
			w.balance()
			calls := w.app.all()[before:]
			w.oneAtATime(calls, keyOf(by))
			seq := later
			for _, c := range calls {
				if c.seq >= later && c.subject == "orders.k0" {
					if c.seq < seq {
						t.Errorf("%d was called after %d", c.seq, seq)
					}
					seq = c.seq
				}
			}
			if n := len(s.log.lines("messages wait in the retry stream from before there was an order: they are served beside the others, each in turn with those of its key, until none is left")); n != 1 {
				t.Errorf("%d lines about them", n)
			}
		})
	}
}

// A message of the retry stream that fails again keeps its turn, and is dead-lettered at the limit, as any.
func TestLeftRetriesFailAgain(t *testing.T) {
	w := newWorld(t)
	w.failing()
	w.leaveRetries()
	w.running(ordered("subject", func(c *config.Consumer) {
		c.MaxDeliver, c.Retry.Initial, c.Retry.Max, c.Breaker.Failures = 3, 100*time.Millisecond, 100*time.Millisecond, 0
	}))
	w.balance()
	if n := len(w.dead()); n != 60 {
		t.Errorf("%d dead letters", n)
	}
	for _, e := range w.dead() {
		if e.header.Get("Dlq-Deliveries") != "3" {
			t.Errorf("dead letter %v", e.header)
		}
	}
}

// Sidecars that keep an order leave the retry stream to the one that has the durable; when it is killed, to the next one.
func TestLeftRetriesOverKills(t *testing.T) {
	w := newWorld(t)
	w.durableOf(func(c *natsjs.ConsumerConfig) {
		c.AckWait, c.MaxAckPending = shortAckWait, 40
		c.PriorityPolicy, c.PriorityGroups, c.PinnedTTL = natsjs.PriorityPolicyPinned, []string{"g"}, time.Second
	})
	well := w.failing()
	w.leaveRetries()
	before := w.app.count()
	well.Store(true)
	w.publishKeys(3, 30)
	env := w.orderedEnv("subject")
	one, two := start(t, env...), start(t, env...)
	for _, p := range []*process{one, two} {
		until := w.app.count() + 15
		eventually(t, func() bool { return w.app.count() >= until || w.done() && w.waiting() == 0 }, func() string { return "calls:\n" + p.log.String() })
		p.kill()
	}
	w.running(ordered("subject"))
	w.balanceAfterKills()
	w.oneAtATime(w.app.all()[before:], bySubject)
}

// When the order is taken away again, what was leased and waited to be tried again goes on, and so does the use of the retry stream. The durable
// stays pinned to one sidecar at a time: the log says so.
func TestOrderIsTakenAway(t *testing.T) {
	w := newWorld(t)
	well := w.failing()
	w.publishKeys(3, 20)
	s := w.running(ordered("subject", func(c *config.Consumer) { c.MaxAckPending, c.Retry.Initial = 40, time.Minute }))
	eventually(t, func() bool { return w.app.count() >= 3 }, text("calls"))
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	s = w.running(narrow(2*time.Second), consumer(func(c *config.Consumer) { c.AckWait = 2 * time.Second }))
	eventually(t, func() bool { return w.waiting() >= 10 }, text("messages in the retry stream"))
	well.Store(true)
	w.balance()
	lines := s.log.lines("the durable is served as it is")
	found := false
	for _, l := range lines {
		found = found || strings.HasPrefix(l["warning"].(string), "it is pinned to one client at a time")
	}
	if !found {
		t.Errorf("no warning: %v", lines)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	w.running(narrow(2*time.Second), consumer(func(c *config.Consumer) { c.Manage = "update" }))
	eventually(t, func() bool { return w.consumer(durable).Config.PriorityPolicy == natsjs.PriorityPolicyNone }, text("the durable to be everyone's"))
	w.publishKeys(3, 5)
	w.balance()
}
