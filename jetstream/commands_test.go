package jetstream

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// TestCommandHeaders holds that an entry, and what is published again, has the message's headers but for those the server acts on.
func TestCommandHeaders(t *testing.T) {
	kept := []string{"Nats-TTL-X", "Nats-Rollup-Note", "Nats-Increment", "Nats-Msg-Id-Old", "Nats-Trace-Id", "Nats-Request-Info-Id", "Nats-Batchless", "Nats-Expected", "X-Nats-TTL"}
	removed := []string{"Nats-TTL", "nats-ttl", "Nats-Rollup", "Nats-Incr", "Nats-Schedule", "Nats-Scheduler", "Nats-Schedule-Next", "NATS-SCHEDULE-X", "Nats-Expected-Stream",
		"Nats-Expected-Anything", "Nats-Batch-Commit", "Nats-Trace-Dest", "Nats-Trace-Only", "Nats-Required-Api-Level", "Nats-Stream-Source", natsjs.MsgIDHeader}
	header := map[string][]string{}
	for _, name := range slices.Concat(kept, removed) {
		header[name] = []string{"1"}
	}
	msgs, _, err := testLetters(newConn(Config{}, quiet())).entries(letter(nil, header), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	entry := OriginalHeader(msgs[0].Header) // without what the entry says itself
	for what, got := range map[string]map[string][]string{"entry": entry, "republished": OriginalHeader(header)} {
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(got)), func(n string) bool { return strings.HasPrefix(n, "Dlq-") })
		if !slices.Equal(names, slices.Sorted(slices.Values(kept))) {
			t.Errorf("%s: %q", what, names)
		}
	}
	for _, name := range removed {
		if name != natsjs.MsgIDHeader && len(msgs[0].Header[name]) > 0 {
			t.Errorf("%s is in the entry", name)
		}
	}
}

// TestLongestAckWait holds that what is made of a durable's ack wait is a time to come, however long it is.
func TestLongestAckWait(t *testing.T) {
	const most = time.Duration(1<<63 - 1)
	for _, c := range []natsjs.ConsumerConfig{{AckWait: most}, {AckWait: most, BackOff: []time.Duration{most, most}}, {BackOff: []time.Duration{most}}} {
		if shortest, longest := ackWait(c), takenBackAfter(c); 2*shortest <= 0 || 2*longest < shortest {
			t.Errorf("%v: %v to %v", c, shortest, longest)
		}
	}
}

// TestShareOfMost holds that a share of the largest limit is told right.
func TestShareOfMost(t *testing.T) {
	const most = 1<<63 - 1
	for _, c := range []struct {
		n, of, percent int
		want           bool
	}{
		{0, most, 80, false}, {10_000, most, 1, false}, {most, most, 100, true}, {most / 2, most, 80, false}, {8, 10, 80, true}, {7, 10, 80, false},
		{1 << 62, 1 << 61, 50, true}, {0, 0, 50, true},
	} {
		if got := holdsShare(c.n, c.of, c.percent); got != c.want {
			t.Errorf("%d of %d, %d per cent: %t", c.n, c.of, c.percent, got)
		}
	}
}
