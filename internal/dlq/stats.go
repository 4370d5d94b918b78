package dlq

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// maxGroups bounds the groups of a Stats. Further ones are counted together, under the subject Others.
const maxGroups = 10_000

// Others stands in a Group for the subjects that are not told apart because there are too many.
const Others = "(others)"

type groupKey struct {
	consumer, subject, reason string
	status                    int
}

// Stats counts the entries that the filter selects.
func (s *Service) Stats(ctx context.Context, f Filter) (*Stats, error) {
	st := &Stats{Groups: []Group{}}
	groups := map[groupKey]*Group{}
	var r reading
	for e, err := range s.read(ctx, &f, &r) {
		if err != nil {
			return nil, err
		}
		st.count(e, groups)
	}
	st.Passed, st.UpTo = r.passed, r.upTo
	for _, g := range groups {
		st.Groups = append(st.Groups, *g)
	}
	slices.SortFunc(st.Groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Consumer, b.Consumer), cmp.Compare(a.Subject, b.Subject),
			cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Status, b.Status))
	})
	return st, nil
}

func (st *Stats) count(e *Entry, groups map[groupKey]*Group) {
	st.Entries++
	st.Bytes += e.Size
	widen(&st.Oldest, &st.Newest, e.Time)
	k := groupKey{e.Consumer, e.Subject, e.Reason, e.Status}
	g := groups[k]
	if g == nil && len(groups) >= maxGroups {
		k.subject = Others
		g = groups[k]
	}
	if g == nil {
		g = &Group{Consumer: k.consumer, Subject: k.subject, Reason: k.reason, Status: k.status, Oldest: e.Time, Newest: e.Time}
		groups[k] = g
	}
	g.Count++
	if e.Time.Before(g.Oldest) {
		g.Oldest = e.Time
	}
	if e.Time.After(g.Newest) {
		g.Newest = e.Time
	}
}

func widen(oldest, newest **time.Time, t time.Time) {
	if *oldest == nil || t.Before(**oldest) {
		*oldest = &t
	}
	if *newest == nil || t.After(**newest) {
		*newest = &t
	}
}
