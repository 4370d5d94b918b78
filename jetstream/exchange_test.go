package jetstream

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// flood stores n messages of a size.
func (b *bench) flood(n, size int) {
	b.t.Helper()
	body := make([]byte, size)
	for left := n; left > 0; left -= 1000 {
		stored := map[string]natsjs.PubAckFuture{}
		for range min(left, 1000) {
			id := nats.NewInbox()
			future, err := b.js.PublishAsync("s.x", body, natsjs.WithMsgID(id))
			b.must(nil, err)
			stored[id] = future
		}
		late, cancel := context.WithTimeout(b.ctx, 10*time.Second)
		for id, future := range stored {
			select {
			case <-future.Ok():
				continue
			case <-future.Err():
			case <-late.Done():
			}
			b.storeOnce(body, id)
		}
		cancel()
	}
}

// asked counts the acks that ask for a message, as the server sees them.
func (b *bench) asked() *atomic.Int64 {
	b.t.Helper()
	var n atomic.Int64
	b.must(b.nc.Subscribe("$JS.ACK.S.d.>", func(m *nats.Msg) {
		if bytes.HasPrefix(m.Data, nextWire) {
			n.Add(1)
		}
	}))
	b.must(nil, b.nc.Flush())
	return &n
}

// What is relied upon of the server: an ack that asks for a message is done before the request that it is, on a message that is pending, and
// on one that is not any more; one that does not fit is told.
func TestAckThatAsks(t *testing.T) {
	for _, retention := range []natsjs.RetentionPolicy{natsjs.LimitsPolicy, natsjs.InterestPolicy, natsjs.WorkQueuePolicy} {
		t.Run(retention.String(), func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{Retention: retention})
			b.must(b.js.CreateConsumer(b.ctx, "S", natsjs.ConsumerConfig{Durable: "d", AckPolicy: natsjs.AckExplicitPolicy}))
			b.publish(10)
			sub, err := b.nc.SubscribeSync("answers.*")
			b.must(nil, err)
			ask := func(subject, body string) *nats.Msg {
				b.must(nil, b.nc.PublishRequest(subject, "answers.1", []byte(body)))
				m, err := sub.NextMsg(patience)
				b.must(nil, err)
				return m
			}
			first := ask("$JS.API.CONSUMER.MSG.NEXT.S.d", "")
			second := ask(first.Reply, "+NXT")
			if n := b.info().NumAckPending; n != 1 || string(second.Data) != "1" {
				t.Fatalf("%d pending, and %q came", n, second.Data)
			}
			again := ask(first.Reply, "+NXT")
			if n := b.info().NumAckPending; n != 2 || string(again.Data) != "2" {
				t.Fatalf("after a second ack %d pending, and %q came", n, again.Data)
			}
			status := ask(again.Reply, `+NXT {"batch":1,"max_bytes":10}`)
			if n := b.info().NumAckPending; n != 1 || status.Header.Get("Status") != "409" || status.Header.Get("Nats-Pending-Messages") != "1" {
				t.Fatalf("%d pending, and the answer to a request for 10 bytes is %v", n, status.Header)
			}
			fits := ask(second.Reply, `+NXT {"batch":1,"max_bytes":1000}`)
			done, err := sub.NextMsg(patience)
			b.must(nil, err)
			if n := b.info().NumAckPending; n != 1 || string(fits.Data) != "3" || done.Header.Get("Nats-Pending-Messages") != "0" {
				t.Fatalf("%d pending, and the answers are %q and %v", n, fits.Data, done.Header)
			}
		})
	}
}

