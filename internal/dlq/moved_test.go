package dlq

import (
	"context"
	"slices"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/forward"
)

// stream makes another DLQ stream.
func (b *bench) stream(name, subject string) {
	b.t.Helper()
	_, err := b.js.CreateStream(b.t.Context(), natsjs.StreamConfig{Name: name, Subjects: []string{subject}, Duplicates: time.Minute})
	b.must(err)
}

// moved is a configuration in which w has another DLQ stream, N_DLQ, than when its entries were stored; O_DLQ is still that of v.
func moved(b *bench) *Service {
	return b.serviceOf(
		consumerOf("O", "w", "N_DLQ", "ndlq.{stream}.{consumer}.{subject}"),
		consumerOf("O", "v", "{stream}_DLQ", "dlq.{stream}.{consumer}.{subject}"),
	)
}

// rejects lets the app reject some messages, by sequence, and accept all others.
func (a *fakeApp) rejects(sequences ...uint64) {
	a.script = func(_ context.Context, m *forward.Message) forward.Result {
		if slices.Contains(sequences, m.Sequence) {
			return answer(422)
		}
		return answer(200)
	}
}

// What fails again is stored in the DLQ stream that the consumer has now, and is gone from the one that it had, also where the new
// entry has the sequence there that the old one has here.
func TestReplayAfterAnotherDLQStreamWasConfigured(t *testing.T) {
	b := newBench(t, 4)
	b.stream("N_DLQ", "ndlq.>")
	b.app.rejects(1, 2, 4)
	s := moved(b)
	var last *Outcome
	r, err := s.Replay(t.Context(), Filter{Stream: "O_DLQ"}, ReplayOptions{OnProgress: func(p Progress) { last = p.Last }})
	if err != nil || r.Done != 1 || r.Failed != 3 || r.Kept != 0 || len(r.Failures) != 1 {
		t.Fatalf("%v, %+v", err, r)
	}
	if f := r.Failures[0]; f.Stream != "N_DLQ" || f.Example != 1 || f.Count != 3 {
		t.Errorf("%+v", f)
	}
	if last.Entry.DLQStream != "O_DLQ" || last.Entry.Seq != 4 || last.NewStream != "N_DLQ" || last.NewSeq != 3 {
		t.Errorf("%+v of %+v", last, last.Entry)
	}
	var left []string
	for e, err := range s.List(t.Context(), Filter{}) {
		b.must(err)
		if left = append(left, e.Cursor().String()); e.Replays != 1 {
			t.Errorf("%+v", e)
		}
	}
	if !slices.Equal(left, []string{"N_DLQ:1", "N_DLQ:2", "N_DLQ:3"}) {
		t.Errorf("%v are left", left)
	}
}
