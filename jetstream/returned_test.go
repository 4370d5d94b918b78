package jetstream

import (
	"testing"
	"time"
)

// What waits for its turn is not handed back again and again while a message is at the app that another client has settled: it would come again at
// once each time, and each delivery counts.
func TestWhatIsSettledElsewhereIsReturnedSeldom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := runModel(t, 30*time.Second, 2, func(c *ConsumerConfig) { c.Ordered, c.Concurrency, c.Prefetch = true, 2, 4 })
		one, two := b.next(), b.next()
		b.durable.settlesLate(one.Sequence, two.Sequence)
		b.source.mu.Lock()
		one.Delivered, two.Delivered = 2, 2
		b.source.scattered()
		b.source.mu.Unlock()
		for range 3 {
			b.durable.publish("s.x")
		}
		time.Sleep(time.Minute)
		if n := b.deliveries(); n < 5 || n > 2+3*6 {
			t.Errorf("%d deliveries: %s", n, b.durable.state())
		}
		one.Ack()
		two.Ack()
		for range 3 {
			b.next().Ack()
		}
		time.Sleep(time.Second)
		if n := b.pending(); n != 0 {
			t.Errorf("%d are pending: %s", n, b.durable.state())
		}
	})
}

// settlesLate has both messages delivered twice, and the second one settled, by a verdict of who had it before.
func (d *fakeDurable) settlesLate(first, second uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pending[first].deliveries = 2
	d.settle(second)
}