// While acks ask for messages never more is leased than the bound, as the server counts it, and nothing is lost, whatever
// happens to the connection and to who leads the durable.
func TestLeaseBoundWhileAcksAsk(t *testing.T) {
	const messages = 3000
	for _, c := range []struct {
		name     string
		replicas int
		disturb  func(b *bench)
	}{
		{"undisturbed", 1, func(*bench) {}},
		{"cuts", 1, func(b *bench) { b.server.DisconnectClientByID(b.clientID()) }},
		{"restarts", 1, func(b *bench) { b.restart() }},
		{"replicated", 3, func(*bench) {}},
		{"replicated, cuts", 3, func(b *bench) { _ = b.conn.nc().ForceReconnect() }},
		{"replicated, leader changes", 3, func(b *bench) { _, _ = b.nc.Request("$JS.API.CONSUMER.LEADER.STEPDOWN.S.d", nil, 5*time.Second) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b *bench
			if c.replicas > 1 {
				b, _ = newClusterBench(t)
			} else {
				b = newBench(t, natsjs.StreamConfig{})
			}
			b.flood(messages, 100)
			asked := b.asked()
			cfg := b.config()
			cfg.AckWait, cfg.Concurrency, cfg.Prefetch = 10*time.Second, 12, 8 // what a leader had sent and nobody got comes again after it; a lost lease would count twice
			b.run(cfg)
			most := b.watchPending()
			seen := b.ackAtOnce(messages, cfg.Concurrency, func(n int) {
				if n%1000 == 500 {
					c.disturb(b)
				}
			})
			if n := most(); n > cfg.Concurrency+cfg.Prefetch {
				t.Errorf("%d leased, the bound is %d", n, cfg.Concurrency+cfg.Prefetch)
			}
			if seen != messages {
				t.Errorf("%d of %d messages came", seen, messages)
			}
			least := int64(messages / 20)
			b.source.mu.Lock()
			if !b.source.exchangeFrom.IsZero() {
				least = 1 // they rested: one was not answered in time
			}
			b.source.mu.Unlock()
			if n := asked.Load(); c.replicas == 1 && n < least || c.replicas > 1 && n > 0 {
				t.Errorf("%d acks asked for a message", n)
			}
			b.eventually("no lease is covered any more", func() bool {
				b.source.mu.Lock()
				defer b.source.mu.Unlock()
				return b.source.covered == 0 && len(b.source.leases) == 0
			})
		})
	}
}

// watchPending watches what is pending at the server, almost as often as it answers, until the returned function is called, which tells the most.
func (b *bench) watchPending() func() int {
	ctx, cancel := context.WithCancel(b.ctx)
	var watch sync.WaitGroup
	most := 0
	watch.Go(func() {
		look := time.NewTicker(time.Millisecond) // without a pause it would take the processor from who elects a leader
		defer look.Stop()
		for ; ctx.Err() == nil; <-look.C {
			ask, done := context.WithTimeout(ctx, time.Second)
			if cons, err := b.js.Consumer(ask, "S", "d"); err == nil {
				most = max(most, cons.CachedInfo().NumAckPending)
			}
			done()
		}
	})
	b.t.Cleanup(func() { cancel(); watch.Wait() })
	return func() int { cancel(); watch.Wait(); return most }
}

// ackAtOnce acks what comes, many at a time, until all of n messages came and nothing is pending. It returns how many came.
func (b *bench) ackAtOnce(n, workers int, each func(n int)) int {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	var mu sync.Mutex
	var calls atomic.Int64
	seen := map[uint64]bool{}
	var work sync.WaitGroup
	for range workers {
		work.Go(func() {
			for m := b.source.Next(ctx); m != nil; m = b.source.Next(ctx) {
				mu.Lock()
				seen[m.Sequence] = true
				mu.Unlock()
				m.Ack()
				each(int(calls.Add(1)))
			}
		})
	}
	b.dwindles(fmt.Sprintf("what is left until %d messages came and are acked", n), func() int {
		info, err := b.askInfo(2 * time.Second)
		if err != nil {
			return math.MaxInt
		}
		mu.Lock()
		defer mu.Unlock()
		return max(0, n-len(seen)) + info.NumAckPending + int(info.NumPending) + b.source.Leased()
	})
	cancel()
	work.Wait()
	return len(seen)
}

