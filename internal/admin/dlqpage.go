package admin

import (
	"context"
	"slices"

	"github.com/jetsidecar/jetsidecar/internal/dlq"
)

// oldest are the first entries of a filter, and if there are more than its limit, where the next page begins: in each of the DLQ streams
// after what was brought of it. One of which nothing was brought yet is not named. What was left out after them is left to the next page.
func (s *Server) oldest(ctx context.Context, f dlq.Filter, streams []string) (found []*dlq.Entry, next dlq.Position, passed dlq.Passed, err error) {
	var now dlq.Passed
	limit := f.Limit
	f.Limit, f.Passed = limit+1, &now
	found = []*dlq.Entry{}
	for e, err := range s.letters.List(ctx, f) {
		if err != nil {
			return nil, nil, passed, err
		}
		if found = append(found, e); len(found) == limit {
			passed = dlq.Passed{}
			passed.Add(&now)
		}
	}
	if len(found) <= limit {
		return found, nil, now, nil
	}
	found = found[:limit]
	for _, name := range streams {
		seq, _ := f.After.Of(name)
		next = append(next, dlq.Cursor{Stream: name, Seq: seq})
	}
	next = slices.DeleteFunc(along(next, found), func(c dlq.Cursor) bool { return c.Seq == 0 })
	return found, next, passed, nil
}

// newest are the last entries of a filter, the latest first, and if there are more than its limit, where the next page begins: in each of
// the DLQ streams before what was brought of it, so that what is stored meanwhile is on no later page. One that has nothing more is not named,
// and nothing of it is brought then. All entries are read for it, and as many as the limit are kept.
func (s *Server) newest(ctx context.Context, f dlq.Filter, streams []string) (found []*dlq.Entry, next dlq.Position, passed dlq.Passed, err error) {
	limit := f.Limit
	if len(f.After) > 0 {
		f.UpTo = []dlq.Cursor{}
		for _, c := range f.After {
			f.UpTo = append(f.UpTo, dlq.Cursor{Stream: c.Stream, Seq: max(c.Seq, 1) - 1})
		}
	}
	f.Limit, f.After, f.Passed = 0, nil, &passed
	seen := map[string]uint64{} // the last of each stream
	last := newRing(limit + 1)
	for e, err := range s.letters.List(ctx, f) {
		if err != nil {
			return nil, nil, passed, err
		}
		seen[e.DLQStream] = e.Seq
		last.add(e)
	}
	found = last.inOrder()
	slices.Reverse(found)
	if len(found) <= limit {
		return found, nil, passed, nil
	}
	found = found[:limit]
	for _, name := range streams {
		if seq, ok := seen[name]; ok {
			next = append(next, dlq.Cursor{Stream: name, Seq: seq + 1})
		}
	}
	return found, along(next, found), passed, nil
}

// along moves a position along with entries.
func along(p dlq.Position, entries []*dlq.Entry) dlq.Position {
	for _, e := range entries {
		for i := range p {
			if p[i].Stream == e.DLQStream {
				p[i].Seq = e.Seq
			}
		}
	}
	return p
}

// ring keeps the last entries that were added.
type ring struct {
	entries []*dlq.Entry
	most    int
	oldest  int
}

func newRing(most int) *ring { return &ring{most: most} }

func (r *ring) add(e *dlq.Entry) {
	if len(r.entries) < r.most {
		r.entries = append(r.entries, e)
		return
	}
	r.entries[r.oldest] = e
	r.oldest = (r.oldest + 1) % r.most
}

// inOrder are those that are kept, in the order in which they were added; never nil.
func (r *ring) inOrder() []*dlq.Entry {
	all := make([]*dlq.Entry, 0, len(r.entries))
	return append(append(all, r.entries[r.oldest:]...), r.entries[:r.oldest]...)
}
