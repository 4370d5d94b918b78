package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/jetstream"
	"github.com/jetsidecar/jetsidecar/policy"
)

// marks are kept in memory. A stop comes at the call that is named.
type marks struct {
	n        int
	removals int
	fault    error
	stopAt   string
	stop     func()
}

func (m *marks) call(ctx context.Context, what string) error {
	if m.stopAt == what {
		m.stop()
	}
	return errors.Join(ctx.Err(), m.fault)
}

func (m *marks) Count(ctx context.Context, _ string) (int, error) { return m.n, m.call(ctx, "count") }

func (m *marks) Set(ctx context.Context, _ string, n int) error {
	m.n = n // whatever becomes of the answer
	return m.call(ctx, "set")
}

func (m *marks) Remove(context.Context, string) error {
	m.removals++
	m.n = 0
	return nil
}

// A message past its limit is sent with a mark, or without one where there can be none, but not once the sidecar stops: what is handed back
// leaves no mark that it did not have.
func TestMark(t *testing.T) {
	for name, c := range map[string]struct {
		before int
		stopAt string
		fault  error
		sent   bool
		after  int
		kind   policy.Kind
		reason policy.Reason
	}{
		"first":                {0, "", nil, true, 1, 0, ""},
		"second":               {1, "", nil, true, 2, 0, ""},
		"crash loop":           {2, "", nil, false, 2, 0, policy.ReasonCrashLoop},
		"none can be kept":     {0, "", errors.New("no bucket"), true, 0, 0, ""},
		"stop while it looks":  {1, "count", nil, false, 1, policy.HandedBack, ""},
		"stop while it is set": {1, "set", nil, false, 0, policy.HandedBack, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			m := &marks{n: c.before, fault: c.fault, stopAt: c.stopAt, stop: stop}
			log := slog.New(slog.DiscardHandler)
			p := &Pipeline{Parts: Parts{Marks: m, Log: log}, void: newVoidMarks(m, log)}
			a := &attempt{message: &jetstream.Message{Sequence: 1}}
			sent := p.mark(ctx, a)
			if sent != c.sent || m.n != c.after || a.result.Kind != c.kind || a.decision.Reason != c.reason {
				t.Errorf("sent %v with %d marks, kind %v, decision %+v", sent, m.n, a.result.Kind, a.decision)
			}
		})
	}
}

// What left no mark removes none, and says nothing at a stop; what may have left one removes it.
func TestUnmarkOnlyWhatMayBeMarked(t *testing.T) {
	for name, c := range map[string]struct {
		marks    Marks
		removals int
	}{
		"no bucket":           {&marks{fault: fmt.Errorf("opening it: %w", natsjs.ErrBucketNotFound)}, 0},
		"reading is refused":  {&marks{fault: jetstream.ErrDenied}, 0},
		"writing is refused":  {&unwritten{err: jetstream.ErrDenied}, 0},
		"writing fails":       {&unwritten{err: errors.New("no answer")}, 2},
		"one more is refused": {&unwritten{marks: marks{n: 1}, err: jetstream.ErrDenied}, 1},
		"written":             {&marks{}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			log := slog.New(slog.NewTextHandler(&out, nil))
			p := &Pipeline{Parts: Parts{Marks: c.marks, Log: log}, void: newVoidMarks(c.marks, log)}
			for range 2 {
				a := &attempt{message: &jetstream.Message{Sequence: 1}}
				if !p.mark(t.Context(), a) {
					t.Fatal("it is not tried")
				}
				p.unmark(a)
			}
			if n := countOf(c.marks).removals; n != c.removals {
				t.Errorf("%d removals, want %d", n, c.removals)
			}
			p.void.finish(t.Context())
			if n := strings.Count(out.String(), "without a mark"); n > 1 || strings.Contains(out.String(), "marks stay") {
				t.Errorf("the log says: %s", out.String())
			}
		})
	}
}

// unwritten are marks that cannot be written.
type unwritten struct {
	marks
	err error
}

func (u *unwritten) Set(context.Context, string, int) error { return u.err }

func countOf(m Marks) *marks {
	if u, ok := m.(*unwritten); ok {
		return &u.marks
	}
	return m.(*marks)
}
