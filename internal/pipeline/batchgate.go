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
	g.left(func(now time.Time) {
		passed := false
		for _, a := range named {
			passed = g.judgeOne(now, a, passed, why)
		}
		switch {
		case len(rest) == 1:
			g.judgeOne(now, rest[0], passed, why)
		case len(rest) == 0:
		case means == policy.Retry:
			g.failed(now, rest[0].message.Sequence, why)
		case means == policy.Ack && !passed:
			g.breaker.Passed()
		}
	})
}

// judgeOne judges one message of several, of which the last one passed or not, and reports whether this one did.
func (g *gate) judgeOne(now time.Time, a *attempt, passed bool, why string) bool {
	a.again = g.judge(now, a.message.Sequence, a.decision, passed, why)
	switch d := a.decision; {
	case d.Verdict == 0:
		return passed
	case d.Verdict == policy.Retry || limited(d):
		return false
	}
	return true
}
