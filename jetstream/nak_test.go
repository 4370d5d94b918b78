package jetstream

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// unheard makes the confirmation of a message's verdict one that is not recognized, as if it were lost on its way.
func unheard(m *Message) {
	m.source.mu.Lock()
	defer m.source.mu.Unlock()
	delete(m.source.leases, m.lease)
}

// A nak whose confirmation was lost is not sent again where the message may be in work elsewhere: the server would deliver it
// once more. It is where no other sidecar is.
func TestNakIsNotRepeatedWhereOthersAre(t *testing.T) {
	for _, others := range []bool{true, false} {
		name := map[bool]string{true: "others", false: "alone"}[others]
		t.Run(name, func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{})
			cfg := b.config()
			cfg.AckWait = 20 * time.Second
			var naks atomic.Uint64
			b.must(b.nc.Subscribe("$JS.EVENT.ADVISORY.CONSUMER.MSG_NAKED.>", func(*nats.Msg) { naks.Add(1) }))
			b.must(nil, b.nc.Flush())
			b.run(cfg)
			b.publish(1)
			m := b.next()
			b.source.Pull(PullNothing) // so that the message goes to the other one
			b.eventually("it does not pull", func() bool { return b.info().NumWaiting == 0 })
			if others {
				other := NewSource(b.conn, cfg, quiet())
				ctx, cancel := context.WithCancel(b.ctx)
				done := make(chan struct{})
				go func() { defer close(done); _ = other.Run(ctx) }()
				t.Cleanup(func() { cancel(); <-done })
				other.Pull(PullAll)
				unheard(m)
				m.HandBack()
				if again := other.Next(b.ctx); again.Sequence != m.Sequence || again.Delivered != 2 {
					t.Fatalf("message %d, delivery %d", again.Sequence, again.Delivered)
				}
			} else {
				unheard(m)
				m.Nak(time.Hour)
				b.eventually("it is sent", func() bool { return naks.Load() == 1 })
			}
			sentAt := func() time.Time {
				b.source.mu.Lock()
				defer b.source.mu.Unlock()
				return m.sentAt
			}
			before := sentAt()
			b.source.connectionChanged(true) // as after a cut
			b.eventually("it was thought of again", func() bool { return !sentAt().IsZero() && sentAt() != before })
			want := map[bool]uint64{true: 1, false: 2}[others]
			if !others {
				b.eventually("it is sent again", func() bool { return naks.Load() == want })
			}
			ctx, cancel := context.WithTimeout(b.ctx, patience)
			defer cancel()
			b.must(nil, b.conn.Flush(ctx))
			b.must(nil, b.nc.FlushWithContext(ctx))
			if n := naks.Load(); n != want {
				t.Errorf("%d naks, want %d", n, want)
			}
			if n := b.info().Delivered.Consumer; n != map[bool]uint64{true: 2, false: 1}[others] {
				t.Errorf("%d deliveries", n)
			}
		})
	}
}
