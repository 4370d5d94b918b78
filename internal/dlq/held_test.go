package dlq

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/forward"
	"github.com/jetsidecar/jetsidecar/jetstream"
)

// held lets another process have entries in work. The returned func, as OnProgress, calls first when it is waited for, once.
func (b *bench) held(s *Service, first func(Progress), seqs ...uint64) (claims *jetstream.Claims, told func(Progress)) {
	b.t.Helper()
	claims, _, err := s.conn.OpenClaims(b.t.Context(), "O_DLQ", "O", jetstream.ManageCreate, "other", "process 7 on a")
	b.must(err)
	_, _, err = claims.Take(b.t.Context(), seqs...)
	b.must(err)
	waited := false
	return claims, func(p Progress) {
		if p.Waiting != nil && !waited {
			waited = true
			first(p)
		}
	}
}

// Entries of a run that was killed are removed when its claims end.
func TestRemoveWaitsForTheDead(t *testing.T) {
	b := newBench(t, 3)
	s := b.service(nil)
	_, told := b.held(s, func(p Progress) {
		if p.Done != 1 || p.Last != nil || *p.Waiting != (Waiting{2, "process 7 on a"}) {
			t.Errorf("%+v", p)
		}
		b.expireClaims()
	}, 2, 3)
	r, err := s.Remove(t.Context(), Filter{}, RemoveOptions{OnProgress: told})
	if err != nil || !r.Handled() || r.Done != 3 || r.Waiting != nil || len(b.left(s)) != 0 {
		t.Errorf("%v, %+v, %v left", err, r, b.left(s))
	}
}

// Entries that a run which lives has in work for longer are left.
func TestRemoveLeavesWhatIsInWork(t *testing.T) {
	b := newBench(t, 3)
	s := b.service(nil)
	s.leaseEnds = time.Nanosecond
	b.held(s, nil, 2)
	r, err := s.Remove(t.Context(), Filter{}, RemoveOptions{})
	if err != nil || r.Done != 2 || r.Kept != 1 || len(r.Failures) != 1 || r.Failures[0].Why != "it is in work by process 7 on a" || !slices.Equal(b.left(s), []uint64{2}) {
		t.Errorf("%v, %+v, %v left", err, r, b.left(s))
	}
}

// A stop ends the waiting; what is waited for was not tried.
func TestStoppedWhileItWaits(t *testing.T) {
	for name, remove := range map[string]bool{"remove": true, "replay": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 3)
			s := b.service(nil)
			ctx, stop := context.WithCancel(t.Context())
			_, told := b.held(s, func(Progress) { stop() }, 2)
			var r *Report
			var err error
			if remove {
				r, err = s.Remove(ctx, Filter{}, RemoveOptions{OnProgress: told})
			} else {
				r, err = s.Replay(ctx, Filter{}, ReplayOptions{OnProgress: told})
			}
			if err != nil || !r.Interrupted || r.Done != 2 || r.Kept != 0 || !slices.Equal(b.left(s), []uint64{2}) {
				t.Errorf("%v, %+v, %v left", err, r, b.left(s))
			}
		})
	}
}

// A replay that was killed when it had stored an entry anew, and not removed the old one, leaves the message there once after the next
// run, wherever the next run is with the new entry when the claims end.
func TestKilledReplayDoublesNothing(t *testing.T) {
	b := newBench(t, 2)
	s := b.service(nil)
	b.app.script = func(context.Context, *forward.Message) forward.Result { return answer(422) }
	_, told := b.held(s, func(Progress) {
		b.copied(1, 1, nil) // what the killed run did last can come after the selection
		b.expireClaims()
	}, 1)
	r, err := s.Replay(t.Context(), Filter{}, ReplayOptions{OnProgress: told})
	if err != nil || r.Failed != 2 || b.app.calls[1] != 0 || b.app.calls[2] != 1 || !slices.Equal(b.left(s), []uint64{2, 1}) {
		t.Errorf("%v, %+v, %v calls, %v left", err, r, b.app.calls, b.left(s))
	}
}

