package test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// ordered is an option for a sidecar that keeps an order.
func ordered(by string, change ...func(*config.Consumer)) option {
	return consumer(func(c *config.Consumer) {
		c.Order, c.AckWait = by, shortAckWait
		for _, f := range change {
			f(c)
		}
	})
}

func bySubject(c call) string { return c.subject }

// inOrder holds that of each key one message at a time was called, and none again once a later one was.
func (w *world) inOrder(key func(call) string) {
	w.t.Helper()
	w.inOrderOf(w.app.all(), key)
}

// inOrderOf holds as much of these calls, the first one first.
func (w *world) inOrderOf(calls []call, key func(call) string) {
	w.t.Helper()
	last := map[string]call{}
	for _, c := range calls {
		k := key(c)
		if before, ok := last[k]; ok {
			if before.ended.IsZero() || c.begun.Before(before.ended) {
				w.t.Errorf("of key %s, %d was called (%d.) while %d was in work (%d.)", k, c.seq, c.nth, before.seq, before.nth)
			}
			if c.seq < before.seq {
				w.t.Errorf("of key %s, %d was called (%d.) after %d", k, c.seq, c.nth, before.seq)
			}
		}
		last[k] = c
	}
}

// publishKeys stores messages of some keys in turn, n of each.
func (w *world) publishKeys(keys, n int) {
	w.t.Helper()
	for range n {
		for k := range keys {
			w.publish("orders.k"+strconv.Itoa(k), "x")
		}
	}
}

// A message that is being retried holds up those of its key, and no others; then it is dead-lettered and its key goes on.
func TestOrderBySubject(t *testing.T) {
	w := newWorld(t)
	w.app.on(func(c *call) reply {
		if c.subject == "orders.k0" && c.body == "bad" {
			return reply{status: 503}
		}
		return reply{status: 200, delay: time.Millisecond}
	})
	w.publish("orders.k0", "x")
	bad := w.publish("orders.k0", "bad")
	w.publishKeys(5, 20)
	s := w.running(ordered("subject", func(c *config.Consumer) {
		c.MaxDeliver, c.Retry.Initial, c.Retry.Max = 4, 200*time.Millisecond, 200*time.Millisecond
	}))
	w.waitDead(1)
	w.balance()
	w.inOrder(bySubject)
	calls := w.app.of(bad)
	if len(calls) != 4 {
		t.Fatalf("%d calls of the bad one", len(calls))
	}
	others := 0
	for i, c := range calls {
		if c.delivered != strconv.Itoa(i+1) {
			t.Errorf("call %d says that it is delivery %s", i+1, c.delivered)
		}
		if i > 0 && c.begun.Sub(calls[i-1].ended) < 95*time.Millisecond {
			t.Errorf("call %d came %s after the one before", i+1, c.begun.Sub(calls[i-1].ended))
		}
	}
	for _, c := range w.app.all() {
		if c.subject != "orders.k0" && c.begun.Before(calls[3].begun) {
			others++
		}
	}
	if others == 0 {
		t.Error("the other keys waited for the bad one")
	}
	if e := w.deadOf(bad); e.header.Get("Dlq-Reason") != "max_deliver" || e.header.Get("Dlq-Deliveries") != "4" {
		t.Errorf("dead letter %v", e.header)
	}
	if lines := s.log.waitSettled(t, bad, 4); len(lines) != 4 || lines[0]["verdict"] != "retry" || lines[3]["verdict"] != "dlq" {
		t.Errorf("log lines %v", lines)
	}
}

func TestOrderOfTheStream(t *testing.T) {
	w := newWorld(t)
	w.app.on(func(c *call) reply {
		if c.seq%3 == 0 && c.nth < 3 {
			return reply{status: 503}
		}
		return reply{status: 200}
	})
	w.publishKeys(3, 10)
	w.running(ordered("stream"))
	w.balance()
	w.inOrder(func(call) string { return "" })
	if n := w.app.peak(); n != 1 {
		t.Errorf("%d calls at a time", n)
	}
}

// With order: stream the breaker counts attempts, of whatever message.
func TestBreakerCountsAttemptsInAnOrderedStream(t *testing.T) {
	w := newWorld(t)
	w.app.on(each(reply{status: 503}, reply{status: 503}, reply{status: 503}, reply{status: 200}))
	w.publish("orders.a", "x")
	s := w.running(ordered("stream", func(c *config.Consumer) {
		c.Breaker.Failures, c.Breaker.ProbeInterval, c.Breaker.ProbeMax = 3, 50*time.Millisecond, 50*time.Millisecond
	}))
	w.balance()
	eventually(t, func() bool { return len(s.log.lines("the breaker is closed")) == 1 }, text("the breaker to have been open"))
}

