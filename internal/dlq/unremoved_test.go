package dlq

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/forward"
	"github.com/jetsidecar/jetsidecar/jetstream"
)

// weak is a service whose user may remove nothing.
func (b *bench) weak() *Service {
	b.t.Helper()
	conn, err := jetstream.Dial(jetstream.Config{URLs: []string{b.url}, User: "u", Password: "p"}, slog.New(slog.DiscardHandler))
	b.must(err)
	b.t.Cleanup(conn.Close)
	if found := conn.AwaitConnection(b.t.Context(), time.Minute); found.Level != jetstream.OK {
		b.t.Fatal(found)
	}
	return New(Options{Conn: conn, App: b.app, Consumers: b.service(nil).consumers})
}

// What was answered and cannot be removed is kept and says so, and once it can be removed that is all that is done with it.
func TestAnsweredAndNotRemoved(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		to     Destination
		before bool // there is a newer one of it
		why    string
		calls  int
		anew   int // entries
	}{
		"accepted":        {200, ToApp, false, "it was acked", 1, 0},
		"failed again":    {422, ToApp, false, "it failed again, is there anew", 1, 1},
		"published":       {200, ToStream, false, "it was published", 0, 0},
		"answered before": {200, ToApp, true, "it was replayed before", 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 2)
			if c.before {
				b.copied(1, 1, nil)
			}
			weak := b.weak()
			b.app.script = func(context.Context, *forward.Message) forward.Result { return answer(c.status) }
			r, err := weak.Replay(t.Context(), Filter{Last: 2}, ReplayOptions{To: c.to})
			why := c.why + ", and could not be removed, which is all that the next replay does with it: "
			if !errors.Is(err, jetstream.ErrDenied) || r.Kept != 1 || r.Done+r.Failed != 0 || len(r.Failures) != 1 || !strings.HasPrefix(r.Failures[0].Why, why) || r.Failures[0].Example != 1 {
				t.Errorf("%v, %+v", err, r)
			}
			if r, err := weak.Replay(t.Context(), Filter{Last: 2}, ReplayOptions{To: c.to}); !errors.Is(err, jetstream.ErrDenied) || r.Done+r.Failed+r.Kept != 0 {
				t.Errorf("a second time: %v, %+v", err, r)
			}
			s := b.service(nil)
			if r, err := s.Replay(t.Context(), Filter{Last: 1}, ReplayOptions{To: c.to}); err != nil || r.Gone+r.Failed != 1 || r.Failed != c.anew {
				t.Errorf("with permission: %v, %+v", err, r)
			}
			if want := slices.Repeat([]uint64{1}, c.anew); b.app.calls[1] != c.calls || !slices.Equal(b.left(s), append([]uint64{2}, want...)) {
				t.Errorf("%d calls, %v left", b.app.calls[1], b.left(s))
			}
			source, err := b.js.Stream(t.Context(), "O")
			b.must(err)
			if n := source.CachedInfo().State.Msgs; c.to == ToStream && n != 1 {
				t.Errorf("%d are published", n)
			}
		})
	}
}

// Where not even that it is done could be noted, it says what comes of that.
func TestAnsweredAndNotNoted(t *testing.T) {
	b := newBench(t, 2)
	s := b.service(nil)
	s.finishFor = time.Nanosecond
	b.app.script = func(context.Context, *forward.Message) forward.Result {
		b.cutOff(s)
		return answer(200)
	}
	r, err := s.Replay(t.Context(), Filter{}, ReplayOptions{})
	const why = "it was acked, and could neither be removed nor noted as done: the next replay may call the app again: "
	if !lost(err) || r.Kept != 1 || len(r.Failures) != 1 || !strings.HasPrefix(r.Failures[0].Why, why) {
		t.Errorf("%v, %+v", err, r)
	}
	for o, want := range map[Outcome]string{
		{Result: Published}: "was published, and could neither be removed nor noted as done: the next replay may publish it again",
		{Result: Failed}:    "failed again, is there anew, and could not be removed, which is all that the next replay does with it",
	} {
		if got := unremoved(&o, false); got != want {
			t.Errorf("%s", got)
		}
	}
}