// That is so whenever the other run does and dies: here between two entries of this one.
func TestReplayKilledMeanwhileDoublesNothing(t *testing.T) {
	for name, subject := range map[string]string{"same DLQ stream": "dlq.O.w.o.a", "another DLQ stream": "ndlq.O.w.o.a"} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 2)
			b.stream("N_DLQ", "ndlq.>")
			s := moved(b)
			b.held(s, nil, 2)
			b.app.script = func(_ context.Context, m *forward.Message) forward.Result {
				if m.Sequence == 1 {
					b.copiedTo(subject, 2, 1, nil)
					b.expireClaims()
				}
				return answer(200)
			}
			r, err := s.Replay(t.Context(), Filter{}, ReplayOptions{})
			if err != nil || r.Done != 1 || r.Failed != 1 || b.app.calls[1] != 1 || b.app.calls[2] != 0 || !slices.Equal(b.left(s), []uint64{2}) {
				t.Errorf("%v, %+v, %v calls, %v left", err, r, b.app.calls, b.left(s))
			}
		})
	}
}

// Nor where it does so while it is waited for, in the DLQ stream that the consumer has now.
func TestKilledReplayDoublesNothingElsewhere(t *testing.T) {
	b := newBench(t, 2)
	b.stream("N_DLQ", "ndlq.>")
	s := moved(b)
	_, told := b.held(s, func(Progress) {
		b.copiedTo("ndlq.O.w.o.a", 1, 1, nil)
		b.expireClaims()
	}, 1)
	r, err := s.Replay(t.Context(), Filter{}, ReplayOptions{OnProgress: told})
	if err != nil || r.Done != 1 || r.Failed != 1 || b.app.calls[1] != 0 || b.app.calls[2] != 1 || !slices.Equal(b.left(s), []uint64{1}) {
		t.Errorf("%v, %+v, %v calls, %v left", err, r, b.app.calls, b.left(s))
	}
}

// Nor is it counted twice where that run had noted that the old one is done with: then the old one goes when its claims end.
func TestKilledReplayCountsNothingTwice(t *testing.T) {
	b := newBench(t, 2)
	b.copied(1, 1, nil)
	s := b.service(nil)
	b.app.script = func(context.Context, *forward.Message) forward.Result { return answer(422) }
	claims, told := b.held(s, func(Progress) { b.expireClaims() }, 1)
	b.must(claims.Done(t.Context(), []uint64{1}))
	r, err := s.Replay(t.Context(), Filter{}, ReplayOptions{OnProgress: told})
	if err != nil || r.Selected != 3 || r.Failed != 2 || r.Gone != 1 || b.app.calls[1] != 1 || !slices.Equal(b.left(s), []uint64{2, 1}) && !slices.Equal(b.left(s), []uint64{1, 2}) {
		t.Errorf("%v, %+v, %v calls, %v left", err, r, b.app.calls, b.left(s))
	}
}

// Two replays do not have two entries of one message at the app at the same time.
func TestReplaysOfOneMessage(t *testing.T) {
	b := newBench(t, 1)
	b.copied(1, 0, nil)
	s, other := b.service(nil), b.service(nil)
	there, open := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(there); <-open })
	b.app.script = func(context.Context, *forward.Message) forward.Result {
		select {
		case <-there:
			if !closed(open) {
				t.Error("it is there twice")
			}
		default:
			first()
		}
		return answer(200)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := other.Replay(t.Context(), Filter{Last: 1}, ReplayOptions{})
		ended <- err
	}()
	<-there
	waited := false
	r, err := s.Replay(t.Context(), Filter{First: 2}, ReplayOptions{OnProgress: func(p Progress) {
		if p.Waiting == nil || waited {
			return
		}
		waited = true
		if !strings.HasPrefix(p.Waiting.Owner, "process ") {
			t.Errorf("%+v", p.Waiting)
		}
		close(open)
	}})
	if !waited {
		close(open)
	}
	b.must(<-ended)
	if err != nil || r.Done != 1 || !waited || b.app.calls[1] != 2 {
		t.Errorf("%v, %+v, waited: %v, %v", err, r, waited, b.app.calls)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