// Messages without the header have no order: none waits for another of them.
func TestOrderByHeader(t *testing.T) {
	w := newWorld(t)
	open := make(chan struct{})
	w.app.on(func(c *call) reply {
		if c.body == "first" {
			return reply{status: 200, gate: open}
		}
		return reply{status: 200}
	})
	w.publish("orders.a", "first", "Customer: 1")
	w.publish("orders.a", "first")
	for range 5 {
		w.publish("orders.a", "x", "Customer: 1")
		w.publish("orders.a", "y", "Customer: 2")
		w.publish("orders.a", "z")
		w.publish("orders.a", "z", "customer: 1", "Customer: ")
	}
	w.running(ordered("header:Customer"))
	eventually(t, func() bool { return w.app.count() == 17 }, func() string { return fmt.Sprintf("17 calls, there are %d", w.app.count()) })
	for _, c := range w.app.all() {
		if c.body == "x" {
			t.Error("a message was called before the first of its key was done")
		}
	}
	close(open)
	w.balance()
	w.inOrder(func(c call) string {
		if v := c.header.Get("Customer"); v != "" && c.body != "z" {
			return v
		}
		return "none" + strconv.FormatUint(c.seq, 10)
	})
}

// A dead letter that the DLQ cannot take holds up its key, leased, and no other.
func TestOrderWhileTheDLQIsFull(t *testing.T) {
	w := newWorld(t)
	w.dlqOf(func(c *natsjs.StreamConfig) { c.MaxMsgs = 1 })
	w.app.on(func(c *call) reply {
		if c.body == "bad" {
			return reply{status: 422}
		}
		return reply{status: 200}
	})
	w.publish("orders.other", "bad")
	s := w.running(ordered("subject"))
	w.waitDead(1) // now it is full
	bad := w.publish("orders.k0", "bad")
	w.publishKeys(3, 4)
	eventually(t, func() bool { return w.app.count() == 2+8 }, func() string { return fmt.Sprintf("10 calls, there are %d", w.app.count()) })
	s.waitCheck("dlq", false)
	throughout(t, 3*time.Second, func() bool { return w.app.count() == 10 }, text("the key of the dead letter waits"))
	w.dlqOf(func(c *natsjs.StreamConfig) { c.MaxMsgs = -1 })
	w.balance()
	w.inOrder(bySubject)
	if n := len(w.app.of(bad)); n != 1 {
		t.Errorf("the dead letter was called %d times", n)
	}
}

// Stops and starts at any moment, with messages that are being retried, keep the order.
func TestOrderOverStops(t *testing.T) {
	w := newWorld(t)
	w.app.on(someFail)
	w.publishKeys(4, 40)
	o := ordered("subject", func(c *config.Consumer) { c.Concurrency, c.Prefetch = 3, 9 })
	for range 6 {
		s := w.running(o)
		until := w.app.count() + 10 + rand.N(15)
		eventually(t, func() bool { return w.app.count() >= until || w.done() }, text("calls"))
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
	}
	w.running(o)
	w.balance()
	w.inOrder(bySubject)
}

// someFail is an app that answers a fifth of the calls with 503, a tenth of the messages with 422 and lets some hang a little.
func someFail(c *call) reply {
	r := rand.New(rand.NewPCG(c.seq, uint64(c.nth)))
	rep := reply{status: 200, delay: time.Duration(r.IntN(3)) * time.Millisecond}
	switch {
	case rand.New(rand.NewPCG(c.seq, 0)).IntN(10) == 0:
		rep.status = 422
	case r.IntN(5) == 0:
		rep.status = 503
	case r.IntN(50) == 0:
		rep.reset = true
	}
	return rep
}

// Kills at any moment keep the order: also when messages of a dead process come back at different times.
func TestOrderOverKills(t *testing.T) {
	for _, by := range []string{"subject", "stream"} {
		t.Run(by, func(t *testing.T) {
			w := newWorld(t)
			w.pinnedDurable(time.Second)
			w.app.on(someFail)
			w.publishKeys(4, 30)
			env := w.orderedEnv(by)
			for range 3 {
				p := start(t, env...)
				until := w.app.count() + 10 + rand.N(15)
				eventually(t, func() bool { return w.app.count() >= until || w.done() }, func() string { return "calls:\n" + p.log.String() })
				p.kill()
			}
			w.running(ordered(by))
			w.balanceAfterKills()
			w.inOrder(keyOf(by))
		})
	}
}

