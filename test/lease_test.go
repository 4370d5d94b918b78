package test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

func TestConcurrencyIsExact(t *testing.T) {
	w := newWorld(t)
	open := make(chan struct{})
	w.app.on(func(*call) reply { return reply{status: 200, gate: open} })
	for range 40 {
		w.publish("orders.a", "x")
	}
	w.running(consumer(func(c *config.Consumer) { c.Concurrency, c.Prefetch = 7, 5 }))
	eventually(t, func() bool { return w.app.inFlight() == 7 && w.consumer(durable).NumAckPending > 7 }, text("seven calls, and leases beyond"))
	throughout(t, 300*time.Millisecond, func() bool { return w.app.inFlight() == 7 && w.consumer(durable).NumAckPending <= 12 }, text("it stays so"))
	close(open)
	w.balance()
	if n := w.app.peak(); n != 7 {
		t.Errorf("%d calls at a time", n)
	}
}

// Without prefetch nothing is leased that is not in flight.
func TestNoPrefetch(t *testing.T) {
	w := newWorld(t)
	open := make(chan struct{})
	w.app.on(func(*call) reply { return reply{status: 200, gate: open} })
	for range 20 {
		w.publish("orders.a", "x")
	}
	w.running(consumer(func(c *config.Consumer) { c.Concurrency, c.Prefetch = 3, 0 }))
	eventually(t, func() bool { return w.app.inFlight() == 3 }, text("three calls"))
	throughout(t, 300*time.Millisecond, func() bool { return w.consumer(durable).NumAckPending == 3 }, text("three are leased"))
	close(open)
	w.balance()
}

// The bound holds over reconnects, and what is leased is not called again.
func TestLeaseBoundOverReconnects(t *testing.T) {
	w := newWorld(t)
	open := make(chan struct{})
	w.app.on(func(*call) reply { return reply{status: 200, gate: open} })
	for range 60 {
		w.publish("orders.a", "x")
	}
	s := w.running(consumer(func(c *config.Consumer) { c.Concurrency, c.Prefetch = 3, 4 }))
	eventually(t, func() bool { return w.app.inFlight() == 3 && w.consumer(durable).NumAckPending > 4 }, text("leases"))
	for range 4 {
		w.cutSidecar()
		bound := func() bool { return w.consumer(durable).NumAckPending <= 7 && w.app.inFlight() <= 3 }
		throughout(t, 300*time.Millisecond, bound, text("at most seven are leased"))
		s.waitReady()
	}
	close(open)
	w.balance()
	if n := w.app.count(); n != 60 {
		t.Errorf("%d calls for 60 messages", n)
	}
}

// sidecars are the connections of sidecars at the server.
func (w *world) sidecars() []*server.ConnInfo {
	w.t.Helper()
	conns, err := w.nats.Native().Connz(nil)
	w.must(err)
	var all []*server.ConnInfo
	for _, c := range conns.Conns {
		if c.Name == "sidecar" {
			all = append(all, c)
		}
	}
	return all
}

// cutSidecar cuts the sidecar's connection to NATS and waits for the next one.
func (w *world) cutSidecar() {
	w.t.Helper()
	old := w.sidecars()[0].Cid
	w.must(w.nats.Native().DisconnectClientByID(old))
	eventually(w.t, func() bool { now := w.sidecars(); return len(now) == 1 && now[0].Cid != old }, text("a new connection"))
}

// With messages under way all the time, reconnects lose nothing, and no answer is asked for twice.
func TestReconnectsUnderLoad(t *testing.T) {
	w := newWorld(t)
	w.app.on(always(reply{status: 200, delay: 2 * time.Millisecond}))
	w.running(consumer(func(c *config.Consumer) { c.AckWait, c.Concurrency = time.Second, 4 }))
	for i := range 300 {
		w.publish("orders.a", "x")
		if i%75 == 50 {
			w.cutSidecar()
		}
	}
	w.balance()
	if n := w.app.peak(); n > 4 {
		t.Errorf("%d calls at a time", n)
	}
}

// An app that needs several ack waits is called once, and so are messages that wait behind.
func TestSlowAppIsCalledOnce(t *testing.T) {
	w := newWorld(t)
	open := make(chan struct{})
	w.app.on(func(*call) reply { return reply{status: 200, gate: open} })
	for range 4 {
		w.publish("orders.a", "x")
	}
	w.running(consumer(func(c *config.Consumer) { c.AckWait, c.Concurrency, c.Prefetch = shortAckWait, 2, 2 }))
	w.staysLeased(4)
	close(open)
	w.untouchedAtFirst()
}

