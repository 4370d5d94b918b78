package dlq

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jetsidecar/jetsidecar/forward"
	"github.com/jetsidecar/jetsidecar/jetstream"
)

// What another run had done when it was the turn of this one is handled, but for what failed again there: that is in the DLQ still.
func TestGoneAndFailedAgain(t *testing.T) {
	for _, remove := range []bool{false, true} {
		t.Run(map[bool]string{false: "replay", true: "remove"}[remove], func(t *testing.T) {
			b := newBench(t, 4)
			b.app.script = func(_ context.Context, m *forward.Message) forward.Result {
				if m.Sequence == 2 {
					return answer(422)
				}
				return answer(200)
			}
			s, other := b.service(nil), b.service(nil)
			first := func(int) error { // once the selection is fixed
				r, err := other.Replay(t.Context(), Filter{}, ReplayOptions{})
				if err == nil && (r.Done != 3 || r.Failed != 1) {
					t.Errorf("%+v", r)
				}
				return err
			}
			var last Progress
			told := func(p Progress) { last = p }
			var r *Report
			var err error
			if remove {
				r, err = s.Remove(t.Context(), Filter{}, RemoveOptions{Confirm: first, OnProgress: told})
			} else {
				r, err = s.Replay(t.Context(), Filter{}, ReplayOptions{Confirm: first, OnProgress: told})
			}
			if err != nil || r.Handled() || r.Selected != 4 || r.Gone != 3 || r.Done != 3 || r.Failed != 1 || len(r.Failures) != 1 {
				t.Fatalf("%v, %+v", err, r)
			}
			if f := r.Failures[0]; f.Example != 5 || f.Reason != "rejected" || f.Status != 422 || f.Consumer != "w" {
				t.Errorf("%+v", f)
			}
			if last.Done != 3 || last.Failed != 1 {
				t.Errorf("%+v", last)
			}
		})
	}
}

// What somebody else removed meanwhile is handled.
func TestGone(t *testing.T) {
	b := newBench(t, 4)
	s, other := b.service(nil), b.service(nil)
	r, err := s.Replay(t.Context(), Filter{}, ReplayOptions{Confirm: func(int) error {
		_, err := other.Remove(t.Context(), Filter{}, RemoveOptions{})
		return err
	}})
	if err != nil || !r.Handled() || r.Gone != 4 || len(b.app.calls) != 0 {
		t.Errorf("%v, %+v", err, r)
	}
}

// What failed again in another replay is found also where that stored it in another DLQ stream than it was in, and also by a run that
// was asked to stop meanwhile.
func TestGoneAndFailedAgainElsewhere(t *testing.T) {
	b := newBench(t, 4)
	b.stream("N_DLQ", "ndlq.>")
	b.app.rejects(2, 3)
	s, other := moved(b), moved(b)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r, err := s.Remove(ctx, Filter{}, RemoveOptions{
		Confirm: func(int) error {
			_, err := other.Replay(t.Context(), Filter{}, ReplayOptions{})
			return err
		},
		OnProgress: func(p Progress) {
			if p.Done == 4 {
				stop()
			}
		},
	})
	if err != nil || r.Gone != 2 || r.Done != 2 || r.Failed != 2 || r.Unsettled != 0 || len(r.Failures) != 1 {
		t.Fatalf("%v, %+v", err, r)
	}
	if f := r.Failures[0]; f.Stream != "N_DLQ" || f.Example != 1 || f.Count != 2 {
		t.Errorf("%+v", f)
	}
}

// goneOf are entries 1, 2, … of O_DLQ that vanished, each with the message and the number of replays that are given.
func goneOf(s *Service, each ...[2]int) *run {
	r := s.newRun(len(each), nil, nil)
	for i, one := range each {
		r.vanish(ref{
			origin: origin{"O", "w", uint64(one[0])}, replays: one[1], stream: "O_DLQ", parts: [2]uint64{uint64(i + 1)}, time: time.Unix(int64(i), 0),
		})
	}
	return r
}

