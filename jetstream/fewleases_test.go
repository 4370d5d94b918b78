package jetstream

import (
	"slices"
	"strings"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A durable whose max_ack_pending is less than what may be leased is warned of, in the words of the configuration.
func TestFewMayBeLeased(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	durable, err := b.js.CreateConsumer(b.ctx, "S", natsjs.ConsumerConfig{Durable: "d", AckPolicy: natsjs.AckExplicitPolicy, MaxAckPending: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cfg  ConsumerConfig
		want string
	}{
		{ConsumerConfig{Concurrency: 90, Prefetch: 10}, ""},
		{ConsumerConfig{Concurrency: 90, Prefetch: 11}, "max_ack_pending 100 is less than concurrency + prefetch (101)"},
		{ConsumerConfig{Concurrency: 2000, Prefetch: 16, Batched: true}, "max_ack_pending 100 is less than concurrency × batch.max_messages + prefetch (2016)"},
		{ConsumerConfig{Concurrency: 101, Manage: ManageUpdate, MaxAckPending: 1000}, ""}, // it will be changed
		{ConsumerConfig{Concurrency: 101, Manage: ManageUpdate, MaxAckPending: 100}, "max_ack_pending 100 is less than"},
	} {
		c.cfg.Stream, c.cfg.Durable = "S", "d"
		found := b.conn.Check(b.ctx, c.cfg, DeadLetterConfig{})
		says := slices.ContainsFunc(found, func(f Finding) bool {
			return f.Level == Warning && strings.Contains(f.Detail, "less than") && strings.Contains(f.Detail, c.want)
		})
		if says != (c.want != "") {
			t.Errorf("%+v: %v", c.cfg, found)
		}
		if got := fewMayBeLeased(c.cfg, durable.CachedInfo().Config); !strings.HasPrefix(got, c.want) {
			t.Errorf("%+v: %q", c.cfg, got)
		}
	}
}