// An ack whose request is not answered is sent again by itself, also where the request still waits, and at a stop at once. What the
// request brings after all is taken.
func TestAckThatAskedInVain(t *testing.T) {
	for _, stop := range []bool{false, true} {
		t.Run(fmt.Sprintf("stop %v", stop), func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{})
			b.flood(500, 100)
			cfg := b.config()
			cfg.Concurrency, cfg.Prefetch = 8, 8
			b.run(cfg)
			asked := b.asked()
			var held []*Message
			for range 300 {
				if held = append(held, b.next()); len(held) == 8 {
					held[0].Ack()
					held = held[1:]
				}
			}
			b.mayAsk()
			b.must(b.js.PauseConsumer(b.ctx, "S", "d", time.Now().Add(time.Hour)))
			before := asked.Load()
			for _, m := range held {
				m.Ack()
			}
			b.eventually("acks asked in vain", func() bool { return asked.Load() > before })
			if stop {
				b.source.StopPulling(b.ctx)
				for m := b.source.TakeReady(); m != nil; m = b.source.TakeReady() {
					m.HandBack()
				}
				if n := b.source.Flush(b.ctx); n != 0 {
					t.Errorf("%d verdicts are not confirmed", n)
				}
				return
			}
			b.eventually("all acks are confirmed", func() bool {
				for m := b.source.TakeReady(); m != nil; m = b.source.TakeReady() {
					m.Ack()
				}
				b.source.mu.Lock()
				defer b.source.mu.Unlock()
				return len(b.source.settling) == 0 && len(b.source.leases) == 0
			})
			if n := b.info().NumAckPending; n != 0 {
				t.Errorf("%d messages are pending", n)
			}
			b.source.mu.Lock()
			if b.source.covered != 0 {
				t.Errorf("%d leases are covered, and all acks are confirmed", b.source.covered)
			}
			b.source.mu.Unlock()
			b.must(b.js.ResumeConsumer(b.ctx, "S", "d"))
			b.drain()
		})
	}
}

// mayAsk waits until acks may ask for messages: they rest after one that was not answered in time.
func (b *bench) mayAsk() {
	b.t.Helper()
	b.eventually("acks may ask", func() bool {
		b.source.mu.Lock()
		defer b.source.mu.Unlock()
		now := time.Now()
		return !now.Before(b.source.exchangeFrom) && !now.Before(b.source.notBefore)
	})
}

// Acks ask for no more bytes than may be leased, whatever the sizes are.
func TestBytesWhileAcksAsk(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	for range 3 {
		b.flood(600, 100)
		b.flood(20, 300<<10)
	}
	b.flood(200, 100)
	asked := b.asked()
	cfg := b.config()
	cfg.Concurrency, cfg.Prefetch, cfg.MaxBytes = 12, 8, 3<<20
	b.run(cfg)
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	var most int64
	var watch sync.WaitGroup
	watch.Go(func() {
		look := time.NewTicker(100 * time.Microsecond) // without a pause it would keep the lock
		defer look.Stop()
		for ; ctx.Err() == nil; <-look.C {
			b.source.mu.Lock()
			most = max(most, b.source.bytes)
			b.source.mu.Unlock()
		}
	})
	if seen := b.ackAtOnce(2060, cfg.Concurrency, func(int) {}); seen != 2060 {
		t.Errorf("%d messages came", seen)
	}
	cancel()
	watch.Wait()
	if most > cfg.MaxBytes {
		t.Errorf("%d bytes leased of %d", most, cfg.MaxBytes)
	}
	if asked.Load() == 0 {
		t.Error("no ack asked for a message")
	}
}

// The numbers of deliveries tell that the durable is the one bound to only where no other can have come to them.
func TestCountTellsTheDurable(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		number, highest uint64
		evidence        time.Time
		tells           bool
	}{
		"goes on":             {longCount + 1, longCount, now.Add(-freshEvidence / 2), true},
		"others had some":     {longCount + 100, longCount, now.Add(-freshEvidence / 2), true},
		"few so far":          {longCount, longCount - 1, now.Add(-freshEvidence / 2), false},
		"was seen before":     {longCount, longCount, now.Add(-freshEvidence / 2), false},
		"nothing for a while": {longCount + 1, longCount, now.Add(-freshEvidence), false},
	} {
		s := &Source{highest: test.highest, evidence: test.evidence}
		if s.continues(test.number, now); s.counting.Equal(now) != test.tells {
			t.Errorf("%s: it tells: %v", name, !test.tells)
		}
	}
}
