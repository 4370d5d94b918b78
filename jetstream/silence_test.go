package jetstream

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// unorderedWorld is a world without an order, whose clients leave their messages to the test.
func unorderedWorld(clients int, ackWait time.Duration) *orderWorld {
	w := newOrderWorld(1, false, false, clients)
	w.durable.ackWait, w.cfg.AckWait, w.cfg.Ordered, w.workers = ackWait, ackWait, false, 0
	return w
}

// soon is the next message of a client; nil if none comes soon.
func (c *orderClient) soon() *Message {
	ctx, cancel := context.WithTimeout(c.ctx, 500*time.Millisecond)
	defer cancel()
	return c.source.Next(ctx)
}

// inWorld runs a test in a world whose first clients are started.
func inWorld(t *testing.T, w *orderWorld, started int, f func()) {
	t.Helper()
	stop := make(chan struct{})
	go w.durable.run(stop)
	for _, c := range w.clients[:started] {
		if err := c.start(); err != nil {
			t.Fatal(err)
		}
	}
	f()
	for _, c := range w.clients {
		c.wire.stall(false)
		c.kill()
	}
	close(stop)
	time.Sleep(2 * stallStep)
}

// What was sent into a connection that stalled for longer than the ack wait is not begun when it comes, since another sidecar may be done with it
// by then; nor is what waited here meanwhile. What is sent after that is.
func TestStallWithoutOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := unorderedWorld(2, 2*time.Second)
		inWorld(t, w, 1, func() {
			stalled, other := w.clients[0], w.clients[1]
			w.durable.publish("s.0")
			w.durable.publish("s.1")
			if m := stalled.soon(); m == nil || m.Sequence != 1 {
				t.Fatalf("%+v came", m)
			}
			synctest.Wait() // the second one is leased too, and waits
			time.Sleep(time.Second)
			stalled.wire.stall(true)
			w.durable.publish("s.2") // sent into the stalled connection
			time.Sleep(100 * time.Millisecond)
			if err := other.start(); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				m := other.soon()
				for m == nil {
					m = other.soon()
				}
				m.Ack()
			}
			stalled.wire.stall(false)
			if m := stalled.soon(); m != nil {
				t.Errorf("%d came, which another is done with", m.Sequence)
			}
			other.kill()
			time.Sleep(2 * heartbeat) // its requests are forgotten
			w.durable.publish("s.3")
			if m := stalled.soon(); m == nil || m.Sequence != 4 || m.Delivered != 1 {
				t.Errorf("%+v came", m)
			}
		})
	})
}

// However long nothing was there to be delivered, and whatever the ack wait: what comes then is begun at once.
func TestIdleIsNoSilence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, ackWait := range []time.Duration{time.Second, 2 * time.Second, 30 * time.Second} {
			w := unorderedWorld(1, ackWait)
			inWorld(t, w, 1, func() {
				for seq := range uint64(50) {
					time.Sleep(time.Duration(seq) * 37 * time.Millisecond)
					w.durable.publish("s.0")
					if m := w.clients[0].soon(); m == nil || m.Delivered != 1 {
						t.Fatalf("ack wait %s: message %d came as %+v", ackWait, seq, m)
					} else {
						m.Ack()
					}
				}
			})
		}
	})
}

// What had come before the answer that ended a silence is as old as before, also where it is handled later: each inbox is taken from by itself.
func TestSentAfter(t *testing.T) {
	quiet, now := time.Unix(100, 0), time.Unix(200, 0)
	s, l := &Source{}, &lane{oldUpTo: 2, oldAfter: quiet}
	for i, want := range []time.Time{quiet, quiet, now} {
		if got := s.sentAfter(l, now); !got.Equal(want) {
			t.Errorf("message %d was sent after %s, want %s", i, got, want)
		}
		l.taken.Add(1)
	}
	s.hearing.quiet = quiet
	if got := s.sentAfter(l, now); !got.Equal(quiet) {
		t.Errorf("in a silence: sent after %s, want %s", got, quiet)
	}
	l.sentAt = time.Unix(150, 0)
	if got := s.sentAfter(l, now); !got.Equal(l.sentAt) {
		t.Errorf("asked for later: sent after %s, want %s", got, l.sentAt)
	}
}
