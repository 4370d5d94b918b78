package jetstream

import (
	"errors"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Clocks of servers that are apart make no advisory stale, and one of an earlier stream is.
func TestStale(t *testing.T) {
	b := lostBench(t)
	s := NewSource(b.conn, b.config(), quiet())
	now := time.Now()
	for _, c := range []struct {
		name                  string
		created, stored, told time.Duration // from now
		swept, stale, booked  bool
	}{
		{name: "in time", created: -time.Hour, stored: -time.Second},
		{name: "the durable's leader is behind", created: -time.Hour, told: -5 * time.Millisecond},
		{name: "a young stream whose durable gave up none", created: -time.Second, told: -5 * time.Millisecond, stale: true},
		{name: "found by a sweep of a host that is behind", created: -time.Second, told: -time.Hour, swept: true},
		{name: "it is behind, and the stream is young", created: -time.Second, told: -5 * time.Millisecond, booked: true},
		{name: "of an earlier stream", created: -time.Second, told: -time.Hour, stale: true, booked: true},
	} {
		if c.booked && b.info().NumRedelivered == 0 {
			b.lose(1)
		}
		m := &Message{Sequence: 1, Stored: now.Add(c.stored), StreamCreated: now.Add(c.created)}
		stale, err := s.Stale(b.ctx, GivenUp{Sequence: 1, Time: now.Add(c.told), Swept: c.swept}, m)
		if b.must(nil, err); stale != c.stale {
			t.Errorf("%s: stale: %v", c.name, stale)
		}
	}
}

// What was given up on is not taken for settled while no durable is served.
func TestSettleGivenUpWhileNoneIsServed(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{Retention: natsjs.WorkQueuePolicy})
	b.must(b.js.CreateConsumer(b.ctx, "S", natsjs.ConsumerConfig{Durable: "d", AckPolicy: natsjs.AckExplicitPolicy, MaxDeliver: 1}))
	b.publish(1)
	stream, err := b.conn.streamInfo(b.ctx, "S")
	b.must(nil, err)
	s := NewSource(b.conn, b.config(), quiet())
	m := &Message{Sequence: 1, StreamCreated: stream.Created}
	if err := s.SettleGivenUp(b.ctx, m, "why"); !errors.Is(err, ErrNotConnected) {
		t.Errorf("%v", err)
	}
}
