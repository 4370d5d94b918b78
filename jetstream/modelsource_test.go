package jetstream

import (
	"context"
	"sync"
	"testing"
	"time"
)

// modelBench is a source that serves a model of a durable, in a bubble.
type modelBench struct {
	t       *testing.T
	durable *fakeDurable
	wire    *fakeWire
	source  *Source
}

// runModel runs a source on a model until the test's end. It is bound, and n messages are stored.
func runModel(t *testing.T, ackWait time.Duration, n int, change func(*ConsumerConfig)) *modelBench {
	t.Helper()
	cfg := ConsumerConfig{
		Stream: "S", Durable: "d", Manage: ManageNone, AckWait: ackWait, MaxAckPending: 1000, Concurrency: 2, MaxBytes: 1 << 20,
	}
	change(&cfg)
	b := &modelBench{t: t, durable: newFakeDurable(1, ackWait, cfg.Ordered, false)}
	b.wire = b.durable.connect()
	for range n {
		b.durable.publish("s.x")
	}
	conn, err := b.wire.client()
	if err != nil {
		t.Fatal(err)
	}
	b.source = NewSource(conn, cfg, quiet())
	if cfg.Ordered {
		b.source.Tell(func(m *Message) Key { return Key{Alone: m.Sequence} }, func(*Message) *Message { return nil }, func() {})
	}
	ctx, cancel := context.WithCancel(context.Background())
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { b.durable.run(stop) })
	running.Go(func() { _ = b.source.Run(ctx) })
	b.source.Pull(PullAll)
	t.Cleanup(func() {
		cancel()
		close(stop)
		hangUp(conn)
		b.wire.set(true)
		running.Wait()
		time.Sleep(2 * stallStep) // until all of the wire is over
	})
	return b
}

// next is the next message, which must come soon.
func (b *modelBench) next() *Message {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		if b.source.order == nil {
			if m := b.source.Next(ctx); m != nil {
				return m
			}
		} else if m := b.source.Take(ctx); m != nil && b.source.Begin(ctx, m) {
			return m
		}
	}
	b.t.Fatal("no message came")
	return nil
}

// deliveries is how many there were.
func (b *modelBench) deliveries() int {
	b.durable.mu.Lock()
	defer b.durable.mu.Unlock()
	return int(b.durable.number)
}

// pending is how many messages are.
func (b *modelBench) pending() int {
	b.durable.mu.Lock()
	defer b.durable.mu.Unlock()
	return len(b.durable.pending)
}

// loseQuestions has the questions for the durable lost, or answered again.
func (b *modelBench) loseQuestions(yes bool) {
	b.durable.mu.Lock()
	defer b.durable.mu.Unlock()
	b.durable.deaf = yes
}

// lanes is how many inboxes there are, and how many messages they may bring.
func (b *modelBench) lanes() (n, coming int) {
	b.source.mu.Lock()
	defer b.source.mu.Unlock()
	return len(b.source.lanes), b.source.coming
}
