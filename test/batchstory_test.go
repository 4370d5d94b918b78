package test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

// mixedBatch is an app of all sorts of messages, that names some of them and fails for others as a whole.
func mixedBatch(b *batchCall) (reply, map[string]verdict) {
	vs := map[string]verdict{}
	r := reply{status: 200, delay: time.Millisecond}
	for _, i := range b.items {
		switch i.body() {
		case "bad":
			vs[i.ID] = verdict{"dlq", "", 0}
		case "dead":
			r.status = 500
		case "poison":
			r.status = 422
		case "flaky":
			if i.NumDelivered == 1 {
				vs[i.ID] = verdict{"retry", "", 0}
			}
		}
	}
	if r.status != 200 {
		return r, nil
	}
	return r, vs
}

var mixedKinds = []string{"good", "good", "good", "bad", "flaky", "good", "poison", "dead", "good", "good"}

// Sidecars that are killed in the middle of batches lose nothing and dead-letter nothing twice.
func TestBatchKills(t *testing.T) {
	w := newWorld(t)
	a := w.batchApp(mixedBatch)
	w.publishMany(200, func(i int) string { return mixedKinds[i%len(mixedKinds)] })
	env := w.environment("SIDECAR_CONSUMERS_0_ACK_WAIT=1s", "SIDECAR_CONSUMERS_0_MAX_DELIVER=6", "SIDECAR_CONSUMERS_0_CONCURRENCY=3",
		"SIDECAR_CONSUMERS_0_BATCH_MAX_MESSAGES=20", "SIDECAR_LOG_LEVEL=warn")
	for range 3 {
		p := start(t, env...)
		calls := w.app.count() + 10 + rand.N(20)
		eventually(t, func() bool { return w.app.count() >= calls || w.done() }, func() string { return "calls:\n" + p.log.String() })
		p.kill()
	}
	w.running(batched(20, func(c *config.Consumer) { c.MaxDeliver = 6 }))
	a.balance(true)
	for _, e := range w.dead() {
		if e.body == "good" || e.body == "flaky" {
			t.Errorf("message %d (%s) is dead for %s", e.source(), e.body, e.header.Get("Dlq-Reason"))
		}
	}
}

// NATS restarted under batches: nothing is lost, and nothing is called again that was answered.
func TestBatchRestartsOfNATS(t *testing.T) {
	w := newWorld(t)
	a := w.batchApp(mixedBatch)
	w.running(batched(20, func(c *config.Consumer) { c.AckWait, c.MaxDeliver = time.Second, 0 }), consumer(func(c *config.Consumer) {
		c.Status.DLQ = []string{"500", "422"}
	}))
	for i := range 300 {
		w.publish("orders.a", mixedKinds[i%len(mixedKinds)], fmt.Sprintf("Nats-Msg-Id: m-%d", i))
		if i%100 == 60 {
			w.must(w.nats.Restart())
		}
	}
	a.balance(false)
}

// While the app is away nothing is an attempt, whatever waits in batches.
func TestBatchWithoutTheApp(t *testing.T) {
	w := newWorld(t)
	a := w.batchApp(okay)
	w.app.down()
	w.publishMany(50, func(int) string { return "x" })
	s := w.sidecar(batched(10, func(c *config.Consumer) { c.MaxDeliver = 1 }))
	s.waitCheck("app", false)
	w.app.up()
	s.waitReady()
	eventually(t, func() bool { return len(a.calls()) > 0 }, text("calls"))
	w.app.down()
	w.publishMany(50, func(int) string { return "x" })
	w.app.up()
	w.waitDone()
	for seq, n := range a.taken {
		if n < 1 {
			t.Errorf("message %d was accepted %d times", seq, n)
		}
	}
}

