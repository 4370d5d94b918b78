package jetstream

import (
	"context"
	"strings"
	"testing"
	"time"
)

// A message whose lease was lost while it waited for a worker does not keep the turn of its key when it comes to it.
func TestALostLeaseKeepsNoTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newOrderWorld(1, true, false, 1)
		w.workers = 0
		c := w.clients[0]
		inWorld(t, w, 1, func() {
			for range 4 {
				w.durable.publish("s.x")
			}
			first := c.next()
			time.Sleep(time.Second)
			c.source.Survived(first)
			time.Sleep(time.Second) // the others are leased, and nobody takes them
			c.wire.set(true)
			time.Sleep(2 * w.cfg.AckWait)
			c.wire.set(false)
			time.Sleep(2 * w.cfg.AckWait)
			c.wire.stall(true)
			first.Ack() // which is not confirmed before a worker asks for the next one
			time.Sleep(10 * time.Millisecond)
			got := make(chan *Message, 4)
			c.ended.Go(func() {
				for m := c.next(); m != nil; m = c.next() {
					got <- m
					m.Ack()
				}
			})
			time.Sleep(10 * time.Millisecond)
			c.wire.stall(false)
			for want := uint64(2); want <= 4; want++ {
				select {
				case m := <-got:
					if m.Sequence != want {
						t.Errorf("%d came, want %d", m.Sequence, want)
					}
				case <-time.After(time.Minute):
					t.Fatalf("%d does not come: %s", want, w.durable.state())
				}
			}
		})
	})
}

// A message that was tried and stays leased is not one to try a failing app with.
func TestTriedInPlaceIsNotFresh(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := runModel(t, 30*time.Second, 20, func(c *ConsumerConfig) { c.Concurrency, c.Prefetch = 2, 4 })
		tried := b.next()
		b.source.Pull(PullNothing)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		for m := b.source.Next(ctx); m != nil; m = b.source.Next(ctx) {
			m.Ack()
		}
		before := b.deliveries()
		b.source.Survived(tried)
		b.source.Pull(PullOne)
		time.Sleep(5 * time.Second)
		if n := b.deliveries(); n != before+1 {
			t.Errorf("%d deliveries, want one more than %d", n, before)
		}
	})
}

// A verdict is not sent while it is not known whether the durable is the one bound to, whoever's turn it is to send.
func TestNoVerdictWithoutEvidence(t *testing.T) {
	for name, n := range map[string]int{"alone": 1, "together": togetherAcked} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := runModel(t, time.Minute, n, func(c *ConsumerConfig) { c.Concurrency = n })
				var all []*Message
				for range n {
					m := b.next()
					b.source.Survived(m)
					all = append(all, m)
				}
				b.source.Pull(PullNothing) // no request waits
				time.Sleep(1500 * time.Millisecond)
				b.loseQuestions(true)
				s := b.source
				s.mu.Lock()
				s.grouped = 1 // there are batches
				for _, m := range all {
					s.note(m, ack)
				}
				s.tend(time.Now()) // before its sender has its turn
				s.mu.Unlock()
				time.Sleep(5 * time.Second)
				if got := b.pending(); got != n {
					t.Errorf("%d of %d are pending", got, n)
				}
				b.loseQuestions(false)
				time.Sleep(5 * time.Second)
				if got := b.pending(); got != 0 {
					t.Errorf("%d are pending although it is known", got)
				}
			})
		})
	}
}

// Work that is put off at a stop does not spin.
func TestResumeWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := runModel(t, 30*time.Second, 1, func(c *ConsumerConfig) { c.RetryStream.Enabled = true })
		m := b.next()
		m.seenBefore = true
		b.source.Requeue(m)
		b.wire.set(true)
		time.Sleep(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		rounds := 0
		for m := b.source.TakeReady(); m != nil && ctx.Err() == nil; m = b.source.TakeReady() {
			if rounds++; rounds > 1000 || b.source.Resume(ctx, m) {
				t.Fatalf("resumed, or round %d", rounds)
			}
		}
		if rounds == 0 {
			t.Error("nothing was taken")
		}
	})
}

// A durable that is lost while all leases are lent leaves none to it.
func TestLentLeasesStayLent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := runModel(t, 30*time.Second, 5, func(c *ConsumerConfig) { c.Concurrency = 1 })
		b.next().Ack()
		b.next().Ack()
		b.source.Pull(PullNothing)
		time.Sleep(2 * time.Second)
		b.source.lend(1, 1<<18)
		b.source.mu.Lock()
		b.source.rebind = "a test"
		b.source.wake()
		b.source.mu.Unlock()
		time.Sleep(5 * time.Second)
		b.source.Pull(PullAll)
		time.Sleep(5 * time.Second)
		if n := b.source.outstanding(); n > 0 {
			t.Errorf("%d leases, which are lent", n)
		}
		b.source.lend(0, 0)
		b.next()
	})
}

// A new binding does not touch who keeps the turns: a message of the retry stream may pass its turn just then.
func TestBindingBesideAPassedTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := runModel(t, 30*time.Second, 0, func(c *ConsumerConfig) { c.Ordered = true })
		time.Sleep(time.Second)
		s, due := b.source, b.source.retries.source
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 100 {
				s.mu.Lock()
				s.order.begin(s.bound.info)
				s.mu.Unlock()
			}
		}()
		for range 100 {
			due.mu.Lock()
			due.passTurn(&Message{source: due})
			due.mu.Unlock()
		}
		<-done
	})
}

// Where what keeps leases alive is refused, they are lost after the ack wait, and known to be, whatever else is heard from the server.
func TestRefusedKeepAlivesKeepNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := runModel(t, 3*time.Second, 4, func(c *ConsumerConfig) { c.Prefetch = 8 })
		held := b.next()
		b.source.Survived(held)
		time.Sleep(10 * time.Second)
		if held.Lost() {
			t.Error("it is lost, and was kept alive")
		}
		b.source.Pull(PullNothing) // else it is delivered again to the one that has it
		b.durable.refuseAcks(true)
		time.Sleep(4 * time.Second)
		if !held.Lost() {
			t.Error("it is not known that it is lost")
		}
		if st := b.source.Status(); st.Bound || !strings.Contains(st.Detail, "may not ack") {
			t.Errorf("status %+v", st)
		}
		b.durable.refuseAcks(false)
		b.source.Pull(PullAll)
		for range 3 { // those that were waiting come again
			b.next().Ack()
		}
		time.Sleep(3 * time.Second)
		if st := b.source.Status(); !st.Bound {
			t.Errorf("status %+v", st)
		}
	})
}
