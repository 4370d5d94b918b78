package dlq

import (
	"context"
	"slices"
	"strings"
	"time"
)

// ref is a selected entry, as little of it as is needed to find it again: a selection is held in memory.
type ref struct {
	origin
	stream  string
	parts   [2]uint64 // sequences; the second is 0 where there is one
	half    string    // Entry.Part
	time    time.Time
	replays int
	at      int64  // Dlq-Time-Stamp in Unix nanoseconds; 0: the entry does not say
	bare    bool   // it does not say its original subject
	whole   *Entry // where it is the only one
}

// origin is the message that an entry was made of, and for whom. An entry that a replay failed again has the one of its successor.
type origin struct {
	source, consumer string
	sequence         uint64
}

func originOf(e *Entry) origin { return origin{e.Stream, e.Consumer, e.Sequence} }

func refOf(e *Entry) ref {
	r := ref{origin: originOf(e), stream: e.DLQStream, half: e.Part, time: e.Time, replays: e.Replays, bare: e.Subject == ""}
	if at, err := time.Parse(time.RFC3339Nano, e.stamp); err == nil && !at.IsZero() {
		r.at = at.UnixNano()
	}
	for i, p := range e.parts {
		r.parts[i] = p.seq
	}
	return r
}

// seq names the entry, also in the claims.
func (r *ref) seq() uint64 { return r.parts[0] }

// stored are the sequences of the parts, that of the entry first.
func (r *ref) stored() []uint64 {
	if r.parts[1] == 0 {
		return r.parts[:1:1]
	}
	return r.parts[:]
}

func (r *ref) entry() *Entry {
	if r.whole != nil {
		return r.whole
	}
	return &Entry{DLQStream: r.stream, Seq: r.parts[0], Consumer: r.consumer, Part: r.half, Time: r.time}
}

// selection is what the filter selects now, and how far each DLQ stream was read for it. byTime says that it is in the order of List. look, if it is
// set, is told of each entry, with its head.
func (s *Service) selection(ctx context.Context, f Filter, byTime bool, look func(context.Context, *Entry)) (refs []ref, upTo []Cursor, err error) {
	read := reading{byTime: byTime, heads: look != nil}
	var only *Entry
	names := map[string]string{} // one copy of each name
	for e, err := range s.read(ctx, &f, &read) {
		if err != nil {
			return nil, nil, err
		}
		if look != nil {
			look(ctx, e)
		}
		only = e
		r := refOf(e)
		for _, name := range []*string{&r.source, &r.consumer} {
			if _, ok := names[*name]; !ok {
				names[*name] = *name
			}
			*name = names[*name]
		}
		refs = append(refs, r)
	}
	if len(refs) == 1 {
		refs[0].whole = only
	}
	return refs, read.upTo, nil
}

// unselected is the report of a run whose selection could not be read. A stop is no error.
func (s *Service) unselected(ctx context.Context, err error) (*Report, error) {
	r := s.newRun(0, nil, nil).end(false)
	if stopped(ctx) {
		r.Interrupted = true
		return r, nil
	}
	return r, err
}

// byStream cuts a selection into those of one DLQ stream each. It sorts it for that, each stream's as they were.
func byStream(refs []ref) (cut [][]ref) {
	slices.SortStableFunc(refs, func(a, b ref) int { return strings.Compare(a.stream, b.stream) })
	for len(refs) > 0 {
		n := 1
		for n < len(refs) && refs[n].stream == refs[0].stream {
			n++
		}
		cut = append(cut, refs[:n])
		refs = refs[n:]
	}
	return cut
}

// streamsOf are the DLQ streams of a selection, in the order of their first entries.
func streamsOf(refs []ref) (names []string) {
	seen := map[string]bool{}
	for i := range refs {
		if name := refs[i].stream; !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}
