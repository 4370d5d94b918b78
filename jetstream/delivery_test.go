package jetstream

import (
	"testing"

	"github.com/nats-io/nats.go"
)

// What is read here without nats.go is what nats.go reads.
func FuzzDelivery(f *testing.F) {
	for _, reply := range []string{
		"$JS.ACK.S.d.1.2.3.1700000000000000004.5",
		"$JS.ACK.S.d.0.0.0.0.0",
		"$JS.ACK.S.d.1.2.3.9999999999999999999.5",
		"$JS.ACK.S.d.1.2.3.99999999999999999999.5",
		"$JS.ACK.S.d.01.+2.-3.4.5",
		"$JS.ACK.S.d.1.2.3.4.",
		"$JS.ACK...1.2.3.4.5",
		"$JS.ACK.S.d.1.2.3.4",
		"$JS.ACK._.hash.S.d.1.2.3.4.5",
		"$JS.ACK.hub.hash.S.d.1.2.3.4.5.random",
		"$JS.ACK.",
		"INBOX.1",
	} {
		f.Add(reply)
	}
	sub := &nats.Subscription{}
	f.Fuzz(func(t *testing.T, reply string) {
		got, ok := parseDelivery(reply)
		if !ok {
			return
		}
		meta, err := (&nats.Msg{Reply: reply, Sub: sub}).Metadata()
		if err != nil {
			t.Fatalf("%q: nats.go says %v", reply, err)
		}
		want := delivery{
			delivered: meta.NumDelivered, stream: meta.Sequence.Stream, consumer: meta.Sequence.Consumer,
			pending: meta.NumPending, stored: meta.Timestamp,
		}
		if got != want {
			t.Errorf("%q: got %+v, want %+v", reply, got, want)
		}
	})
}

func TestUsualDeliveryIsReadHere(t *testing.T) {
	const reply = "$JS.ACK.ORDERS.worker.2.1234.5678.1700000000000000004.90"
	if _, ok := parseDelivery(reply); !ok {
		t.Fatal("it is left to nats.go")
	}
	if n := testing.AllocsPerRun(10, func() { parseDelivery(reply) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// Lanes overtake each other. A first delivery that comes after a later one is no sign that it was delivered before; a lower
// stream sequence under a later consumer sequence is, and so is what came before the durable may have lost state.
func TestSeenBefore(t *testing.T) {
	s := &Source{most: 20, highest: 12, before: 5}
	for _, c := range []struct {
		stream, consumer uint64
		seen             bool
	}{
		{21, 13, false}, // the next
		{19, 11, false}, // overtaken
		{19, 13, true},  // the durable went back
		{5, 11, true},   // from before
		{6, 11, false},
	} {
		if got := s.seenBefore(c.stream, c.consumer); got != c.seen {
			t.Errorf("stream sequence %d, consumer sequence %d: %v", c.stream, c.consumer, got)
		}
	}
}