// A stop lets the batch at the app finish, and hands everything else back.
func TestStopInTheMiddleOfBatches(t *testing.T) {
	w := newWorld(t)
	open := make(chan struct{})
	a := w.batchApp(func(b *batchCall) (reply, map[string]verdict) {
		return reply{status: 200, gate: open}, map[string]verdict{b.items[0].ID: {"retry", "", 0}}
	})
	w.publishMany(100, func(int) string { return "x" })
	s := w.running(batched(10, func(c *config.Consumer) { c.Concurrency, c.Prefetch = 2, 30 }))
	eventually(t, func() bool { return w.app.inFlight() == 2 && w.consumer(durable).NumAckPending > 10 }, text("two batches"))
	s.cancel()
	eventually(t, func() bool { return s.admin.status("/readyz") != 200 }, text("the stop to begin"))
	close(open)
	w.must(s.stop())
	if n := len(a.calls()); n != 2 {
		t.Errorf("%d requests", n)
	}
	w.batchAppOf(a, okay)
	w.running(batched(10))
	a.balance(false)
}

// batchAppOf lets an app answer otherwise from now on.
func (w *world) batchAppOf(a *batchApp, answer func(b *batchCall) (reply, map[string]verdict)) {
	w.app.on(func(c *call) reply { return a.serve(c, answer) })
}

// An app that hangs is cut off at a stop, and that is no attempt for any of the messages.
func TestStopOfAHangingBatch(t *testing.T) {
	w := newWorld(t)
	a := w.batchApp(func(*batchCall) (reply, map[string]verdict) { return reply{gate: make(chan struct{})}, nil })
	w.publishMany(20, func(int) string { return "x" })
	s := w.running(batched(10, func(c *config.Consumer) { c.MaxDeliver = 1 }), func(c *config.Config) { c.ShutdownTimeout = 200 * time.Millisecond })
	eventually(t, func() bool { return w.app.inFlight() > 0 }, text("a call"))
	w.must(s.stop())
	w.batchAppOf(a, okay)
	w.running(batched(10, func(c *config.Consumer) { c.MaxDeliver = 10 }))
	w.waitDone()
	if len(w.dead()) > 0 {
		t.Error("a stop dead-lettered")
	}
}

// A second message of an id waits for the first one's verdict, also in the same batch.
func TestBatchDuplicates(t *testing.T) {
	w := newWorld(t, func(c *natsjs.StreamConfig) { c.Duplicates = 100 * time.Millisecond })
	a := w.batchApp(okay)
	one := w.publish("orders.a", "x", "Nats-Msg-Id: same")
	two := w.publishAfterWindow("orders.a", "x", "same")
	three := w.publishAfterWindow("orders.a", "x", "same")
	w.quiet(two)
	w.quiet(three)
	s := w.running(batched(10))
	w.waitDone()
	if n := counted(t, "duplicate", 2, s); a.taken[one] != 1 || a.times[two]+a.times[three] != 0 || n != 2 {
		t.Errorf("times %v, %v duplicates", a.times, n)
	}
}

// Batches are bounded by their bytes; a message that is larger is one of its own.
func TestBatchBytes(t *testing.T) {
	w := newWorld(t)
	a := w.batchApp(okay)
	sizes := []int{10, 70 << 10, 10, 900 << 10, 10, 40 << 10, 40 << 10, 40 << 10, 10}
	w.publishMany(27, func(i int) string { return strings.Repeat("\xfe", sizes[i%len(sizes)]) })
	w.running(batched(100, func(c *config.Consumer) { c.Batch.MaxBytes = 100 << 10 }))
	a.balance(false)
	for _, b := range a.calls() {
		total := 0
		for _, i := range b.items {
			total += len(i.body())
		}
		if total > 100<<10 && len(b.items) > 1 {
			t.Errorf("%d messages of %d bytes in one request", len(b.items), total)
		}
	}
}

