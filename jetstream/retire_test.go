package jetstream

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// While pulling stops nothing is sent to an inbox that is gone, where the server would give up on it: what comes last is leased, and what comes
// later stays with the server. So it is when pulling rests.
func TestNothingIsSentToAnInboxThatIsGone(t *testing.T) {
	for name, end := range map[string]func(*Source){
		"stop": func(s *Source) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			s.StopPulling(ctx)
		},
		"rest": func(s *Source) {
			s.Pull(PullNothing)
			time.Sleep(time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := runModel(t, 30*time.Second, 0, func(cfg *ConsumerConfig) { cfg.Prefetch = 10 })
				b.durable.setOnce()
				b.durable.endRequests("409 Exceeded MaxWaiting") // the durable was edited
				time.Sleep(5 * time.Second)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					end(b.source)
				}()
				synctest.Wait()
				b.durable.publish("s.x")
				<-ended
				time.Sleep(20 * time.Millisecond)
				b.durable.publish("s.x")
				time.Sleep(time.Second)
				if m := b.source.TakeReady(); m == nil || m.Sequence != 1 {
					t.Errorf("the last message that was sent did not come: %v, %s", m, b.durable.state())
				}
				if n := b.deliveries(); n != 1 {
					t.Errorf("%d deliveries, want 1", n)
				}
			})
		})
	}
}

// A request whose end is not told does not keep its inbox for ever.
func TestAnEndThatIsNotTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := runModel(t, 30*time.Second, 0, func(*ConsumerConfig) {})
		b.durable.setOnce()
		b.durable.endRequests("409 Exceeded MaxWaiting")
		time.Sleep(5 * time.Second)
		b.durable.dropRequests()
		b.source.Pull(PullNothing)
		time.Sleep(5 * time.Second)
		if n, _ := b.lanes(); n != 0 {
			t.Errorf("%d inboxes are left", n)
		}
		b.source.Pull(PullAll)
		b.durable.publish("s.x")
		if m := b.next(); m.Sequence != 1 {
			t.Errorf("got %d", m.Sequence)
		}
	})
}

// A durable that is lost meanwhile leaves no inbox behind.
func TestNoInboxIsLeftOfALostDurable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := runModel(t, 30*time.Second, 0, func(*ConsumerConfig) {})
		b.durable.setOnce()
		b.durable.endRequests("409 Exceeded MaxWaiting")
		time.Sleep(5 * time.Second)
		nc := b.source.conn.nc()
		before := nc.NumSubscriptions()
		for range 5 {
			b.source.Pull(PullNothing)
			b.source.mu.Lock()
			b.source.rebind = "a test"
			b.source.wake()
			b.source.mu.Unlock()
			time.Sleep(5 * time.Second)
			b.source.Pull(PullAll)
			time.Sleep(time.Second)
		}
		if n := nc.NumSubscriptions(); n > before+1 {
			t.Errorf("%d subscriptions, %d before", n, before)
		}
	})
}
