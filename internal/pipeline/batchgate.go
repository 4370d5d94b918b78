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
// rest, which the answer means as a whole, is one failure or one success to it: a request that failed is one, by the message it began
// with, so that the smaller ones around a message that fails again and again are none more. Several messages that are rejected as a
// whole are no verdict yet.
func (g *gate) leaveBatch(named, rest []*attempt, means policy.Verdict, why string) {
	g.mu.Lock()
	now := time.Now()
	since, was := g.breaker.Open()
	g.inside--
	passed := false
	for _, a := range named {
		passed = g.judge(now, a, passed, why)
	}
	switch {
	case len(rest) == 1:
		g.judge(now, rest[0], passed, why)
	case len(rest) == 0:
	case means == policy.Retry:
		g.failed(now, rest[0].message.Sequence, why)
	case means == policy.Ack && !passed:
		g.breaker.Passed()
	}
	opened, open := g.breaker.Open()
	g.tell()
	why = g.why
	g.mu.Unlock()
	if open != was && g.onChange != nil {
		if open {
			since = opened
		}
		g.onChange(open, since, why)
	}
}

// judge counts the decision over one message, of which the last one passed or not, and reports whether this one did.
func (g *gate) judge(now time.Time, a *attempt, passed bool, why string) bool {
	d := a.decision
	limited := d.Reason == policy.ReasonMaxDeliver || d.Reason == policy.ReasonMaxAge
	switch {
	case d.Verdict == 0: // handed back
		return passed
	case d.Verdict == policy.Retry || limited:
		g.failed(now, a.message.Sequence, why)
		a.again = limited && g.breaker.Holds(now)
		return false
	case !passed:
		g.breaker.Passed()
	}
	return true
}

func (g *gate) failed(now time.Time, m uint64, why string) {
	if g.breaker.Failed(now, m, random()) {
		g.why = why
	}
}