// As many requests as configured are in flight, and no more messages are leased than they can hold and prefetch.
func TestBatchLeases(t *testing.T) {
	w := newWorld(t)
	open := make(chan struct{})
	a := w.batchApp(func(*batchCall) (reply, map[string]verdict) { return reply{status: 200, gate: open}, nil })
	w.publishMany(200, func(int) string { return "x" })
	w.running(batched(8, func(c *config.Consumer) { c.Concurrency, c.Prefetch = 3, 5 }))
	eventually(t, func() bool { return w.app.inFlight() == 3 }, text("three requests"))
	throughout(t, 300*time.Millisecond, func() bool { return w.app.inFlight() <= 3 && w.consumer(durable).NumAckPending <= 3*8+5 }, text("the bound holds"))
	close(open)
	a.balance(false)
	if w.app.peak() != 3 {
		t.Errorf("%d requests at a time", w.app.peak())
	}
}

// A batch that can get nothing more is sent at once, however long it could wait; one that can waits that long.
func TestBatchDoesNotWaitForWhatCannotCome(t *testing.T) {
	w := newWorld(t)
	a := w.batchApp(okay)
	w.publishMany(10, func(int) string { return "x" })
	w.running(batched(100, func(c *config.Consumer) {
		c.Batch.MaxWait, c.Concurrency, c.Prefetch, c.MaxBytes = time.Hour, 1, 0, 1 // one lease at a time
	}))
	a.balance(false)
	if n := len(a.calls()); n != 10 {
		t.Errorf("%d requests", n)
	}
}

func TestBatchWaits(t *testing.T) {
	w := newWorld(t)
	a := w.batchApp(okay)
	w.running(batched(3, func(c *config.Consumer) { c.Batch.MaxWait, c.Concurrency, c.Prefetch = time.Hour, 4, 10 }))
	w.publishMany(30, func(int) string { return "x" })
	a.balance(false)
	for _, b := range a.calls() {
		if len(b.items) != 3 {
			t.Errorf("a batch of %d", len(b.items))
		}
	}
}

// Batches go over every transport.
func TestBatchTransports(t *testing.T) {
	t.Run("unix", func(t *testing.T) {
		w := newWorld(t)
		socket := filepath.Join(t.TempDir(), "app.sock")
		w.app = appAt(t, "unix", socket)
		a := w.batchApp(mixedBatch)
		w.publishMany(60, func(i int) string { return mixedKinds[i%len(mixedKinds)] + strings.Repeat(" ", i%2*30000) })
		w.running(batched(20), func(c *config.Config) { c.App.URL = "unix://" + socket })
		a.balance(false)
	})
	t.Run("h2c", func(t *testing.T) {
		w := newWorld(t)
		a := w.batchApp(mixedBatch)
		w.app.speakH2C()
		w.publishMany(60, func(i int) string { return mixedKinds[i%len(mixedKinds)] })
		w.running(batched(20), func(c *config.Config) { c.App.Protocol = "h2c" })
		a.balance(false)
		for _, c := range w.app.all() {
			if c.protocol != 2 {
				t.Fatalf("a call over HTTP/%d", c.protocol)
			}
		}
	})
}

// A message past its limit, by processes that died, is alone in its batch and dead-lettered on evidence; its neighbours pass.
func TestBatchCrashLoop(t *testing.T) {
	w := newWorld(t)
	killing := make(deadly, 20)
	a := w.batchApp(func(b *batchCall) (reply, map[string]verdict) {
		if slices.ContainsFunc(b.items, func(i item) bool { return i.body() == "killer" }) {
			killing <- struct{}{}
			return reply{gate: make(chan struct{})}, nil
		}
		return reply{status: 200}, nil
	})
	var killer uint64
	for i := range 20 {
		if i == 7 {
			killer = w.publish("orders.new", "killer")
		} else {
			w.publish("orders.new", "good")
		}
	}
	env := w.environment("SIDECAR_CONSUMERS_0_ACK_WAIT=1s", "SIDECAR_CONSUMERS_0_MAX_DELIVER=3", "SIDECAR_CONSUMERS_0_BATCH_MAX_MESSAGES=10")
	for deaths := 0; len(w.dead()) == 0; deaths++ {
		if deaths > 12 {
			t.Fatal("it goes on and on")
		}
		w.diesOrBuries(start(t, env...), killing)
	}
	if e := w.deadOf(killer); e.header.Get("Dlq-Reason") != "crash_loop" {
		t.Errorf("headers %v", e.header)
	}
	w.waitDone()
	if n := len(w.dead()); n != 1 {
		t.Errorf("%d dead letters", n)
	}
	for _, b := range a.calls() {
		if i := b.items[0]; i.NumDelivered > 3 && i.Sequence == killer && len(b.items) != 1 {
			t.Errorf("it was tried with %d others", len(b.items)-1)
		}
	}
}

