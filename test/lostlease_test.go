package test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/policy"
)

// callsOf are the calls of a message, by itself or in a batch of JSON lines.
func (w *world) callsOf(seq uint64) []call {
	w.t.Helper()
	return slices.DeleteFunc(w.app.all(), func(c call) bool {
		if c.seq > 0 {
			return c.seq != seq
		}
		for line := range strings.Lines(c.body) {
			var i item
			w.must(json.Unmarshal([]byte(line), &i))
			if i.Sequence == seq {
				return false
			}
		}
		return true
	})
}

// uncalled are those of the first n messages that were not called.
func (w *world) uncalled(n uint64) (all []uint64) {
	w.t.Helper()
	for seq := range n {
		if len(w.callsOf(seq+1)) == 0 {
			all = append(all, seq+1)
		}
	}
	return all
}

// A verdict over a message that was delivered again meanwhile, since its durable was made anew, does not end it: it is not dead-lettered when
// the next call takes it. The next call waits, as after any failure.
func TestVerdictOverALostLease(t *testing.T) {
	for name, c := range map[string]struct {
		first  reply
		change func(*config.Consumer)
	}{
		"at the limit": {reply{status: 503}, func(c *config.Consumer) { c.MaxDeliver = 1 }},
		"rejected":     {reply{status: 422}, func(*config.Consumer) {}},
		"retried":      {reply{status: 503}, func(*config.Consumer) {}},
		"in order":     {reply{status: 503}, func(c *config.Consumer) { c.Order = "subject" }},
		"in a batch":   {reply{status: 422}, func(c *config.Consumer) { c.Batch.MaxMessages = 2 }},
	} {
		t.Run(name, func(t *testing.T) {
			const least = 500 * time.Millisecond
			w := newWorld(t)
			open := make(chan struct{})
			c.first.gate = open
			w.app.on(always(c.first))
			w.running(consumer(c.change), consumer(func(c *config.Consumer) {
				c.Concurrency = 2
				c.Retry = policy.RetryConfig{Initial: 2 * least, Multiplier: 1, Max: 2 * least, Jitter: 0.5, RetryAfterMax: time.Minute}
			}))
			first := w.publish("orders.a", "x")
			eventually(t, func() bool { return w.app.inFlight() == 1 }, text("the call"))
			w.app.on(always(reply{status: 200}))
			w.deleteDurable()
			eventually(t, func() bool { i := w.consumer(durable); return i != nil && i.NumAckPending == 1 }, text("the second delivery"))
			next := w.publish("orders.b", "x")
			// The worker that is free begins one message after the other.
			eventually(t, func() bool { return len(w.callsOf(next)) == 1 }, text("the next message to be called"))
			close(open)
			w.waitDone()
			calls := w.callsOf(first)
			if len(calls) != 2 || len(w.dead()) != 0 {
				t.Fatalf("%d calls, %d dead letters", len(calls), len(w.dead()))
			}
			if d := calls[1].begun.Sub(calls[0].ended); d < least {
				t.Errorf("called again after %s", d)
			}
		})
	}
}

// another is another client of the durable, which takes what it can get and acks it. It returns when it has all these messages, each with when it
// was acked.
func (w *world) another(sequences ...uint64) map[uint64]time.Time {
	w.t.Helper()
	ctx, cancel := within()
	defer cancel()
	cons, err := w.js.Consumer(ctx, stream, durable)
	w.must(err)
	done := map[uint64]time.Time{}
	eventually(w.t, func() bool {
		batch, err := cons.Fetch(10, natsjs.FetchMaxWait(200*time.Millisecond))
		w.must(err)
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			w.must(err)
			w.must(m.Ack())
			done[meta.Sequence.Stream] = time.Now()
		}
		return !slices.ContainsFunc(sequences, func(n uint64) bool { return done[n].IsZero() })
	}, text("another client to have the messages"))
	w.must(w.nc.Flush())
	return done
}