// What took too long to look, or cannot be looked for after a stop, counts as gone, and the report says so. Else NATS that is away is an
// error.
func TestGoneAndNotLookedFor(t *testing.T) {
	b := newBench(t, 0)
	s := b.service(nil)
	each := [][2]int{{1, 0}, {2, 0}, {2, 1}}
	ended, end := context.WithCancel(t.Context())
	end()
	for name, ctx := range map[string]context.Context{"going on": t.Context(), "stopped": ended} {
		r := goneOf(s, each...)
		if err := r.settleWithin(ctx, ended); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if rep := r.end(false); rep.Gone != 3 || rep.Done != 3 || rep.Unsettled != 3 || !rep.Handled() {
			t.Errorf("%s: %+v", name, rep)
		}
	}
	b.server.Shutdown()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for s.conn.Connected() {
		<-look.C
	}
	if err := goneOf(s, each...).settle(t.Context()); !errors.Is(err, jetstream.ErrNotConnected) {
		t.Errorf("%v", err)
	}
	r := goneOf(s, each...)
	if err := r.settle(ended); err != nil || r.end(false).Unsettled != 3 {
		t.Errorf("%v, %+v", err, r.end(false))
	}
}

// One new entry is what became of one that vanished, and when all are found nothing more is read.
func TestSearch(t *testing.T) {
	both := [][2]int{{7, 0}, {7, 1}}
	for _, c := range []struct {
		name string
		gone [][2]int // message and replays
		anew [][2]int // the same, from sequence 3 on
		read int
		want []uint64 // the entries that failed again
	}{
		{"nothing", both, [][2]int{{8, 1}}, 1, nil},
		{"both", both, [][2]int{{7, 1}, {8, 1}, {7, 2}, {7, 3}}, 3, []uint64{1, 2}},
		{"both, the other way", both, [][2]int{{7, 2}, {7, 1}, {7, 3}}, 2, []uint64{2, 1}},
		{"the second", both, [][2]int{{7, 2}, {8, 1}}, 2, []uint64{2}},
		{"the first", both, [][2]int{{7, 1}, {8, 1}}, 2, []uint64{1}},
		{"two of the same", [][2]int{{7, 0}, {7, 0}}, [][2]int{{7, 1}, {7, 1}, {7, 1}}, 2, []uint64{1, 2}},
		{"the one that was there", [][2]int{{7, 1}}, [][2]int{{7, 1}}, 1, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := New(Options{Consumers: []Consumer{consumerOf("O", "w", "O_DLQ", "dlq.{stream}.{consumer}.{subject}")}})
			r := goneOf(s, c.gone...)
			var failed []uint64
			r.onProgress = func(p Progress) { failed = append(failed, p.Last.Entry.Seq) }
			read := 0
			err := r.search(r.places()[0], func(yield func(*jetstream.Stored, error) bool) {
				for i, one := range c.anew {
					read++
					m := &jetstream.Stored{Seq: uint64(3 + i), Header: map[string][]string{
						"Dlq-Stream": {"O"}, "Dlq-Consumer": {"w"}, "Dlq-Reason": {"rejected"},
						"Dlq-Sequence": {strconv.Itoa(one[0])}, "Dlq-Replays": {strconv.Itoa(one[1])},
					}}
					if !yield(m, nil) {
						return
					}
				}
			})
			if err != nil || read != c.read || !slices.Equal(failed, c.want) {
				t.Errorf("%v; %d read, want %d; %v failed again, want %v", err, read, c.read, failed, c.want)
			}
			if rep := r.end(false); rep.Gone != len(c.gone)-len(c.want) || rep.Failed != len(c.want) {
				t.Errorf("%+v", rep)
			}
		})
	}
}

// It is looked for a minute, and no more than 3 s once the run is asked to stop.
func TestLooking(t *testing.T) {
	for _, c := range []struct{ stop, want time.Duration }{{0, 3 * time.Second}, {20 * time.Second, 23 * time.Second}, {time.Hour, time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), c.stop)
			defer cancel()
			began := time.Now()
			look, end := looking(ctx)
			defer end()
			<-look.Done()
			if took := time.Since(began); took != c.want {
				t.Errorf("stopped after %s it ends after %s", c.stop, took)
			}
		})
	}
}
