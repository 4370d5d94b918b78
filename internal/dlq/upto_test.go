package dlq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

// bury stores entries of sequences from to last in O_DLQ.
func (b *bench) bury(from, last int, part string) {
	b.t.Helper()
	for n := from; n <= last; n++ {
		h := nats.Header{
			"Dlq-Stream": {"O"}, "Dlq-Consumer": {"w"}, "Dlq-Subject": {"o.a"}, "Dlq-Sequence": {fmt.Sprint(n)}, "Dlq-Reason": {"rejected"},
			"Dlq-Time-Stamp": {time.Unix(int64(n), 0).UTC().Format(time.RFC3339Nano)}, "Dlq-Deliveries": {"3"},
		}
		if part != "" {
			h["Dlq-Part"] = []string{part}
		}
		_, err := b.js.PublishMsg(b.t.Context(), &nats.Msg{Subject: "dlq.O.w.o.a", Data: []byte("x"), Header: h})
		b.must(err)
	}
}

// A second selection that is bounded by a first one selects no more than that, whatever came, went or was completed meanwhile.
func TestUpTo(t *testing.T) {
	all := func(s *Service, f Filter) (cursors []string) {
		for e, err := range s.List(t.Context(), f) {
			if err != nil {
				t.Fatal(err)
			}
			cursors = append(cursors, e.Cursor().String())
		}
		return cursors
	}
	b := newBench(t, 0)
	s := b.service(nil)
	b.bury(1, 4, "")
	b.bury(9, 9, firstPart) // 5
	var third time.Time
	for e, err := range s.List(t.Context(), Filter{First: 3, Last: 3}) {
		b.must(err)
		third = e.Time
	}
	for name, c := range map[string]struct {
		f        Filter
		upTo     []Cursor
		selected []string
	}{
		"until then":   {Filter{Until: third}, []Cursor{{Stream: "O_DLQ", Seq: 2}}, []string{"O_DLQ:1", "O_DLQ:2"}},
		"all":          {Filter{}, []Cursor{{Stream: "O_DLQ", Seq: 5}}, []string{"O_DLQ:1", "O_DLQ:2", "O_DLQ:3", "O_DLQ:4", "O_DLQ:5"}},
		"the oldest":   {Filter{Limit: 2}, []Cursor{{Stream: "O_DLQ", Seq: 2}}, []string{"O_DLQ:1", "O_DLQ:2"}},
		"a few":        {Filter{First: 2, Last: 3}, []Cursor{{Stream: "O_DLQ", Seq: 5}}, []string{"O_DLQ:2", "O_DLQ:3"}},
		"none":         {Filter{Consumer: "x"}, []Cursor{{Stream: "O_DLQ", Seq: 5}}, nil},
		"bound before": {Filter{UpTo: []Cursor{{Stream: "O_DLQ", Seq: 9}, {Stream: "O_DLQ", Seq: 3}}}, []Cursor{{Stream: "O_DLQ", Seq: 3}}, []string{"O_DLQ:1", "O_DLQ:2", "O_DLQ:3"}},
		"nothing":      {Filter{UpTo: []Cursor{}}, []Cursor{{Stream: "O_DLQ", Seq: 0}}, nil},
		"elsewhere":    {Filter{UpTo: []Cursor{{Stream: "P_DLQ", Seq: 7}}}, []Cursor{{Stream: "O_DLQ", Seq: 0}}, nil},
	} {
		f := c.f
		st, err := s.Stats(t.Context(), f)
		b.must(err)
		for what, do := range map[string]func() (*Report, error){
			"a removal": func() (*Report, error) { return s.Remove(t.Context(), f, RemoveOptions{DryRun: true}) },
			"a replay":  func() (*Report, error) { return s.Replay(t.Context(), f, ReplayOptions{DryRun: true}) },
		} {
			r, err := do()
			if err != nil || r.Selected != len(c.selected) || !slices.Equal(places(r.UpTo), c.upTo) {
				t.Errorf("%s: %s: %v, %+v", name, what, err, r)
			}
		}
		if got := all(s, f); !slices.Equal(got, c.selected) || !slices.Equal(places(st.UpTo), c.upTo) || st.Entries != len(c.selected) {
			t.Errorf("%s: %v, %+v", name, got, st)
		}
	}
	b.bury(9, 9, secondPart) // 6
	b.bury(10, 12, "")
	_, err := s.Remove(t.Context(), Filter{Last: 1}, RemoveOptions{})
	b.must(err)
	for name, c := range map[string]struct {
		f    Filter
		want []string
	}{
		"all":        {Filter{UpTo: []Cursor{{Stream: "O_DLQ", Seq: 5}}}, []string{"O_DLQ:2", "O_DLQ:3", "O_DLQ:4", "O_DLQ:5"}},
		"the oldest": {Filter{Limit: 2, UpTo: []Cursor{{Stream: "O_DLQ", Seq: 2}}}, []string{"O_DLQ:2"}},
		"it is gone": {Filter{UpTo: []Cursor{{Stream: "O_DLQ", Seq: 1}}}, nil},
		"from a few": {Filter{First: 4, UpTo: []Cursor{{Stream: "O_DLQ", Seq: 5}}}, []string{"O_DLQ:4", "O_DLQ:5"}},
	} {
		if got := all(s, c.f); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	r, err := s.Remove(t.Context(), Filter{UpTo: []Cursor{{Stream: "O_DLQ", Seq: 5}}}, RemoveOptions{})
	if err != nil || r.Done != 4 || r.UpTo != nil {
		t.Errorf("%v, %+v", err, r)
	}
	if got := all(s, Filter{}); !slices.Equal(got, []string{"O_DLQ:7", "O_DLQ:8", "O_DLQ:9"}) { // the second part went with its first
		t.Errorf("%v are left", got)
	}
}

// What does not exist was not counted: what is in it when it is made is not selected.
func TestUpToOfAStreamThatIsMissing(t *testing.T) {
	b := newBench(t, 0)
	s := b.service(nil)
	b.must(b.js.DeleteStream(t.Context(), "O_DLQ"))
	st, err := s.Stats(t.Context(), Filter{})
	if err != nil || st.UpTo == nil || len(st.UpTo) > 0 {
		t.Fatalf("%v, %+v", err, st)
	}
	_, err = b.js.CreateStream(t.Context(), natsjs.StreamConfig{Name: "O_DLQ", Subjects: []string{"dlq.O.*.>"}})
	b.must(err)
	b.bury(1, 2, "")
	if r, err := s.Remove(t.Context(), Filter{UpTo: st.UpTo}, RemoveOptions{}); err != nil || r.Selected != 0 {
		t.Errorf("%v, %+v", err, r)
	}
}

// What was counted and does not exist any more is not taken for empty.
func TestUpToOfAStreamThatWasDeleted(t *testing.T) {
	b := newBench(t, 2)
	s := b.service(nil)
	st, err := s.Stats(t.Context(), Filter{})
	b.must(err)
	b.must(b.js.DeleteStream(t.Context(), "O_DLQ"))
	if r, err := s.Remove(t.Context(), Filter{UpTo: st.UpTo}, RemoveOptions{}); !errors.Is(err, jetstream.ErrStreamNotFound) || r.Selected != 0 {
		t.Errorf("%v, %+v", err, r)
	}
	if r, err := s.Remove(t.Context(), Filter{UpTo: places(st.UpTo)}, RemoveOptions{}); err != nil || r.Selected != 0 {
		t.Errorf("when it was made is not said: %v, %+v", err, r)
	}
}

// A stop while the selection is read is no failure: it was interrupted before anything was done.
func TestStopBeforeTheSelection(t *testing.T) {
	b := newBench(t, 2)
	s := b.service(nil)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	for what, do := range map[string]func() (*Report, error){
		"a removal": func() (*Report, error) { return s.Remove(ctx, Filter{}, RemoveOptions{}) },
		"a replay":  func() (*Report, error) { return s.Replay(ctx, Filter{}, ReplayOptions{}) },
	} {
		if r, err := do(); err != nil || !r.Interrupted || r.Handled() || r.Failures == nil {
			t.Errorf("%s: %v, %+v", what, err, r)
		}
	}
	if got := b.left(s); len(got) != 2 {
		t.Errorf("%v are left", got)
	}
}

// What is told of the removal of a single entry has all that it was.
func TestRemovalOfOneTellsItsEntry(t *testing.T) {
	b := newBench(t, 2)
	var told *Outcome
	_, err := b.service(nil).Remove(t.Context(), Filter{First: 2, Last: 2}, RemoveOptions{OnProgress: func(p Progress) { told = p.Last }})
	b.must(err)
	if told == nil || told.Result != Removed || told.Entry.Seq != 2 || told.Entry.MsgID != "id-2" || told.Entry.Subject == "" || told.Entry.Reason == "" {
		t.Errorf("%+v", told)
	}
}

// places are cursors without when their streams were made, which each must say.
func places(upTo []Cursor) []Cursor {
	bare := slices.Clone(upTo)
	for i := range bare {
		if bare[i].Made == 0 {
			return nil
		}
		bare[i].Made = 0
	}
	return bare
}
