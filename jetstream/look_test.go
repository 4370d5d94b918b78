package jetstream

import (
	"testing"
	"testing/synctest"
	"time"
)

// An ack wait that is edited to a short one is kept to: leases are looked after more often.
func TestShorterAckWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := runModel(t, 30*time.Second, 1, func(*ConsumerConfig) {})
		m := b.next()
		b.durable.setAckWait(300 * time.Millisecond)
		time.Sleep(2 * infoEvery) // it is noticed, and the message is here again
		before := b.deliveries()
		time.Sleep(time.Minute)
		if n := b.deliveries() - before; n != 0 || m.Lost() {
			t.Errorf("delivered again %d times, lost %v", n, m.Lost())
		}
		m.Ack()
		synctest.Wait()
	})
}

// Where a pull request proves that the durable is the one bound to, it is not asked for.
func TestProvedLanesAreAskedFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := runModel(t, 30*time.Second, 0, func(*ConsumerConfig) {})
		time.Sleep(3*infoEvery + infoEvery/2)
		b.source.mu.Lock()
		defer b.source.mu.Unlock()
		now := time.Now()
		b.source.evidence = now.Add(-freshEvidence * 3 / 4)
		if !b.source.mayPublish(now) || b.source.lookAhead {
			t.Errorf("a look is asked for: %v", b.source.lookAhead)
		}
	})
}