// A message is not dead-lettered for what the app answered to one sidecar when another client had it meanwhile and is done with it.
func TestRejectedAfterALongCut(t *testing.T) {
	w := newWorld(t)
	open := make(chan struct{})
	w.app.on(always(reply{status: 422, gate: open}))
	f := faraway(t, w.urls[0], 0)
	s := w.running(f.nats, consumer(func(c *config.Consumer) { c.AckWait, c.Concurrency, c.Prefetch = time.Second, 1, 0 }))
	first := w.publish("orders.a", "x")
	eventually(t, func() bool { return w.app.inFlight() == 1 }, text("the call"))
	f.part(true)
	w.another(first)
	f.part(false)
	s.waitReady()
	close(open)
	second := w.publish("orders.a", "x") // dead letters are stored one after the other
	w.deadOf(second)
	if dead := w.dead(); len(dead) != 1 {
		t.Errorf("%d dead letters", len(dead))
	}
	w.waitDone()
}

// What waited for the breaker is not called when another client had it meanwhile.
func TestLeaseLostBeforeTheBreaker(t *testing.T) {
	for name, change := range map[string]func(*config.Consumer){
		"one by one":  func(*config.Consumer) {},
		"in a batch":  func(c *config.Consumer) { c.Batch.MaxMessages = 4 },
		"with places": func(c *config.Consumer) { c.Adaptive = true },
	} {
		t.Run(name, func(t *testing.T) {
			const n = 24
			w := newWorld(t)
			w.app.on(always(reply{status: 503}))
			f := faraway(t, w.urls[0], 0)
			s := w.running(f.nats, breaking(func(c *config.Consumer) {
				c.AckWait, c.MaxDeliver, c.Prefetch = time.Second, 0, 0
				c.Retry.Initial, c.Retry.Max = time.Hour, time.Hour
				c.Breaker.ProbeInterval, c.Breaker.ProbeMax = 2*time.Second, 2*time.Second
			}), consumer(change), func(c *config.Config) { c.App.Ready.Path = "/" })
			for range n {
				w.publish("orders.a", "x")
			}
			s.waitMetric("sidecar_breaker_open", atLeast(1))
			eventually(t, func() bool {
				return w.app.inFlight() == 0 && w.consumer(durable).NumAckPending > n-len(w.uncalled(n))
			}, text("a message waits for the breaker"))
			w.app.setReady(503)
			s.waitMetric("sidecar_app_up", func(v float64) bool { return v == 0 })
			eventually(t, func() bool { return w.app.inFlight() == 0 }, text("nothing is in flight"))
			f.part(true)
			had := w.another(w.uncalled(n)...)
			f.part(false)
			s.waitCheck("consumer", true)
			w.app.on(always(reply{status: 200}))
			w.app.setReady(200)
			last := w.publish("orders.a", "x")
			eventually(t, func() bool { return len(w.callsOf(last)) > 0 }, text("the last one to be called"))
			for seq, at := range had {
				for _, c := range w.callsOf(seq) {
					if c.begun.After(at) {
						t.Errorf("message %d was called, which another client had acked", seq)
					}
				}
			}
		})
	}
}

// Nor is what waited for a connection to the app.
func TestLeaseLostBeforeTheConnection(t *testing.T) {
	for _, protocol := range []string{"http1", "h2c"} {
		t.Run(protocol, func(t *testing.T) {
			w := newWorld(t)
			if protocol == "h2c" {
				w.app.speakH2C()
			}
			f := faraway(t, w.urls[0], 0)
			s := w.running(f.nats, consumer(func(c *config.Consumer) { c.AckWait, c.Concurrency, c.Prefetch = time.Second, 1, 0 }),
				func(c *config.Config) { c.App.Protocol, c.App.Ready.Interval = protocol, 10*time.Second })
			w.app.down()
			first := w.publish("orders.a", "x")
			s.waitCheck("app", false) // it was tried
			if n := w.consumer(durable).NumAckPending; n != 1 {
				t.Fatalf("%d leased", n)
			}
			f.part(true)
			w.another(first)
			f.part(false)
			s.waitCheck("consumer", true)
			w.app.up()
			last := w.publish("orders.a", "x")
			eventually(t, func() bool { return len(w.app.of(last)) == 1 }, text("the last one to be called"))
			if n := len(w.app.of(first)); n != 0 {
				t.Errorf("%d calls of a message that another client had acked", n)
			}
			w.waitDone()
		})
	}
}