// Of two sidecars now one is killed, now one is stopped, now the server is restarted: whatever happens, the order stays.
func TestOrderOverEverything(t *testing.T) {
	w := newWorld(t)
	w.pinnedDurable(shortAckWait) // a server that restarts knows only the second in which a lease was kept alive
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	w.app.on(someFail)
	w.publishKeys(5, 30)
	env := w.orderedEnv("subject", "SIDECAR_CONSUMERS_0_CONCURRENCY=3")
	both := []*process{start(t, env...), start(t, env...)}
	for range 5 {
		until := w.app.count() + 5 + r.IntN(20)
		eventually(t, func() bool { return w.app.count() >= until || w.done() }, func() string { return "calls:\n" + both[0].log.end() + both[1].log.end() })
		switch i := r.IntN(2); r.IntN(3) {
		case 0:
			both[i].kill()
			both[i] = start(t, env...)
		case 1:
			both[i].signal(syscall.SIGTERM)
			both[i].wait(patience)
			both[i] = start(t, env...)
		default:
			w.try("restart", func(context.Context) error { return w.nats.Restart() })
		}
	}
	w.balanceAfterKills()
	w.inOrder(bySubject)
}

// A server that restarts forgets whom the durable was pinned to, and may give the other sidecar what the first one has.
func TestOrderOverServerRestarts(t *testing.T) {
	w := newWorld(t)
	w.pinnedDurable(shortAckWait)
	w.app.on(someFail)
	w.publishKeys(5, 30)
	env := w.orderedEnv("subject", "SIDECAR_CONSUMERS_0_CONCURRENCY=3")
	for range 2 {
		start(t, env...)
	}
	for range 5 {
		until := w.app.count() + 5 + rand.IntN(20)
		eventually(t, func() bool { return w.app.count() >= until || w.done() }, text("calls"))
		w.try("restart", func(context.Context) error { return w.nats.Restart() })
	}
	w.balanceAfterKills()
	w.inOrder(bySubject)
}

// A message that kills its process holds up its key until it is a crash loop, and takes no neighbour along.
func TestOrderBehindAKiller(t *testing.T) {
	w := newWorld(t)
	w.pinnedDurable(time.Second)
	killing := make(deadly, 20)
	w.app.on(func(c *call) reply {
		if c.body == "killer" {
			killing <- struct{}{}
			return reply{gate: make(chan struct{})}
		}
		return reply{status: 200}
	})
	w.publishKeys(2, 3)
	killer := w.publish("orders.k0", "killer")
	w.publishKeys(2, 3)
	env := w.orderedEnv("subject", "SIDECAR_CONSUMERS_0_MAX_DELIVER=2")
	for deaths := 0; len(w.dead()) == 0; deaths++ {
		if deaths > 10 {
			t.Fatalf("%d processes died of one message", deaths)
		}
		w.diesOrBuries(start(t, env...), killing)
	}
	w.waitDone()
	w.inOrder(bySubject)
	if e := w.deadOf(killer); e.header.Get("Dlq-Reason") != "crash_loop" || len(w.dead()) != 1 {
		t.Errorf("%d dead letters, headers %v", len(w.dead()), e.header)
	}
}

// pinnedDurable makes the durable by hand, so that a take-over is quick.
func (w *world) pinnedDurable(ackWait time.Duration) {
	w.t.Helper()
	w.durableOf(func(c *natsjs.ConsumerConfig) {
		c.AckWait, c.PriorityPolicy, c.PriorityGroups, c.PinnedTTL = ackWait, natsjs.PriorityPolicyPinned, []string{"g"}, time.Second
	})
}

// longPinned makes the durable by hand, pinned for so long that a machine that stalls does not give it to another sidecar.
func (w *world) longPinned(ackWait time.Duration) {
	w.t.Helper()
	w.durableOf(func(c *natsjs.ConsumerConfig) {
		c.AckWait, c.PriorityPolicy, c.PriorityGroups, c.PinnedTTL = ackWait, natsjs.PriorityPolicyPinned, []string{"sidecar"}, patience
	})
}

func (w *world) orderedEnv(by string, more ...string) []string {
	env := w.environment("SIDECAR_CONSUMERS_0_ACK_WAIT=1s", "SIDECAR_CONSUMERS_0_ORDER="+by, "SIDECAR_CONSUMERS_0_PREFETCH=9")
	return append(env, more...)
}

func keyOf(by string) func(call) string {
	if by == "stream" {
		return func(call) string { return "" }
	}
	return bySubject
}

