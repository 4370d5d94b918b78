package jetstream

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Where one pull request may wait, a source that waits for its turn leaves that place to the one that the durable is pinned to, and takes over
// when that one is gone.
func TestStandbyLeavesRoom(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	cfg := b.ordered()
	cfg.Concurrency, cfg.Prefetch = 1, 0
	made := cfg.wanted()
	made.MaxWaiting, made.PinnedTTL = 1, 10*pinTTL
	b.must(b.js.CreateConsumer(b.ctx, "S", made))
	b.run(cfg)
	b.publish(1)
	held := b.takeAll() // so no request of its own waits
	one, pin := b.source, b.pinID()
	b.eventually("it knows that it is pinned to it", func() bool { one.mu.Lock(); defer one.mu.Unlock(); return one.pin.id == pin })
	makesWay := func(s *Source) bool { s.mu.Lock(); defer s.mu.Unlock(); return s.makesWay }

	b.run(cfg)
	two := b.source
	b.eventually("the other one's request waits", func() bool { return b.info().NumWaiting == 1 })
	b.eventually("it makes way", func() bool { return makesWay(two) && b.info().NumWaiting == 0 })
	b.publish(20)
	held.Ack()
	b.source = one
	for range 20 {
		b.takeAll().Ack()
	}
	b.eventually("everything is acked", b.settled)
	if makesWay(one) || b.pinID() != pin {
		t.Error("it is not pinned to the first any more, or that one makes way")
	}

	one.StopPulling(b.ctx)
	one.Unpin(b.ctx)
	b.publish(20)
	b.source = two
	for range 20 {
		b.takeAll().Ack()
	}
	b.eventually("everything is acked", b.settled)
}

// A durable for one sidecar at a time at which few pull requests may wait is warned of.
func TestFewMayWait(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	cfg := b.ordered()
	for _, most := range []int{fewWaiting - 1, fewWaiting} {
		cfg.Durable = fmt.Sprint("d", most)
		made := cfg.wanted()
		made.MaxWaiting = most
		cons, err := b.js.CreateConsumer(b.ctx, "S", made)
		b.must(nil, err)
		warned := slices.ContainsFunc(b.conn.Check(b.ctx, cfg, DeadLetterConfig{}), func(f Finding) bool {
			return f.Level == Warning && strings.HasPrefix(f.Detail, "its max_waiting is")
		})
		at := slices.ContainsFunc(NewSource(b.conn, cfg, quiet()).warnings(&binding{info: cons.CachedInfo()}), func(w string) bool {
			return strings.HasPrefix(w, "its max_waiting is")
		})
		if want := most < fewWaiting; warned != want || at != want {
			t.Errorf("max_waiting %d: check warns %v, the source %v, want %v", most, warned, at, want)
		}
	}
}
