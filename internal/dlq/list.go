package dlq

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

// List brings the entries that the filter selects, DLQ stream by DLQ stream and each in order of arrival, as they are read:
// bodies are not. It ends with an error, at the latest when ctx does. A DLQ stream that does not exist has no entries.
// To page, set Filter.Limit, and Filter.After to the Cursor of the last entry that was brought.
func (s *Service) List(ctx context.Context, f Filter) iter.Seq2[*Entry, error] {
	r := &reading{}
	return func(yield func(*Entry, error) bool) {
		for e, err := range s.read(ctx, &f, r) {
			if f.Passed != nil {
				*f.Passed = r.passed
			}
			if !yield(e, err) {
				return
			}
		}
		if f.Passed != nil {
			*f.Passed = r.passed
		}
	}
}

// reading is what else there is to know of a List.
type reading struct {
	upTo   []Cursor // how far each DLQ stream that exists was read
	passed Passed
}

// read brings what List does.
func (s *Service) read(ctx context.Context, f *Filter, r *reading) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		r.upTo = []Cursor{}
		streams, err := s.selected(f)
		if err != nil {
			yield(nil, err)
			return
		}
		n := 0
		for _, stream := range streams {
			for e, err := range s.entries(ctx, f, stream, r) {
				if n++; !yield(e, err) || err != nil {
					return
				}
				if n == f.Limit {
					r.upTo[len(r.upTo)-1] = e.Cursor()
					return
				}
			}
		}
	}
}

// Missing are the DLQ streams that the filter looks at and that do not exist.
func (s *Service) Missing(ctx context.Context, f Filter) (names []string, err error) {
	streams, err := s.selected(&f)
	for _, name := range streams {
		if _, err := s.conn.StreamState(ctx, name); errors.Is(err, jetstream.ErrStreamNotFound) {
			names = append(names, name)
		} else if err != nil {
			return names, err
		}
	}
	return names, err
}

// selected are the DLQ streams that the filter looks at.
func (s *Service) selected(f *Filter) ([]string, error) {
	if f.Stream != "" && !slices.Contains(s.streams, f.Stream) {
		return nil, fmt.Errorf("%w: %s is no DLQ stream of this configuration, which has %s", ErrNotFound, f.Stream, orNone(s.streams))
	}
	return slices.DeleteFunc(slices.Clone(s.streams), func(name string) bool {
		return f.Stream != "" && name != f.Stream || name < f.After.Stream
	}), nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// lookBack is how many messages before the first that is asked for are read: a second part at the beginning has its first there.
const lookBack = 16

// entries are the filter's entries of one DLQ stream. It is read to its end where a bound comes before it: there can be the second part
// of an entry.
func (s *Service) entries(ctx context.Context, f *Filter, stream string, r *reading) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		state, err := s.conn.StreamState(ctx, stream)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return
		}
		if err != nil {
			yield(nil, err)
			return
		}
		last := f.upTo(stream)
		read := len(r.upTo)
		r.upTo = append(r.upTo, Cursor{stream, min(last, state.Last)})
		if last == 0 {
			return
		}
		first := max(f.First, 1)
		if f.After.Stream == stream {
			first = max(first, f.After.Seq+1)
		}
		scan := jetstream.Scan{
			Stream: stream, Subjects: s.subjects(f, stream, state.Subjects), To: state.Last, Since: f.Since, From: 1,
		}
		if first > 1 {
			scan.From = max(first, lookBack+1) - lookBack
		}
		join := joiner{lookUp: func() (*pairs, error) { return s.pairs(ctx, stream, state.Last) }}
		pass := func(found []*Entry, err error) bool {
			if err != nil {
				yield(nil, err)
				return false
			}
			for _, e := range found {
				switch {
				case e.Seq < first || e.Seq > last || !f.Matches(e):
				case !s.scope.covers(f, e):
					r.passed.other(s.scope, e)
				case !yield(e, nil):
					return false
				}
			}
			return true
		}
		for m, err := range s.conn.ScanHeaders(ctx, scan) {
			if err != nil {
				yield(nil, err)
				return
			}
			if f.late(m) { // as a duration ago, Filter.Until can be later the next time
				r.upTo[read].Seq = min(r.upTo[read].Seq, m.Seq-1)
			}
			e, ok := parse(stream, m)
			if !ok {
				if m.Seq >= first && m.Seq <= last {
					r.passed.Foreign++
				}
				continue
			}
			if !pass(join.add(e)) {
				return
			}
			if len(join.held) == 0 && (m.Seq >= last || f.past(m)) {
				return
			}
		}
		pass(join.flush())
	}
}

// past reports whether nothing that comes after a message can be selected.
func (f *Filter) past(m *jetstream.Stored) bool {
	return f.Last != 0 && m.Seq >= f.Last || f.late(m)
}

// late reports whether a message was stored when the filter selects nothing any more.
func (f *Filter) late(m *jetstream.Stored) bool { return !f.Until.IsZero() && !m.Time.Before(f.Until) }

// pairs reads which parts of a stream belong together.
func (s *Service) pairs(ctx context.Context, stream string, last uint64) (*pairs, error) {
	p := &pairs{}
	for m, err := range s.conn.ScanHeaders(ctx, jetstream.Scan{Stream: stream, From: 1, To: last}) {
		if err != nil {
			return nil, err
		}
		if e, ok := parse(stream, m); ok && e.Part != "" {
			p.add(e)
		}
	}
	return p, nil
}
