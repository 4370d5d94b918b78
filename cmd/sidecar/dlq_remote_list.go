package main

import (
	"context"
	"iter"
	"strconv"

	"github.com/jetsidecar/jetsidecar/internal/dlq"
)

// remotePage is how many entries are asked for at a time.
const remotePage = 1000

type remotePageAnswer struct {
	Streams []string     `json:"streams"`
	Entries []*dlq.Entry `json:"entries"`
	Next    string       `json:"next"`
	dlq.Passed
}

// List brings the entries page by page. The API knows no bound of each DLQ stream for it: what is beyond is left out here.
func (r *remote) List(ctx context.Context, f dlq.Filter) iter.Seq2[*dlq.Entry, error] {
	return func(yield func(*dlq.Entry, error) bool) {
		q, ends := parameters(f), endsOf(f.UpTo)
		for left := f.Limit; ; {
			size := remotePage
			if f.Limit > 0 {
				size = min(size, left)
			}
			q.Set("limit", strconv.Itoa(size))
			var page remotePageAnswer
			if err := r.get(ctx, q, &page, "api", "dlq"); err != nil {
				yield(nil, err)
				return
			}
			if f.Passed != nil {
				f.Passed.Add(&page.Passed)
			}
			for _, e := range page.Entries {
				if ends.beyond(e) {
					continue
				}
				if left--; !yield(e, nil) {
					return
				}
			}
			if page.Next == "" || f.Limit > 0 && left <= 0 || ends.reached() {
				return
			}
			q.Set("after", page.Next)
		}
	}
}

// ends are the last sequences of the DLQ streams that are not read to their ends yet; nil: there are no such bounds.
type ends map[string]uint64

func endsOf(upTo []dlq.Cursor) ends {
	if upTo == nil {
		return nil
	}
	e := ends{}
	for _, c := range upTo {
		if c.Seq > 0 {
			e[c.Stream] = c.Seq
		}
	}
	return e
}

// beyond reports whether an entry comes after the end of its DLQ stream. Those of one stream are to be given in order.
func (e ends) beyond(one *dlq.Entry) bool {
	if e == nil {
		return false
	}
	last, open := e[one.DLQStream]
	if one.Seq >= last {
		delete(e, one.DLQStream)
	}
	return !open || one.Seq > last
}

func (e ends) reached() bool { return e != nil && len(e) == 0 }
