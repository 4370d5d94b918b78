//go:build unix

package main

import (
	"fmt"
	"slices"
	"time"
)

// unordered is how near two verdicts of a process may be for their order to be unknown.
const unordered = 50 * ms

// outages holds that with the breaker fewer messages than it takes to open it die of one outage in one process, with no other
// verdict between.
func (k *checker) outages() {
	type place struct {
		by   string
		when int
	}
	dead := map[place][]entry{}
	for i, es := range k.dead {
		c := k.causeOf(i, es[0])
		if es[0].reason != "max_deliver" || c == nil || !k.lives[c.by].breaker || !k.diedOfOutages(i, es[0]) {
			continue
		}
		p := place{c.by, k.outageOf(c)}
		if p.when < 0 && k.held(c.slot, c.begun.Add(-time.Second), c.begun.Add(2*appTimeout)) {
			continue // paused for longer than the time limit: no answer, for all it could know
		}
		dead[p] = append(dead[p], es[0])
	}
	for p, es := range dead {
		if p.when < 0 || k.inARow(p.by, es) >= failures {
			var messages []int
			for _, e := range es {
				messages = append(messages, e.index)
			}
			k.broken("the dlq is not for outages", fmt.Sprintf("%d messages died of one outage in sidecar %s", len(es), p.by), messages...)
		}
	}
}

// diedOfOutages reports whether a message failed by outages only.
func (k *checker) diedOfOutages(index int, e entry) bool {
	if natureOf(k.plan.Seed, index) == good {
		return true
	}
	return !slices.ContainsFunc(k.byIndex[index], func(c *call) bool {
		return c.begun.Before(e.failedAt) && !c.outage && !c.reply.shared && (!c.given || !c.reply.accepts())
	})
}

// outageOf is the outage of the app that a call fell into, as a place in the events, or -1.
func (k *checker) outageOf(c *call) int {
	return slices.IndexFunc(k.events, func(e event) bool {
		ours := e.Sidecar == all || e.Sidecar == c.slot
		return ours && slices.Contains([]kind{appDown, appFails, appHangs, appResets}, e.Kind) && !c.begun.After(e.end) && c.begun.Add(2*appTimeout).After(e.begin)
	})
}

// inARow is how many of some dead letters of a process followed each other without a verdict of another kind between them.
func (k *checker) inARow(by string, es []entry) int {
	var others []time.Time
	for _, c := range k.calls {
		if c.by == by && c.given && (c.reply.accepts() || c.reply.rejects()) {
			others = append(others, c.flushed)
		}
	}
	slices.SortFunc(es, func(a, b entry) int { return a.failedAt.Compare(b.failedAt) })
	row, most := 0, 0
	for i, e := range es {
		from := e.failedAt.Add(-unordered)
		if i > 0 {
			from = es[i-1].failedAt.Add(-unordered)
		}
		if slices.ContainsFunc(others, func(at time.Time) bool { return at.After(from) && at.Before(e.failedAt.Add(unordered)) }) {
			row = 0
		}
		row++
		most = max(most, row)
	}
	return most
}