// Of two sidecars one works. When it is killed the other takes over within seconds, in order.
func TestOrderOverTakeOver(t *testing.T) {
	w := newWorld(t)
	w.app.on(someFail)
	env := w.orderedEnv("subject")
	one := start(t, env...)
	w.publish("orders.k0", "x")
	w.pinnedAt(one)
	two := start(t, env...)
	eventually(t, func() bool { return len(w.sidecars()) == 2 && w.consumer(durable).NumWaiting >= 2 }, text("two sidecars"))
	w.publishKeys(4, 40)
	eventually(t, func() bool { return w.app.count() > 30 }, text("calls"))
	one.kill()
	before := w.app.count()
	eventually(t, func() bool { return w.app.count() > before }, text("the other to take over"))
	w.pinnedAt(two)
	w.balanceAfterKills()
	w.inOrder(bySubject)
}

// pinnedAt waits until a sidecar says that it has the durable.
func (w *world) pinnedAt(p *process) {
	w.t.Helper()
	eventually(w.t, func() bool { return len(p.log.lines("the durable is pinned to this sidecar")) > 0 }, func() string { return "the durable to be pinned:\n" + p.log.String() })
}

// A sidecar that stops leaves the durable to the other at once: it says so to the server, which waits neither for the pin to time out nor
// for the ack wait.
func TestOrderOverHandOver(t *testing.T) {
	w := newWorld(t)
	w.app.on(someFail)
	long := func(c *config.Consumer) { c.AckWait = time.Hour }
	w.longPinned(time.Hour)
	one := w.running(ordered("subject", long))
	w.publishKeys(3, 1)
	eventually(t, func() bool { return len(one.log.lines("the durable is pinned to this sidecar")) > 0 }, text("the durable to be pinned"))
	two := w.running(ordered("subject", long))
	w.publishKeys(4, 60)
	eventually(t, func() bool { return w.app.count() > 30 }, text("calls"))
	if two.admin.verdicts("ack") > 0 {
		t.Error("the other one works too")
	}
	unpinned, err := w.nc.SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.UNPINNED." + stream + "." + durable)
	w.must(err)
	w.must(w.nc.Flush())
	if err := one.stop(); err != nil {
		t.Fatal(err)
	}
	if m, err := unpinned.NextMsg(patience); err != nil || !strings.Contains(string(m.Data), `"reason":"admin"`) {
		t.Errorf("the durable is unpinned by %v, %v", m, err)
	}
	w.publishKeys(4, 5) // however far the first one got
	w.balance()
	w.inOrder(bySubject)
	counted(t, "ack", 1, two) // it took over
}

// A durable without pinned clients is served, with a warning; several sidecars keep the order, slowly.
func TestOrderWithoutPin(t *testing.T) {
	w := newWorld(t)
	w.durableOf(func(c *natsjs.ConsumerConfig) { c.AckWait = shortAckWait })
	w.app.on(someFail)
	s := w.running(ordered("subject"))
	eventually(t, func() bool {
		return slices.ContainsFunc(s.log.lines("the durable is served as it is"), func(l map[string]any) bool {
			return strings.HasPrefix(l["warning"].(string), "it has no pinned-client priority group")
		})
	}, text("a warning"))
	w.running(ordered("subject"))
	w.publishKeys(4, 10)
	w.balance()
	w.inOrder(bySubject)
}

// With manage: update a durable that exists is made one of pinned clients.
func TestOrderIsSetUpByUpdate(t *testing.T) {
	w := newWorld(t)
	w.durableOf(func(c *natsjs.ConsumerConfig) { c.AckWait = shortAckWait })
	s := w.running(ordered("subject", func(c *config.Consumer) { c.Manage = "update" }))
	w.publishKeys(2, 5)
	w.balance()
	w.inOrder(bySubject)
	if c := w.consumer(durable).Config; c.PriorityPolicy != natsjs.PriorityPolicyPinned {
		t.Errorf("priority policy %v, groups %v", c.PriorityPolicy, c.PriorityGroups)
	}
	eventually(t, func() bool { return len(s.log.lines("the durable is pinned to this sidecar")) == 1 }, text("it to be pinned"))
}

// The bound holds, and cuts of the connection keep the order.
func TestOrderOverCuts(t *testing.T) {
	w := newWorld(t)
	w.app.on(someFail)
	w.running(ordered("subject", func(c *config.Consumer) { c.Concurrency, c.Prefetch = 3, 5 }))
	for i := range 40 {
		w.publishKeys(4, 1)
		if n := w.consumer(durable).NumAckPending; n > 8 {
			t.Errorf("%d are leased", n)
		}
		if i%10 == 5 {
			w.cutSidecar()
		}
	}
	w.balance()
	w.inOrder(bySubject)
	if n := w.app.peak(); n > 3 {
		t.Errorf("%d calls at a time", n)
	}
}
