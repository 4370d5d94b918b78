package jetstream

import (
	"context"
	"testing"
	"time"
)

// A source that stands by takes over when the other one stops, whatever became of its requests meanwhile: while the durable was pinned to the
// other one they brought nothing, so nothing counts as lost on the way and no lease is kept free for it.
func TestStandbyTakesOverAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		room   int // how many requests may wait
		mishap func(standby *fakeWire)
	}{
		"its connection was cut":       {mishap: cutFor(4 * time.Second)},
		"its requests find no room":    {room: 1, mishap: func(*fakeWire) {}},
		"cut, and there is no room":    {room: 1, mishap: cutFor(4 * time.Second)},
		"cut for less than a request":  {mishap: cutFor(100 * time.Millisecond)},
		"nothing comes for some time":  {mishap: stallFor(4 * time.Second)},
		"its requests wait and it can": {mishap: func(*fakeWire) {}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newOrderWorld(1, true, false, 2)
				w.workers, w.durable.ackWait, w.cfg.AckWait = 0, 30*time.Second, 30*time.Second
				w.durable.room, w.durable.attends = test.room, true
				one, two := w.clients[0], w.clients[1]
				inWorld(t, w, 1, func() {
					held := w.heldAfter(one, 3)
					if err := two.start(); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second) // its request waits, or is refused
					held.Ack()
					held = w.heldAfter(one, 3)
					test.mishap(two.wire)
					time.Sleep(6 * time.Second)

					one.source.StopPulling(one.ctx)
					held.HandBack()
					one.source.Flush(one.ctx)
					one.source.Unpin(one.ctx)
					w.durable.publish("s.x")
					ctx, cancel := context.WithTimeout(context.Background(), w.cfg.AckWait/3)
					defer cancel()
					two.ctx = ctx
					if m := two.next(); m == nil || m.Sequence != held.Sequence {
						t.Errorf("got %v, want %d: %s", m, held.Sequence, w.durable.state())
					}
				})
			})
		})
	}
}

// What a source was sent that stood by counts as lost where the durable was pinned to it with that.
func TestStandbyLosesWhatItIsSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newOrderWorld(1, true, false, 2)
		w.workers, w.durable.ackWait, w.cfg.AckWait, w.durable.attends = 0, 30*time.Second, 30*time.Second, true
		one, two := w.clients[0], w.clients[1]
		inWorld(t, w, 1, func() {
			w.heldAfter(one, 1).Ack()
			if err := two.start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(6 * time.Second)
			one.stop()
			two.wire.stall(true)
			w.durable.publish("s.x")
			time.Sleep(time.Second) // it is on its way to the other one
			two.wire.set(true)
			two.wire.stall(false)
			two.wire.set(false)
			time.Sleep(6 * time.Second)
			two.source.mu.Lock()
			defer two.source.mu.Unlock()
			if coming, lost := two.source.expected(); coming > 0 || lost != 1 {
				t.Errorf("%d may come and %d are lost, want 1 lost: %s", coming, lost, w.durable.state())
			}
		})
	})
}

// heldAfter stores n messages, has a client ack all but the last, and returns that one.
func (w *orderWorld) heldAfter(c *orderClient, n int) (last *Message) {
	for range n {
		w.durable.publish("s.x")
	}
	for i := range n {
		if last = c.next(); i < n-1 {
			last.Ack()
		}
	}
	return last
}

func cutFor(d time.Duration) func(*fakeWire) {
	return func(w *fakeWire) {
		w.set(true)
		time.Sleep(d)
		w.set(false)
	}
}

func stallFor(d time.Duration) func(*fakeWire) {
	return func(w *fakeWire) {
		w.stall(true)
		time.Sleep(d)
		w.stall(false)
	}
}

// An answer from before the durable was pinned to this source, which may come after the first message, does not take the pin: what is leased would be
// handed back, and nobody would be served until the pin has run out.
func TestAnOldAnswerDoesNotTakeThePin(t *testing.T) {
	for name, c := range map[string]struct {
		since bool // the question
		loses bool
	}{
		"asked before": {since: true}, "asked after, at the same time": {loses: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := runModel(t, 30*time.Second, 1, func(cfg *ConsumerConfig) { cfg.Ordered = true })
				b.next()
				time.Sleep(time.Second)
				s := b.source
				s.mu.Lock()
				defer s.mu.Unlock()
				l := &look{asked: time.Now(), arrived: s.arrived, pin: s.pin.id}
				if c.since {
					l.pin = ""
				}
				s.hearing.last = l.asked
				info := *s.bound.info
				info.PriorityGroups = nil
				s.order.scatter()
				s.gather(l, &info)
				if lost := s.pin.id == ""; lost != c.loses {
					t.Errorf("the pin is lost: %v", lost)
				}
			})
		})
	}
}
