package pipeline

import (
	"time"

	"github.com/jetsidecar/jetsidecar/policy"
)

// isOpen reports whether the breaker is open.
func (g *gate) isOpen() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, open := g.breaker.Open()
	return open
}

// leaveBatch is told what came of a request with several messages. Of each that the answer names the breaker knows as of one alone. The
// rest, which the answer means as a whole, is one failure, or a success each: a request that failed is one, by the message it began
// with, so that the smaller ones around a message that fails again and again are none more. Several messages that are rejected as a
// whole are no verdict yet.
//
// The answer is one moment, in which the messages follow each other as in the request: what failed before one that passed is no row, and
// nothing is tried again in place but for a breaker that is open after all of them.
func (g *gate) leaveBatch(all, rest []*attempt, means policy.Verdict, why string) {
	whole := len(rest) > 1
	g.left(func(now time.Time) {
		last := len(all) - 1
		for last >= 0 && !all[last].passes(whole, means) {
			last--
		}
		if last >= 0 {
			g.breaker.Passed()
		}
		for _, a := range all[last+1:] {
			if own := a.named || !whole; own && failing(a.decision) || !own && means == policy.Retry && a == rest[0] {
				g.failed(now, a.message.Sequence, why)
			}
		}
		holds := g.breaker.Holds(now)
		for _, a := range all {
			a.again = holds && (a.named || !whole) && limited(a.decision)
		}
	})
}

// passes reports whether an answer says of a message that it needs no other try; whole: what it does not name is decided over together.
func (a *attempt) passes(whole bool, means policy.Verdict) bool {
	if whole && !a.named {
		return means == policy.Ack
	}
	return !silent(a.decision) && !failing(a.decision)
}