// Messages past their limit that have not begun at a stop are handed back: none of them is sent after it, and none is marked.
func TestStopHandsBackWhatIsAlone(t *testing.T) {
	w := newWorld(t)
	w.durableOf()
	late := w.publishMany(10, func(int) string { return "late" })
	cons, err := w.js.Consumer(t.Context(), stream, durable)
	w.must(err)
	had, err := cons.Fetch(10) // their first delivery, which is all that is allowed
	w.must(err)
	var held []natsjs.Msg
	for m := range had.Messages() {
		held = append(held, m)
	}
	var open atomic.Pointer[chan struct{}]
	a := w.batchApp(func(b *batchCall) (reply, map[string]verdict) {
		if gate := open.Load(); gate != nil && b.items[0].body() == "late" {
			return reply{status: 200, gate: *gate}, nil
		}
		return reply{status: 200}, nil
	})
	fresh := w.publishMany(30, func(int) string { return "fresh" }) // widen the bound to what a batch holds
	s := w.running(batched(10, func(c *config.Consumer) { c.MaxDeliver, c.Concurrency, c.Prefetch = 1, 1, 0 }))
	eventually(t, func() bool {
		info := w.consumer(durable)
		return info.NumPending == 0 && info.NumAckPending == len(late)
	}, text("the fresh ones to be done"))
	gate := make(chan struct{})
	open.Store(&gate)
	for _, m := range held {
		w.must(m.Nak())
	}
	eventually(t, func() bool { return w.app.inFlight() == 1 }, text("one of them at the app"))
	calls := w.app.count()
	s.stopping()
	close(gate)
	w.must(s.stop())
	if n := w.app.count(); n != calls {
		t.Errorf("%d requests after the stop began", n-calls)
	}
	for _, m := range w.read("KV_sidecar-state") {
		if m.header.Get("KV-Operation") != "PURGE" {
			t.Errorf("a mark stays: %v", m)
		}
	}
	w.batchAppOf(a, okay)
	w.running(batched(10, func(c *config.Consumer) { c.MaxDeliver = 1 }))
	a.balance(false)
	for _, seq := range append(late, fresh...) {
		if n := a.times[seq]; n != 1 {
			t.Errorf("message %d came %d times", seq, n)
		}
	}
}

// A replay is a batch of one, and its result counts.
func TestBatchReplay(t *testing.T) {
	w := newWorld(t)
	a := w.batchApp(func(b *batchCall) (reply, map[string]verdict) {
		vs := map[string]verdict{}
		for _, i := range b.items {
			if i.Headers["Dlq-Replays"] == nil || i.body() == "bad" {
				vs[i.ID] = verdict{"dlq", "no", 0}
			}
		}
		return reply{status: 200}, vs
	})
	w.publishMany(4, func(i int) string { return []string{"bad", "fixed"}[i%2] })
	w.running(batched(10))
	w.waitDone()
	w.waitDead(4)
	s := w.dlqWith(w.environment("SIDECAR_CONSUMERS_0_BATCH_MAX_MESSAGES=10"), "replay", "--yes")
	if s.code != 1 || !strings.Contains(s.out, "2 of 4 entries replayed") {
		t.Errorf("%+v", s)
	}
	for _, e := range w.dead() {
		if e.body != "bad" || e.header.Get("Dlq-Replays") != "1" || e.header.Get("Dlq-Error") != "no" {
			t.Errorf("entry %v %q", e.header, e.body)
		}
	}
	for _, b := range a.calls() {
		if b.items[0].Headers["Dlq-Replays"] != nil && len(b.items) != 1 {
			t.Errorf("a replay of %d", len(b.items))
		}
	}
}

