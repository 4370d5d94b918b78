package test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

// A retry stream that takes no ends of messages holds up the copies that end, and nobody else: what is to be tried again
// waits at the durable, and all others flow. Once it takes them again all ends as it should.
func TestRetryStreamThatTakesNoEnds(t *testing.T) {
	w := newWorldOn(t, localnats.Options{Config: permitted()})
	gate := make(chan struct{})
	w.app.on(func(c *call) reply {
		switch {
		case c.subject == "orders.parked":
			return reply{status: 503, header: map[string]string{"Retry-After": "500"}}
		case c.subject == "orders.late" && c.nth > 1:
			return reply{status: 200, gate: gate}
		case c.subject == "orders.good", c.subject == "orders.first" && c.nth > 1:
			return reply{status: 200}
		}
		return reply{status: 503}
	})
	w.durableOf(func(c *natsjs.ConsumerConfig) { c.MaxAckPending = 100 })
	s := w.running(narrow(1500*time.Millisecond), some)
	const parked = 30
	for range parked {
		w.publish("orders.parked", "x")
	}
	eventually(t, func() bool { return w.consumer(durable).NumAckPending == parked && w.app.inFlight() == 0 }, text("they wait at the durable"))
	w.durableOf(func(c *natsjs.ConsumerConfig) { c.MaxAckPending = 50 }) // more than half of which they hold
	s.waitMetric("sidecar_max_ack_pending", func(n float64) bool { return n == 50 })
	for range 8 { // so that as many may be leased from the retry stream as ever may
		w.publish("orders.first", "x")
	}
	eventually(t, func() bool { return w.app.count() == parked+16 && w.copiesLeased() == 0 }, text("the first ones are done"))
	var late []uint64
	for range 4 {
		late = append(late, w.publish("orders.late", "x"))
	}
	eventually(t, func() bool { return w.copiesLeased() == 4 && w.app.inFlight() == 4 }, func() string {
		return fmt.Sprintf("four copies at the app: %d leased, %d in flight, %d in the retry stream, %d pending at the durable", w.copiesLeased(), w.app.inFlight(), w.waiting(), w.consumer(durable).NumAckPending)
	})
	w.must(w.nats.Reload(permitted(`"sidecar.retry.done.>"`)))
	close(gate)
	eventually(t, func() bool { return strings.Contains(s.log.String(), "does not take the end of a message") }, text("the log to tell"))
	for range 12 { // as many as may be leased now
		w.publish("orders.bad", "x")
	}
	for range 60 {
		good := w.publish("orders.good", "x")
		eventually(t, func() bool { return len(w.app.of(good)) == 1 }, text("a good one to be called"))
	}
	w.must(w.nats.Reload(permitted()))
	eventually(t, func() bool { return w.copiesLeased() == 0 }, text("the copies are done"))
	for _, seq := range late {
		if n := len(w.app.of(seq)); n != 2 {
			t.Errorf("message %d was called %d times", seq, n)
		}
	}
}

// copiesLeased is how many messages of the retry stream are leased.
func (w *world) copiesLeased() (n int) {
	var list struct {
		Consumers []natsjs.ConsumerInfo
		Error     *natsjs.APIError
	}
	w.has("CONSUMER.LIST."+retryStream, nil, &list, &list.Error)
	for _, c := range list.Consumers {
		n += c.NumAckPending
	}
	return n
}
