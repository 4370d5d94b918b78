package jetstream

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// batchOf leases n messages in one batch.
func (b *bench) batchOf(n int) []*Message {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	var batch []*Message
	for len(batch) < n {
		batch = b.source.NextBatch(ctx, BatchConfig{MaxMessages: n - len(batch), MaxBytes: 1 << 20, MaxWait: 5 * time.Second}, batch)
		if ctx.Err() != nil {
			b.t.Fatalf("%d messages came", len(batch))
		}
	}
	return batch
}

// Of acks that are confirmed together none counts as confirmed while one is missing; then each is sent again by itself.
func TestAcksOfABatchThatAreLost(t *testing.T) {
	for name, heard := range map[string]bool{"nobody is there": false, "lost on the way": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{})
			cfg := b.config()
			cfg.Concurrency, cfg.AckWait = 10, 10*time.Minute // what is missing does not come again meanwhile
			b.run(cfg)
			b.publish(10)
			batch := b.batchOf(10)
			if heard {
				b.must(b.nc.Subscribe("elsewhere", func(*nats.Msg) {}))
				b.must(nil, b.nc.Flush())
			}
			b.source.mu.Lock()
			right := batch[4].reply
			batch[4].reply = "elsewhere"
			for _, m := range batch {
				b.source.note(m, ack)
			}
			b.source.outbox = nil
			if !b.source.sendGroup(batch, time.Now()) {
				t.Error("they are not sent")
			}
			b.source.mu.Unlock()
			b.eventually("nine are acked", func() bool { return b.info().NumAckPending == 1 })
			b.eventually("nine are confirmed", func() bool { return b.source.Leased() == 1 })
			b.source.mu.Lock()
			for i, m := range batch {
				if heard && i != 4 && m.resend == resendAfter {
					t.Errorf("ack %d was confirmed by the others, and not sent again", i)
				}
			}
			batch[4].reply = right
			b.source.mu.Unlock()
			b.eventually("all are confirmed", func() bool { return b.source.Leased() == 0 && b.info().NumAckPending == 0 })
		})
	}
}

// Acks of a batch over a reconnect are sent again.
func TestAcksOfABatchOverAReconnect(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	cfg := b.config()
	cfg.Concurrency = 200
	b.run(cfg)
	b.publish(200)
	batch := b.batchOf(150)
	b.source.AckAll(batch[:10])
	if err := b.server.DisconnectClientByID(b.clientID()); err != nil {
		t.Fatal(err)
	}
	b.source.AckAll(batch)
	b.eventually("all are confirmed", func() bool { return b.info().AckFloor.Stream >= 150 && b.source.Flush(b.ctx) == 0 })
	b.source.mu.Lock()
	defer b.source.mu.Unlock()
	if n := len(b.source.groups); n > 2 {
		t.Errorf("%d groups are remembered", n)
	}
}

// A message that does not fit is in the next batch, and handed back at a stop.
func TestBatchLeavesWhatDoesNotFit(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.run(b.config())
	b.publish(3)
	b.eventually("three are leased", func() bool { return b.source.Leased() == 3 })
	one := b.source.NextBatch(b.ctx, BatchConfig{MaxMessages: 3, MaxBytes: 1, MaxWait: time.Second}, nil)
	two := b.source.NextBatch(b.ctx, BatchConfig{MaxMessages: 3, MaxBytes: 1, MaxWait: time.Second}, nil)
	if len(one) != 1 || len(two) != 1 || two[0].Sequence != one[0].Sequence+1 {
		t.Fatalf("batches of %d and %d", len(one), len(two))
	}
	if left := b.source.TakeReady(); left == nil || left.Sequence != two[0].Sequence+1 || b.source.TakeReady() != nil {
		t.Errorf("left is %v", left)
	}
}

// Leases that were not worth a request of their own while enough was ready fill a batch that has taken all of that.
func TestBatchUsesTheLastLeases(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	cfg := b.config()
	cfg.Concurrency, cfg.Prefetch = 20, 30
	b.publish(60)
	b.run(cfg)
	b.eventually("it rests with half of the prefetch", func() bool {
		b.source.mu.Lock()
		defer b.source.mu.Unlock()
		coming, _ := b.source.expected()
		return len(b.source.ready) > cfg.Prefetch/2 && coming == 0
	})
	if batch := b.source.NextBatch(b.ctx, BatchConfig{MaxMessages: 40, MaxBytes: 1 << 20, MaxWait: time.Hour}, nil); len(batch) != 40 {
		t.Errorf("a batch of %d", len(batch))
	}
}

// Batches of an app that is slow from the start are full all the same, and verdict by verdict all that may be leased is.
func TestBatchesOfASlowAppGrow(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	cfg := b.config()
	cfg.Concurrency, cfg.Prefetch = 20, 30
	b.publish(200)
	b.run(cfg)
	work := [][]*Message{b.batchOf(1), b.batchOf(1)} // one message each: the least that a start can bring
	for range 8 {
		b.source.AckAll(work[0])
		next := b.source.NextBatch(b.ctx, BatchConfig{MaxMessages: 10, MaxBytes: 1 << 20, MaxWait: time.Hour}, nil)
		if len(next) != 10 {
			t.Errorf("a batch of %d", len(next))
		}
		work = [][]*Message{work[1], next}
	}
	b.eventually("all is leased but what is not worth a request", func() bool { return b.source.Leased() > 20+30-enoughToAsk })
	if n := b.source.Leased(); n > 20+30 {
		t.Errorf("%d leased", n)
	}
}
