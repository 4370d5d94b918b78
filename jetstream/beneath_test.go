package jetstream

import (
	"context"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// unpinned makes a durable as by hand, that is not pinned to one client, with a filter.
func (b *bench) unpinned(filter string) natsjs.Consumer {
	b.t.Helper()
	cons, err := b.js.CreateConsumer(b.ctx, "S", natsjs.ConsumerConfig{
		Durable: "d", AckPolicy: natsjs.AckExplicitPolicy, AckWait: shortAckWait, MaxAckPending: 1000, MaxDeliver: -1, FilterSubject: filter,
	})
	b.must(cons, err)
	return cons
}

// keeps leases the next message as another client does, and keeps it alive until the test ends or the message is settled.
func (b *bench) keeps(cons natsjs.Consumer) natsjs.Msg {
	b.t.Helper()
	m, err := cons.Next()
	b.must(m, err)
	ctx, cancel := context.WithCancel(b.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if m.InProgress() != nil {
					return
				}
			}
		}
	}()
	b.t.Cleanup(func() { cancel(); <-ended })
	return m
}

// The first message goes on while another client has a later one, also if what is between it and the floor is not wanted.
func TestTheFirstOfAllGoesOn(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	for range 3 {
		b.must(b.js.Publish(b.ctx, "s.other", nil))
	}
	b.publish(2)
	cons := b.unpinned("s.x")
	first := b.keeps(cons)
	later := b.keeps(cons)
	cfg := b.ordered()
	cfg.FilterSubjects = []string{"s.x"}
	b.run(cfg)
	b.must(nil, first.Nak())
	m := b.takeAll()
	if m.Sequence != 4 {
		t.Fatalf("%d came", m.Sequence)
	}
	m.Ack()
	b.must(nil, later.DoubleAck(b.ctx))
	b.eventually("everything is acked", b.settled)
}

// What was delivered by a filter that was edited since holds up what comes after it.
func TestEditedFilterKeepsTheOrder(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	cons := b.unpinned("s.old")
	cfg := b.ordered()
	cfg.FilterSubjects = []string{"s.x"}
	b.must(b.js.Publish(b.ctx, "s.other", nil))
	b.must(b.js.Publish(b.ctx, "s.old", nil))
	theirs := b.keeps(cons)
	b.run(cfg)
	edited := cons.CachedInfo().Config
	edited.FilterSubject = "s.x"
	b.must(b.js.UpdateConsumer(b.ctx, "S", edited))
	b.publish(1)
	b.eventually("the new one is leased", func() bool { return b.source.Leased() == 1 })
	ctx, cancel := context.WithTimeout(b.ctx, 3*cfg.AckWait)
	defer cancel()
	if m := b.source.Take(ctx); m != nil {
		t.Fatalf("%d was offered", m.Sequence)
	}
	b.must(nil, theirs.DoubleAck(b.ctx))
	b.takeAll().Ack()
	b.eventually("everything is acked", b.settled)
}
