package jetstream

import (
	"slices"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// While the app hangs, a durable that is deleted again and again has each message delivered once in each of its lives: what is left of the
// lives before takes no room from it.
func TestDeletedWhileTheAppHangs(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.publish(100)
	cfg := b.config()
	cfg.Prefetch = 1
	b.run(cfg)
	limit := cfg.Concurrency + cfg.Prefetch
	for range cfg.Concurrency {
		b.next() // the workers are busy with these to the end
	}
	for life := range 4 {
		if life > 0 {
			before := b.info().Created
			b.must(nil, b.js.DeleteConsumer(b.ctx, "S", "d"))
			b.eventually("the durable is made anew", func() bool {
				cons, err := b.js.Consumer(b.ctx, "S", "d")
				return err == nil && cons.CachedInfo().Created.After(before)
			})
		}
		b.eventually("all are leased", func() bool { return b.source.Leased() == limit && b.info().NumAckPending == limit })
		if n := b.info().Delivered.Consumer; n > uint64(limit) {
			t.Errorf("life %d: %d deliveries", life, n)
		}
	}
	var got []uint64
	for range limit {
		got = append(got, b.next().Sequence)
	}
	if slices.Sort(got); !slices.Equal(got, []uint64{1, 2, 3, 4, 5}) {
		t.Errorf("got %v", got)
	}
}

// What is put back while what is released is dropped keeps its order, and there is room for it.
func TestDropReleased(t *testing.T) {
	s := NewSource(nil, ConsumerConfig{Stream: AdvisoryStream, Concurrency: 2, Prefetch: 1}, quiet())
	for seq := range uint64(6) {
		m := &Message{Sequence: seq}
		m.released.Store(seq%2 == 0)
		if !s.put(m) {
			t.Fatalf("no room for %d", seq)
		}
	}
	for seq := uint64(6); s.put(&Message{Sequence: seq}); seq++ {
	}
	var got []uint64
	for len(s.ready) > 0 {
		got = append(got, (<-s.ready).Sequence)
	}
	if !slices.Equal(got, []uint64{1, 3, 5, 6, 7, 8}) {
		t.Errorf("got %v", got)
	}
}
