package jetstream

import (
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Requests that came with acks may wait for long, as they have no heartbeat that tells of them: what is asked for meanwhile and what they still
// bring are together no more than may be leased, also where others have messages of the durable.
func TestAcksThatAskAreNotAnsweredForLong(t *testing.T) {
	for name, disturb := range map[string]func(*bench){
		"undisturbed": func(*bench) {},
		"cut":         func(b *bench) { b.server.DisconnectClientByID(b.clientID()) },
	} {
		t.Run(name, func(t *testing.T) {
			const others = 5
			b := newBench(t, natsjs.StreamConfig{})
			b.flood(1000, 100)
			cfg := b.config()
			cfg.Concurrency, cfg.Prefetch = 8, 8
			b.run(cfg)
			b.holdByAnother(others)
			asked := b.asked()
			var held []*Message
			for range 300 {
				if held = append(held, b.next()); len(held) == cfg.Concurrency {
					held[0].Ack()
					held = held[1:]
				}
			}
			b.eventually("as much is leased as may be, but for what is not worth a request", func() bool {
				b.source.mu.Lock()
				defer b.source.mu.Unlock()
				return b.source.coming == 0 && len(b.source.ready)+len(held) > cfg.Concurrency+cfg.Prefetch/2
			})
			b.mayAsk()
			b.must(b.js.PauseConsumer(b.ctx, "S", "d", time.Now().Add(time.Hour)))
			before := asked.Load()
			for range len(b.source.ready) {
				held = append(held, b.next())
			}
			for _, m := range held {
				m.Ack()
			}
			b.eventually("acks asked in vain", func() bool { return asked.Load() > before })
			disturb(b)
			b.eventually("nothing waits for their answers", func() bool {
				b.source.mu.Lock()
				defer b.source.mu.Unlock()
				for _, l := range b.source.lanes {
					if l.exchange && l.open > 0 {
						return false
					}
				}
				return b.source.coming > 0 && len(b.source.leases) == 0
			})
			b.must(b.js.ResumeConsumer(b.ctx, "S", "d"))
			b.eventually("all that was asked for came", func() bool { i := b.info(); return i.NumWaiting == 0 && i.NumPending > 0 })
			if n := b.info().NumAckPending - others; n > cfg.Concurrency+cfg.Prefetch {
				t.Errorf("%d leased, the bound is %d", n, cfg.Concurrency+cfg.Prefetch)
			}
			for range cfg.Concurrency + cfg.Prefetch - others {
				b.next().Ack()
			}
		})
	}
}

// holdByAnother has another client lease n messages, and not settle them.
func (b *bench) holdByAnother(n int) {
	b.t.Helper()
	var cons natsjs.Consumer
	b.eventually("the durable is there", func() (ok bool) {
		var err error
		cons, err = b.js.Consumer(b.ctx, "S", "d")
		return err == nil
	})
	batch, err := cons.Fetch(n)
	b.must(nil, err)
	got := 0
	for range batch.Messages() {
		got++
	}
	if got != n {
		b.t.Fatalf("another client got %d messages", got)
	}
}
