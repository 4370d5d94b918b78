package test

import (
	"context"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// shortWindow lets a second message of the same id into the stream soon.
func shortWindow(c *natsjs.StreamConfig) { c.Duplicates = 100 * time.Millisecond }

func TestSecondMessageOfAnIdIsNotCalled(t *testing.T) {
	for _, verdict := range []string{"ack", "drop"} {
		t.Run(verdict, func(t *testing.T) {
			w := newWorld(t, shortWindow)
			w.app.on(always(reply{status: 200, header: map[string]string{"Sidecar-Action": verdict}}))
			s := w.running()
			first := w.publish("orders.a", "x", "Nats-Msg-Id: id-1")
			s.waitMetric(`sidecar_messages_total{consumer="worker",stream="ORDERS",verdict="`+verdict+`"`, atLeast(1))
			second := w.publishAfterWindow("orders.b", "another body", "id-1")
			w.quiet(second)
			other := w.publish("orders.a", "x", "Nats-Msg-Id: id-2")
			w.balance()
			if line := s.log.waitSettled(t, second, 1)[0]; line["verdict"] != "duplicate" {
				t.Errorf("log line %v", line)
			}
			if n := counted(t, "duplicate", 1, s); n != 1 {
				t.Errorf("%v duplicates counted", n)
			}
			if a, b := len(w.app.of(first)), len(w.app.of(other)); a != 1 || b != 1 {
				t.Errorf("calls: %d of the first, %d of another id", a, b)
			}
		})
	}
}

func TestSecondMessageWaitsForTheFirst(t *testing.T) {
	for _, c := range []struct {
		name   string
		first  reply
		second int // calls of the second
	}{
		{"accepted", reply{status: 200}, 0},
		{"dropped", reply{status: 200, header: map[string]string{"Sidecar-Action": "drop"}}, 0},
		{"rejected", reply{status: 400}, 1},
		{"to be retried", reply{status: 503, header: map[string]string{"Retry-After": "5"}}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, shortWindow)
			open := make(chan struct{})
			held := c.first
			held.gate = open
			w.app.on(func(in *call) reply {
				if in.body == "first" && in.nth == 1 {
					return held
				}
				return reply{status: 200}
			})
			s := w.running()
			first := w.publish("orders.a", "first", "Nats-Msg-Id: id-1")
			eventually(t, func() bool { return w.app.inFlight() == 1 }, text("the first to be called"))
			second := w.publishAfterWindow("orders.a", "second", "id-1")
			eventually(t, func() bool { return w.consumer(durable).NumAckPending == 2 }, text("the second to be leased"))
			others := w.publish("orders.a", "other", "Nats-Msg-Id: id-2")
			s.log.waitSettled(t, others, 1)
			if n := len(w.app.of(second)); n != 0 {
				t.Errorf("the second was called while the first was in flight")
			}
			close(open)
			if c.second == 0 {
				w.quiet(second)
			}
			if c.name == "to be retried" {
				w.quiet(first) // the second was accepted before its turn came
			}
			w.balance()
			if n := len(w.app.of(second)); n != c.second {
				t.Errorf("the second was called %d times", n)
			}
			if n := len(w.app.of(first)); n != 1 {
				t.Errorf("the first was called %d times", n)
			}
		})
	}
}

func TestDedupeOff(t *testing.T) {
	w := newWorld(t, shortWindow)
	w.running(consumer(func(c *config.Consumer) { c.Dedupe.Store = "off" }))
	first := w.publish("orders.a", "x", "Nats-Msg-Id: id-1")
	second := w.publishAfterWindow("orders.a", "x", "id-1")
	w.balance()
	if a, b := len(w.app.of(first)), len(w.app.of(second)); a != 1 || b != 1 {
		t.Errorf("%d and %d calls", a, b)
	}
}

func TestDedupeHeader(t *testing.T) {
	w := newWorld(t)
	s := w.running(consumer(func(c *config.Consumer) { c.Dedupe.Header = "X-Order" }))
	w.publish("orders.a", "x", "X-Order: 7", "Nats-Msg-Id: a")
	s.waitMetric("sidecar_messages_total", atLeast(1))
	w.quiet(w.publish("orders.a", "x", "X-Order: 7", "Nats-Msg-Id: b"))
	w.publish("orders.a", "x", "X-Order: 8")
	w.publish("orders.a", "x")
	w.publish("orders.a", "x")
	w.balance()
	if n := w.app.count(); n != 4 {
		t.Errorf("%d calls, want 4", n)
	}
}

func TestDedupeForgets(t *testing.T) {
	w := newWorld(t, shortWindow)
	s := w.running(consumer(func(c *config.Consumer) { c.Dedupe.MaxEntries = 2 }))
	for _, id := range []string{"1", "2", "3"} {
		w.publish("orders.a", "x", "Nats-Msg-Id: "+id)
		w.waitDone()
	}
	first := w.publishAfterWindow("orders.a", "x", "1") // made room for 3, and makes room by forgetting 2
	w.waitDone()
	third := w.publishAfterWindow("orders.a", "x", "3")
	w.quiet(third)
	w.balance()
	if n, twice := len(w.app.of(first)), counted(t, "duplicate", 1, s); n != 1 || twice != 1 {
		t.Errorf("%d calls of a message that was forgotten, %v duplicates", n, twice)
	}
}

// A redelivery of what was answered is acked without a call: here the ack did not take, as the server was away.
func TestRedeliveryOfWhatWasAnswered(t *testing.T) {
	w := newWorld(t)
	w.app.on(func(c *call) reply {
		if c.nth == 1 {
			w.nats.Shutdown()
		}
		return reply{status: 200}
	})
	w.running(consumer(func(c *config.Consumer) { c.AckWait = time.Second }))
	seq := w.publish("orders.a", "x")
	eventually(t, func() bool { return w.app.count() == 1 && w.app.inFlight() == 0 }, text("the call"))
	w.must(w.nats.Restart())
	w.balance()
	if n := len(w.app.of(seq)); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// A stream that was made anew starts a new life: neither sequences nor ids of the old one are remembered.
func TestStreamMadeAnewForgets(t *testing.T) {
	w := newWorld(t)
	s := w.running()
	w.publish("orders.a", "x", "Nats-Msg-Id: id-1")
	w.publish("orders.a", "x")
	w.waitDone()
	w.anew(stream)
	w.published = nil
	w.makeStream()
	w.publish("orders.a", "y", "Nats-Msg-Id: id-1")
	w.publish("orders.a", "y")
	s.waitReady()
	eventually(t, func() bool { return w.app.count() == 4 }, text("all four calls"))
	w.waitDone()
	if n := s.admin.verdicts("duplicate"); n != 0 {
		t.Errorf("%v duplicates", n)
	}
}

// anew deletes a stream.
func (w *world) anew(name string) {
	w.t.Helper()
	w.try("delete stream "+name, func(ctx context.Context) error { return w.js.DeleteStream(ctx, name) })
}