// staysLeased waits until all of n messages are leased, and holds that for two ack waits none of them is delivered again.
func (w *world) staysLeased(n int) {
	w.t.Helper()
	eventually(w.t, func() bool { return w.app.inFlight() > 0 && w.consumer(durable).NumAckPending == n }, text("leases"))
	throughout(w.t, 2*shortAckWait+time.Second, func() bool {
		now := w.consumer(durable)
		return now.NumAckPending == n && now.Delivered.Consumer == uint64(n)
	}, text("what is leased stays leased"))
}

func TestLeasedBytesAreBounded(t *testing.T) {
	w := newWorld(t)
	open := make(chan struct{})
	w.app.on(func(*call) reply { return reply{status: 200, gate: open} })
	for range 20 {
		w.publish("orders.a", strings.Repeat("x", 100<<10))
	}
	w.running(consumer(func(c *config.Consumer) { c.MaxBytes = 450 << 10 }))
	eventually(t, func() bool { return w.app.inFlight() >= 2 }, text("calls"))
	throughout(t, 500*time.Millisecond, func() bool { return w.consumer(durable).NumAckPending <= 4 }, text("at most four fit"))
	close(open)
	w.balance()
}

// One message is always allowed, and those behind it are not held up.
func TestMessageLargerThanAllBytes(t *testing.T) {
	w := newWorld(t)
	for _, size := range []int{10, 200 << 10, 10, 900 << 10, 10, 10} {
		w.publish("orders.a", strings.Repeat("x", size))
	}
	w.running(consumer(func(c *config.Consumer) { c.MaxBytes = 100 << 10 }))
	w.untouched()
}

func TestRate(t *testing.T) {
	w := newWorld(t)
	w.running(consumer(func(c *config.Consumer) { c.Rate = 20 }))
	before := time.Now() // all calls: how long the first one took to arrive says nothing
	for range 21 {
		w.publish("orders.a", "x")
	}
	w.balance()
	if d := w.app.lastBegun().Sub(before); d < time.Second {
		t.Errorf("21 calls within %s, at 20 a second", d)
	}
}

// Several consumers of a process share one connection to NATS, and do not mix.
func TestConsumersShareAConnection(t *testing.T) {
	w := newWorld(t)
	w.running(func(c *config.Config) {
		other := testConsumer()
		other.Durable, other.Path, other.FilterSubjects = "other", "/other", []string{"orders.b", "orders.c"}
		c.Consumers = append(c.Consumers, other)
	})
	for _, subject := range []string{"orders.a", "orders.b", "orders.c"} {
		w.publish(subject, "x")
	}
	w.waitDone()
	eventually(t, func() bool { return w.app.count() == 5 }, text("five calls"))
	paths := map[string]int{}
	for _, c := range w.app.all() {
		paths[c.uri+" "+c.subject+" "+c.header.Get("Nats-Consumer")]++
	}
	for _, want := range []string{"/ orders.a worker", "/ orders.b worker", "/ orders.c worker", "/other orders.b other", "/other orders.c other"} {
		if paths[want] != 1 {
			t.Errorf("calls %v", paths)
		}
	}
	if n := len(w.sidecars()); n != 1 {
		t.Errorf("%d connections", n)
	}
	eventually(t, func() bool { i := w.consumer("other"); return i.NumAckPending == 0 && i.NumPending == 0 }, text("the other durable"))
}

// Two sidecars on one durable share the work.
func TestTwoSidecars(t *testing.T) {
	w := newWorld(t)
	w.app.on(always(reply{status: 200, delay: 5 * time.Millisecond}))
	small := consumer(func(c *config.Consumer) { c.Concurrency, c.Prefetch = 2, 2 })
	one, two := w.running(small), w.running(small)
	for range 100 {
		w.publish("orders.a", "x")
	}
	w.balance()
	counted(t, "ack", 100, one, two)
	if a, b := one.admin.verdicts("ack"), two.admin.verdicts("ack"); a == 0 || b == 0 || a+b != 100 {
		t.Errorf("%v and %v", a, b)
	}
}
