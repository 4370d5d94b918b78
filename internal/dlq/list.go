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

// List brings the entries that the filter selects, as they are read, in the order in which they were stored: by time, of the same time by
// DLQ stream, and those of one DLQ stream always by sequence. Bodies are not read. It ends with an error, at the latest when ctx
// does. A DLQ stream that does not exist has no entries. What is stored after the beginning is not brought.
// To page, set Filter.Limit, and Filter.After to how far each DLQ stream was brought.
func (s *Service) List(ctx context.Context, f Filter) iter.Seq2[*Entry, error] {
	r := &reading{byTime: true}
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
	byTime bool     // the order of List; else, without a limit, DLQ stream by DLQ stream
	upTo   []Cursor // how far each DLQ stream that exists was read
	passed Passed
	heads  bool // entries say Entry.head
}

// read brings what List does.
func (s *Service) read(ctx context.Context, f *Filter, r *reading) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		sources, err := s.sources(ctx, f, r)
		if err != nil {
			yield(nil, err)
			return
		}
		all := merge(sources, &r.passed)
		if len(sources) == 1 || !r.byTime && f.Limit == 0 {
			all = oneByOne(sources, &r.passed)
		}
		n := 0
		brought := map[string]uint64{}
		for e, err := range all {
			if n++; err != nil || !yield(e, nil) {
				if err != nil {
					yield(nil, err)
				}
				return
			}
			if brought[e.DLQStream] = e.Seq; n == f.Limit {
				for i := range r.upTo {
					r.upTo[i].Seq = brought[r.upTo[i].Stream]
				}
				return
			}
		}
	}
}

// sources are the DLQ streams that the filter looks at and that exist.
func (s *Service) sources(ctx context.Context, f *Filter, r *reading) (all []*source, err error) {
	r.upTo = []Cursor{}
	streams, err := s.selected(f)
	if err != nil {
		return nil, err
	}
	for _, name := range streams {
		state, err := s.conn.StreamState(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			if slices.ContainsFunc(f.UpTo, func(c Cursor) bool { return c.Stream == name && c.Made != 0 }) {
				return nil, fmt.Errorf("stream %s was deleted since the entries were selected: %w", name, jetstream.ErrStreamNotFound)
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(f.UpTo, func(c Cursor) bool { return c.Stream == name && c.Made != 0 && c.Made != state.Created.UnixNano() }) {
			return nil, anew(name)
		}
		after, _ := f.After.Of(name)
		src := &source{name: name, least: state.FirstTime, after: after}
		l := &lister{s: s, f: f, r: r, passed: &src.left, stream: name, state: state, read: len(r.upTo)}
		src.open = func(after uint64) iter.Seq2[*Entry, error] { return l.entries(ctx, after) }
		r.upTo = append(r.upTo, Cursor{name, min(f.upTo(name), state.Last), state.Created.UnixNano()})
		all = append(all, src)
	}
	return all, nil
}

// oneByOne brings the entries of one source after the other, and counts what was left out as merge does.
func oneByOne(sources []*source, passed *Passed) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		for _, src := range sources {
			for e, err := range src.open(src.after) {
				passed.Add(&src.left)
				src.left = Passed{}
				if !yield(e, err) || err != nil {
					return
				}
			}
			passed.Add(&src.left)
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
	streams := s.streams
	if f.Stream != "" {
		streams = []string{f.Stream}
	}
	return streams, f.After.Check(streams)
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
