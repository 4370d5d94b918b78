package jetstream

import (
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// An entry that is stored while the stream is looked at counts once, whichever comes first.
func TestLevel(t *testing.T) {
	first, second := time.Unix(1, 0), time.Unix(2, 0)
	look := func(created time.Time, entries, last uint64) *natsjs.StreamInfo {
		return &natsjs.StreamInfo{Created: created, State: natsjs.StreamState{Msgs: entries, LastSeq: last}}
	}
	l := level{stored: 500}
	if l.depth() != 0 {
		t.Errorf("%d before any look", l.depth())
	}
	for _, c := range []struct {
		name   string
		info   *natsjs.StreamInfo
		stored uint64
		want   uint64
	}{
		{"a look", look(first, 3, 10), 10, 3},
		{"stored since", look(first, 3, 10), 12, 5},
		{"a look that saw one of them", look(first, 4, 11), 12, 5},
		{"a look that saw both", look(first, 5, 12), 12, 5},
		{"removed by others", look(first, 1, 12), 12, 1},
		{"made anew", look(second, 2, 2), 0, 2},
	} {
		l.stored = max(l.stored, c.stored)
		if l.looked(c.info); l.depth() != c.want {
			t.Errorf("%s: %d, want %d", c.name, l.depth(), c.want)
		}
	}
}

// The newest entries tell the causes; what was removed, or cannot be read, does not matter.
func TestCauses(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	cfg := DeadLetterConfig{Enabled: true, Stream: "{stream}_DLQ", Subject: "dlq.{stream}.{consumer}.{subject}", Create: true}
	d := NewDeadLetters(b.conn, cfg, "S", "d", quiet())
	b.eventually("the DLQ stream is there", func() bool { return d.Ensure(b.ctx) == nil })
	if got := d.Causes(b.ctx); len(got) != 0 {
		t.Errorf("of an empty DLQ: %v", got)
	}
	store := func(n int, reason string) {
		for i := range n {
			_, err := b.js.PublishMsg(b.ctx, &nats.Msg{
				Subject: "dlq.S.d.s.x", Data: []byte("body"), Header: nats.Header{"Dlq-Reason": {reason}, "X-Nth": {strconv.Itoa(i)}},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	store(50, "rejected")
	store(70, "max_deliver")
	if got := d.Causes(b.ctx); len(got) != 2 || got["rejected"] != 30 || got["max_deliver"] != 70 {
		t.Errorf("%v", got)
	}
	stream, err := b.js.Stream(b.ctx, "S_DLQ")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(b.ctx, natsjs.WithPurgeSequence(119)); err != nil {
		t.Fatal(err)
	}
	if got := d.Causes(b.ctx); len(got) != 1 || got["max_deliver"] != 2 {
		t.Errorf("after a purge: %v", got)
	}
	if info, err := stream.Info(b.ctx); err != nil || info.State.Consumers != 0 {
		t.Errorf("%v, %v: a consumer is left", info.State.Consumers, err)
	}
	if _, err := d.Put(b.ctx, letter([]byte("x"), nil)); err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(b.ctx); err != nil {
		t.Fatal(err)
	}
	if got := d.Causes(b.ctx); got == nil || len(got) != 0 {
		t.Errorf("of an emptied DLQ: %v", got)
	}
	if err := b.js.DeleteStream(b.ctx, "S_DLQ"); err != nil {
		t.Fatal(err)
	}
	if got := d.Causes(b.ctx); len(got) != 1 || got["rejected"] != 1 {
		t.Errorf("without the stream: %v", got)
	}
}
