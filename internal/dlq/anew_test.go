package dlq

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/forward"
	"github.com/jetsidecar/jetsidecar/jetstream"
)

// anew deletes the DLQ stream, makes it anew and stores entries of other messages.
func (b *bench) anew(n int) {
	b.t.Helper()
	b.must(b.js.DeleteStream(b.t.Context(), "O_DLQ"))
	_, err := b.js.CreateStream(b.t.Context(), natsjs.StreamConfig{Name: "O_DLQ", Subjects: []string{"dlq.O.*.>"}, Duplicates: time.Minute})
	b.must(err)
	for i := range n {
		_, err := b.js.PublishMsg(b.t.Context(), &nats.Msg{Subject: "dlq.O.w.o.a", Data: []byte("new"), Header: nats.Header{
			"Dlq-Stream": {"O"}, "Dlq-Consumer": {"w"}, "Dlq-Subject": {"o.b"}, "Dlq-Sequence": {fmt.Sprint(i + 100)}, "Dlq-Reason": {"max_deliver"},
			"Dlq-Time-Stamp": {time.Now().UTC().Format(time.RFC3339Nano)}, "Dlq-Deliveries": {"3"},
		}})
		b.must(err)
	}
}

// What is confirmed is done to the DLQ stream that was selected from, and not to one of its name that was made meanwhile.
func TestAnewBeforeItIsConfirmed(t *testing.T) {
	for name, do := range map[string]func(b *bench, s *Service, again func(int) error) (*Report, error){
		"remove": func(b *bench, s *Service, again func(int) error) (*Report, error) {
			return s.Remove(b.t.Context(), Filter{}, RemoveOptions{Confirm: again})
		},
		"replay": func(b *bench, s *Service, again func(int) error) (*Report, error) {
			return s.Replay(b.t.Context(), Filter{}, ReplayOptions{Confirm: again})
		},
		"remove after a dry run": func(b *bench, s *Service, again func(int) error) (*Report, error) {
			dry, err := s.Remove(b.t.Context(), Filter{}, RemoveOptions{DryRun: true})
			b.must(err)
			b.must(again(0))
			return s.Remove(b.t.Context(), Filter{UpTo: dry.UpTo}, RemoveOptions{})
		},
		"replay after stats": func(b *bench, s *Service, again func(int) error) (*Report, error) {
			stats, err := s.Stats(b.t.Context(), Filter{})
			b.must(err)
			b.must(again(0))
			return s.Replay(b.t.Context(), Filter{UpTo: stats.UpTo}, ReplayOptions{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 3)
			r, err := do(b, b.service(nil), func(int) error { b.anew(3); return nil })
			if !errors.Is(err, ErrAnew) || r.Done > 0 {
				t.Errorf("%v, %+v", err, r)
			}
			b.untouched(3)
		})
	}
}

// A DLQ stream that is made anew in the middle of a run ends it.
func TestAnewInTheMiddle(t *testing.T) {
	for name, do := range map[string]func(*Service, func(Progress)) (*Report, error){
		"remove": func(s *Service, told func(Progress)) (*Report, error) {
			return s.Remove(t.Context(), Filter{}, RemoveOptions{OnProgress: told})
		},
		"replay": func(s *Service, told func(Progress)) (*Report, error) {
			return s.Replay(t.Context(), Filter{}, ReplayOptions{OnProgress: told})
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := 3
			if name == "remove" {
				n = 2 * removeBatch
			}
			b := newBench(t, n)
			made := false
			_, err := do(b.service(nil), func(p Progress) {
				if !made && p.Done == min(n/2, removeBatch) {
					made = true
					b.anew(n)
				}
			})
			if !made || !errors.Is(err, ErrAnew) {
				t.Fatalf("made anew: %v, %v", made, err)
			}
			b.untouched(n)
		})
	}
}

// Nor does one that is made anew, or deleted, while entries are at the app: they count by what was answered.
func TestAnewDuringACall(t *testing.T) {
	for name, c := range map[string]struct {
		change func(b *bench)
		want   error
	}{
		"made anew": {func(b *bench) { b.anew(4) }, ErrAnew},
		"deleted":   {func(b *bench) { b.must(b.js.DeleteStream(b.t.Context(), "O_DLQ")) }, jetstream.ErrStreamNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 4)
			var calls atomic.Int32
			changed := make(chan struct{})
			b.app.script = func(context.Context, *forward.Message) forward.Result {
				if calls.Add(1) == 2 {
					c.change(b)
					close(changed)
				}
				<-changed
				return answer(200)
			}
			r, err := b.service(nil).Replay(t.Context(), Filter{}, ReplayOptions{Concurrency: 2})
			if !errors.Is(err, c.want) || r.Done != int(calls.Load()) || r.Gone+r.Failed+r.Kept != 0 {
				t.Errorf("%v, %+v, %d calls", err, r, calls.Load())
			}
			if errors.Is(c.want, ErrAnew) {
				b.untouched(4)
			}
		})
	}
}

// untouched holds that the n entries of the new DLQ stream are there, and that the app saw none of them.
func (b *bench) untouched(n int) {
	b.t.Helper()
	st, err := b.js.Stream(b.t.Context(), "O_DLQ")
	b.must(err)
	if left := st.CachedInfo().State.Msgs; left != uint64(n) {
		b.t.Errorf("%d of %d new entries left, and none of them was selected", left, n)
	}
	for seq := range b.app.calls {
		if seq >= 100 {
			b.t.Errorf("the app was called with %v", b.app.calls)
		}
	}
}