// With the bucket, what one sidecar was answered the next one does not ask again.
func TestBatchBucket(t *testing.T) {
	w := newWorldOn(t, localnats.Options{})
	a := w.batchApp(okay)
	w.publishMany(50, func(int) string { return "x" })
	env := w.environment("SIDECAR_CONSUMERS_0_ACK_WAIT=1s", "SIDECAR_CONSUMERS_0_BATCH_MAX_MESSAGES=20", "SIDECAR_CONSUMERS_0_DEDUPE_STORE=kv")
	start(t, env...)
	a.balance(false)
	if n := w.streamInfo("KV_sidecar-dedupe").State.Msgs; n != 50 {
		t.Errorf("%d keys", n)
	}
}

// The bound on requests a second counts batches.
func TestBatchRate(t *testing.T) {
	w := newWorld(t)
	a := w.batchApp(okay)
	w.running(batched(4, func(c *config.Consumer) { c.Rate = 20 }))
	before := time.Now() // all requests: how long the first one took to arrive says nothing
	w.publishMany(40, func(int) string { return "x" })
	a.balance(false)
	n, took := w.app.count(), w.app.lastBegun().Sub(before)
	if n < 10 || took < time.Duration(n-1)*time.Second/20 {
		t.Errorf("%d requests within %s", n, took)
	}
}

// In both formats of CloudEvents a batch is one of events, signed like any request.
func TestBatchOfEvents(t *testing.T) {
	for _, format := range []string{"cloudevents", "cloudevents-json"} {
		t.Run(format, func(t *testing.T) {
			w := newWorld(t)
			w.app.on(func(c *call) reply {
				var events []map[string]any
				if err := json.Unmarshal([]byte(c.body), &events); err != nil || c.header.Get("Content-Type") != "application/cloudevents-batch+json" {
					t.Errorf("%v of %s", err, c.body)
				}
				if !signed(*c, newSecret) || !strings.HasPrefix(c.header.Get("webhook-id"), "batch_") {
					t.Errorf("signature %v", c.header)
				}
				for _, e := range events {
					if e["id"] == "m-7" {
						return reply{status: 200, body: `{"results":[{"id":"m-7","action":"dlq"}]}`}
					}
				}
				return reply{status: 200}
			})
			var bad uint64
			for i := range 30 {
				if seq := w.publish("orders.a", `{"n":1}`, fmt.Sprintf("Nats-Msg-Id: m-%d", i)); i == 7 {
					bad = seq
				}
			}
			w.running(batched(10, func(c *config.Consumer) { c.Format = format }), func(c *config.Config) { c.App.SigningSecret = []string{newSecret} })
			w.waitDone()
			if e := w.deadOf(bad); e.body != `{"n":1}` || len(w.dead()) != 1 {
				t.Errorf("entry %q", e.body)
			}
		})
	}
}

// Messages of batches wait in the retry stream where they would hold up new ones, and come from there in batches too.
func TestBatchAndTheRetryStream(t *testing.T) {
	w := newWorld(t)
	a := w.batchApp(func(b *batchCall) (reply, map[string]verdict) {
		vs := map[string]verdict{}
		for _, i := range b.items {
			if i.NumDelivered == 1 {
				vs[i.ID] = verdict{"retry", "", 2}
			}
		}
		return reply{status: 200}, vs
	})
	w.publishMany(80, func(int) string { return "x" })
	s := w.running(batched(10, func(c *config.Consumer) { c.MaxAckPending, c.Concurrency, c.Prefetch = 40, 2, 4 }))
	s.waitMetric("sidecar_moved_total", atLeast(10))
	a.balance(false)
	for seq := range a.times {
		if got := a.attempts(seq); len(got) != 2 || got[1] != 2 {
			t.Errorf("message %d: attempts %v", seq, got)
		}
	}
}
