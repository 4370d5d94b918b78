package dlq

import (
	"context"
	"iter"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

// lookBack is how many messages before the first that is asked for are read: a second part at the beginning has its first there.
const lookBack = 16

// lister reads the filter's entries of one DLQ stream that were there when its state was asked for.
type lister struct {
	s      *Service
	f      *Filter
	r      *reading
	passed *Passed // what is left out is added to it
	stream string
	state  jetstream.StreamState
	read   int    // its place in r.upTo
	seen   uint64 // the last sequence whose message was looked at
	other  uint64 // the last one of an entry that was left out
}

// entries are those after a sequence. The stream is read to its end where a bound comes before it: there can be the second part of an
// entry.
func (l *lister) entries(ctx context.Context, after uint64) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		last := l.f.upTo(l.stream)
		if last == 0 {
			return
		}
		first := max(l.f.First, after+1)
		join := joiner{lookUp: func() (*pairs, error) { return l.s.pairs(ctx, l.stream, l.state.Last) }}
		pass := func(found []*Entry, err error) bool {
			if err != nil {
				yield(nil, err)
				return false
			}
			for _, e := range found {
				switch {
				case e.Seq < first || e.Seq > last || !l.f.Matches(e):
				case !l.s.scope.covers(l.f, e):
					if e.Seq > l.other { // else it was counted before the stream was opened again
						l.other = e.Seq
						l.passed.other(l.s.scope, e)
					}
				case !yield(e, nil):
					return false
				}
			}
			return true
		}
		for m, err := range l.s.conn.ScanHeaders(ctx, l.scan(first)) {
			if err != nil {
				yield(nil, err)
				return
			}
			e, ok := l.look(m, first, last)
			if !ok {
				continue
			}
			if !pass(join.add(e)) {
				return
			}
			if len(join.held) == 0 && (m.Seq >= last || l.f.past(m)) {
				return
			}
		}
		pass(join.flush())
	}
}

// scan is what has to be read for the entries from a sequence on.
func (l *lister) scan(first uint64) jetstream.Scan {
	scan := jetstream.Scan{
		Stream: l.stream, Subjects: l.s.subjects(l.f, l.stream, l.state.Subjects), To: l.state.Last, Since: l.f.Since, From: 1,
	}
	if first > 1 {
		scan.From = max(first, lookBack+1) - lookBack
	}
	return scan
}

// look makes an entry of a message, and notes what there is to know of it; false: it is no dead letter.
func (l *lister) look(m *jetstream.Stored, first, last uint64) (*Entry, bool) {
	if upTo := &l.r.upTo[l.read]; l.f.late(m) { // as a duration ago, Filter.Until can be later the next time
		upTo.Seq = min(upTo.Seq, m.Seq-1)
	}
	e, ok := parse(l.stream, m)
	if !ok && m.Seq > l.seen && m.Seq >= first && m.Seq <= last {
		l.passed.Foreign++
	}
	if l.seen = max(l.seen, m.Seq); ok && l.r.heads {
		e.head = jetstream.RepublishHead(republished(e, m.Header))
	}
	return e, ok
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
