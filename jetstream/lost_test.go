package jetstream

import (
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// The messages of a batch may be of the stream and of the retry stream: each is asked of its own source.
func TestLostAny(t *testing.T) {
	here := &Source{bound: &binding{info: &natsjs.ConsumerInfo{Config: natsjs.ConsumerConfig{AckWait: time.Hour}}}}
	away := &Source{} // not bound: its leases may be lost
	kept, other := &Message{source: here, touchedAt: time.Now()}, &Message{source: here, touchedAt: time.Now()}
	late, lost := &Message{source: here, touchedAt: time.Now().Add(-time.Hour)}, &Message{source: away}
	for _, batch := range [][]*Message{{late}, {lost}, {kept, late}, {late, kept}, {kept, lost}, {lost, kept}, {kept, lost, other}, {kept, other, late}} {
		if !LostAny(batch) {
			t.Errorf("none of %v is lost", batch)
		}
	}
	for _, batch := range [][]*Message{nil, {kept}, {kept, other}} {
		if LostAny(batch) {
			t.Errorf("one of %v is lost", batch)
		}
	}
	done := &Message{source: here, touchedAt: time.Now()}
	done.released.Store(true)
	if !LostAny([]*Message{kept, done}) {
		t.Error("one that is released is not lost")
	}
}
