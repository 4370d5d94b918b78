package jetstream

import (
	"errors"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Where there is no bucket there is no mark to remove, also if there was one before, and none is made for that.
func TestMarksWithoutABucket(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	k := NewMarks(b.conn, ConsumerConfig{Stream: "S", Manage: ManageCreate})
	b.must(nil, k.Remove(b.ctx, "a"))
	if _, err := b.js.KeyValue(b.ctx, StateBucket); !errors.Is(err, natsjs.ErrBucketNotFound) {
		t.Errorf("a bucket was made: %v", err)
	}
	b.must(nil, k.Set(b.ctx, "a", 1))
	b.must(nil, k.Remove(b.ctx, "unmarked"))
	b.must(nil, b.js.DeleteKeyValue(b.ctx, StateBucket))
	b.must(nil, k.Remove(b.ctx, "a"))
}

// What the server refuses for lack of permission is told from what nobody answers.
func TestMarksThatAreDenied(t *testing.T) {
	for _, subject := range []string{"$KV.>", "$JS.API.STREAM.INFO.KV_sidecar-state"} {
		t.Run(subject, func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{})
			conn := b.denied(subject)
			k := NewMarks(conn, ConsumerConfig{Stream: "S", Manage: ManageNone})
			if err := k.Set(b.ctx, "a", 1); !errors.Is(err, ErrDenied) {
				t.Errorf("writing: %v", err)
			}
			if err := k.Remove(b.ctx, "a"); !errors.Is(err, ErrDenied) {
				t.Errorf("removing: %v", err)
			}
		})
	}
}
