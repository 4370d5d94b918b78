package dlq

import (
	"context"
	"testing"

	"github.com/jetsidecar/jetsidecar/forward"
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
