package jetstream

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A lane that is being drained while the connection is cut is not subscribed to for ever after the reconnect: its request may have outlived the
// cut, and would bring messages to nobody.
func TestDrainedOverACut(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.run(b.config())
	s, nc := b.source, b.conn.nc()
	var l *lane
	b.eventually("a request waits", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.lanes) > 0 && s.lanes[0].heard {
			l = s.lanes[0]
		}
		return l != nil
	})
	subscribed := func() bool {
		b.t.Helper()
		found, err := b.server.Subsz(&server.SubszOptions{Subscriptions: true, Test: l.inbox + "1"})
		b.must(found, err)
		return found.Total > 0
	}

	s.mu.Lock() // so that what comes on the lane is not done with
	for range 3 {
		b.must(nil, b.nc.PublishMsg(&nats.Msg{Subject: l.inbox + "1", Header: nats.Header{"Status": {"100"}}}))
	}
	b.eventually("it came", func() bool { n, _, err := l.sub.sub.Pending(); return err == nil && n >= 3 })
	s.retire(l)
	b.eventually("the server is told", func() bool { return !subscribed() })
	b.must(nil, nc.ForceReconnect())
	b.eventually("the client subscribed to it again", subscribed)
	s.mu.Unlock()

	<-l.closed
	b.eventually("the server is told again", func() bool { return !subscribed() })
}

// What a request that is gone may have brought is the server's again after the longest step of a BackOff.
func TestTakenBackAfter(t *testing.T) {
	for _, c := range []struct {
		config natsjs.ConsumerConfig
		want   time.Duration
	}{
		{natsjs.ConsumerConfig{}, 30 * time.Second},
		{natsjs.ConsumerConfig{AckWait: time.Minute}, time.Minute},
		{natsjs.ConsumerConfig{AckWait: time.Second, BackOff: []time.Duration{time.Second, time.Hour, time.Minute}}, time.Hour},
	} {
		if got := takenBackAfter(c.config); got != c.want {
			t.Errorf("%v: %s", c.config, got)
		}
	}
}

// A status about a request that came with an ack may come when all that was asked for came already.
func TestLateStatusOfAnAck(t *testing.T) {
	s := NewSource(nil, ConsumerConfig{Stream: AdvisoryStream, Concurrency: 1}, quiet())
	s.refusedExchange(&lane{exchange: true, first: 3, number: 4}, 4)
}
