//go:build unix

package main

import (
	"fmt"
	"slices"
	"time"
)

// breach is a promise that was broken.
type breach struct {
	rule     string
	text     string
	messages []int // concerned
}

// tally is what a campaign did, in numbers.
type tally struct {
	stored, unknown, refused int
	calls, duplicates        int
	unexplained              int // duplicates whose first caller nothing had disturbed
	bound                    int // of the duplicates
	dead                     int
	window                   int    // called with 2xx and dead-lettered, by a disturbance between the two
	unlucky                  int    // good messages dead-lettered in an outage, before the breaker could know
	peak                     int    // requests in flight from one sidecar process
	retried                  uint64 // stored in the retry stream
	streamLost               int    // confirmed to the publisher, and not in the stream
}

// checker proves the promises over a history.
type checker struct {
	history
	tally    tally
	breaches []breach

	lives   map[string]incarnation
	byIndex map[int][]*call // in the order they came
	dead    map[int][]entry
	lastOn  map[uint64]time.Time // when the last request came on a connection
}

// check returns what was broken, and the numbers.
func check(h history) ([]breach, tally) {
	k := &checker{history: h, lives: map[string]incarnation{}, byIndex: map[int][]*call{}, dead: map[int][]entry{}, lastOn: map[uint64]time.Time{}}
	for _, l := range h.lives {
		k.lives[l.id] = l
	}
	for i := range h.calls {
		c := &h.calls[i]
		k.byIndex[c.index] = append(k.byIndex[c.index], c)
		k.lastOn[c.conn] = c.begun
	}
	for _, e := range h.dead {
		k.dead[e.index] = append(k.dead[e.index], e)
	}
	k.tally.calls, k.tally.dead, k.tally.retried = len(h.calls), len(h.dead), h.retried
	if !h.settled {
		k.broken("settled", "not everything is settled in "+settleLimit.String()+": "+h.unsettled, k.open()...)
	}
	k.processes()
	k.fates()
	k.repeats()
	k.stops()
	k.cuts()
	k.inFlight()
	k.outages()
	k.order()
	k.batches()
	return k.breaches, k.tally
}

func (k *checker) broken(rule, text string, messages ...int) {
	for i := range k.breaches {
		if b := &k.breaches[i]; b.rule == rule {
			b.messages = append(b.messages, messages...)
			if len(messages) == 0 {
				b.text += "; " + text
			}
			return
		}
	}
	k.breaches = append(k.breaches, breach{rule, text, messages})
}

// accepted is the first call that the app answered so that the message is done; nil if there is none.
func (k *checker) accepted(index int) *call {
	for _, c := range k.byIndex[index] {
		if c.given && c.reply.accepts() {
			return c
		}
	}
	return nil
}

// must are the messages that must have an end: those in the stream as it was last made.
func (k *checker) must() []int {
	var all []int
	for _, m := range k.published {
		_, there := k.source[m.index]
		switch {
		case m.epoch != k.epoch:
		case k.source != nil && there, k.source == nil && m.outcome == stored:
			all = append(all, m.index)
		}
	}
	return all
}

// open are the messages that have no end.
func (k *checker) open() []int {
	return slices.DeleteFunc(k.must(), func(i int) bool { return k.accepted(i) != nil || len(k.dead[i]) > 0 })
}

// fates holds that every message went where it belongs.
func (k *checker) fates() {
	for _, m := range k.published {
		switch m.outcome {
		case stored:
			k.tally.stored++
		case unknown:
			k.tally.unknown++
		default:
			k.tally.refused++
		}
		if _, there := k.source[m.index]; k.source != nil && !there && m.epoch == k.epoch && m.outcome == stored {
			k.tally.streamLost++ // the servers', not the sidecars'
		}
	}
	if lost := k.open(); k.settled && len(lost) > 0 {
		k.broken("none lost", "neither accepted nor in the dlq, and settled", lost...)
	}
	for _, i := range k.must() {
		n := natureOf(k.plan.Seed, i)
		if len(k.dead[i]) == 0 && k.settled && (n.rejected() || n == hopeless) {
			k.broken("rejected messages are in the dlq", "not in the dlq", i)
		}
	}
	for i, es := range k.dead {
		if len(es) > 1 {
			k.broken("the dlq has each once", "more than one entry", i)
		}
		k.both(i, es[0])
		k.cause(i, es[0])
	}
}

// both holds that what was accepted is not dead-lettered. The one window is a disturbance between the two.
func (k *checker) both(index int, e entry) {
	yes := k.accepted(index)
	if yes == nil {
		return
	}
	no := k.causeOf(index, e)
	first, last := yes, no
	if no != nil && no.begun.Before(yes.begun) {
		first, last = no, yes
	}
	if !k.arrived(yes) || last != nil && first.by != last.by && k.disturbed(first.by, first.begun, last.begun) {
		k.tally.window++
		return
	}
	k.broken("none both accepted and dead-lettered", "accepted by the app and in the dlq, with nothing between to excuse it", index)
}

// causeOf is the call that a DLQ entry came of: the last one before it that can have led there.
func (k *checker) causeOf(index int, e entry) *call {
	var cause *call
	for _, c := range k.byIndex[index] {
		if c.begun.Before(e.failedAt) && k.failed(c) {
			cause = c
		}
	}
	return cause
}

// failed reports whether a call can have been a failure of its message: what it shares with others never is, nor is no answer to several.
func (k *checker) failed(c *call) bool {
	if c.size > 1 {
		return c.given && !c.reply.shared && !c.reply.accepts()
	}
	return !c.given || !c.reply.accepts() || !k.arrived(c)
}

// cause holds that a message is dead for a reason that the app's answers give.
func (k *checker) cause(index int, e entry) {
	rejected := false
	var limit *call // a failure at the limit
	for _, c := range k.byIndex[index] {
		if c.begun.After(e.failedAt) {
			continue
		}
		rejected = rejected || c.given && c.reply.rejects()
		if c.delivered >= k.plan.MaxDeliver && k.failed(c) && (!c.reply.rejects() || !c.given || !k.arrived(c)) {
			limit = c
		}
	}
	switch {
	case e.reason == "rejected" && rejected:
	case e.reason == "crash_loop" && k.crashes(index) >= 2:
	case e.reason == "max_deliver" && limit != nil:
		if natureOf(k.plan.Seed, index) == good {
			k.tally.unlucky++
		}
	default:
		k.broken("dead for a reason", "reason "+e.reason+" is not what the app answered", index)
	}
}

// crashes is how often a process that called for the message was killed before the answer.
func (k *checker) crashes(index int) int {
	n := 0
	for _, c := range k.byIndex[index] {
		if l := k.lives[c.by]; l.killed && !c.given {
			n++
		}
	}
	return n
}

// repeats holds that nothing is called again once it was accepted, but for what disturbances excuse, and never in a hurry.
func (k *checker) repeats() {
	for index, cs := range k.byIndex {
		var yes *call
		for n, c := range cs {
			if n > 0 {
				k.hurry(index, cs[n-1], c)
			}
			switch {
			case yes == nil || c.begun.Before(yes.flushed):
			case c.by != yes.by:
				k.tally.duplicates++
				if !k.disturbed(yes.by, yes.begun, c.begun) && !k.disturbed(c.by, yes.begun, c.begun) {
					k.tally.unexplained++
				}
			case k.arrived(yes):
				k.broken("remembered", "called again by the process that had the 2xx", index)
			}
			if yes == nil && c.given && c.reply.accepts() {
				yes = c
			}
		}
	}
	k.tally.bound = k.duplicatesBound()
	if k.tally.unexplained > k.plan.leases() { // fewer may come of a machine that is too busy to keep leases alive
		k.broken("duplicates have a cause", fmt.Sprintf("%d duplicates with no disturbance to explain them", k.tally.unexplained))
	}
	if k.tally.duplicates > k.tally.bound {
		k.broken("duplicates are bounded", fmt.Sprintf("%d duplicates, at most %d are excused", k.tally.duplicates, k.tally.bound))
	}
}

// arrived reports whether an answer was certainly read: another request came on its connection later, or nothing kept the
// process from reading it long before its time limit.
func (k *checker) arrived(c *call) bool {
	if k.lastOn[c.conn].After(c.flushed) {
		return true
	}
	return c.flushed.Sub(c.begun) < appTimeout/2 && !k.held(c.slot, c.begun.Add(-time.Second), c.flushed.Add(time.Second))
}

// held reports whether a sidecar was paused in an interval.
func (k *checker) held(slot int, from, to time.Time) bool {
	return slices.ContainsFunc(k.events, func(e event) bool {
		return e.Kind == sidecarHold && e.Sidecar == slot && e.begin.Before(to) && e.end.After(from)
	})
}

// heldFor is how long it was.
func (k *checker) heldFor(slot int, from, to time.Time) time.Duration {
	d := time.Duration(0)
	for _, e := range k.events {
		if e.Kind == sidecarHold && e.Sidecar == slot && e.begin.Before(to) && e.end.After(from) {
			d += e.end.Sub(e.begin)
		}
	}
	return d
}

// aftermath is how long a disturbance is felt: leases run out, leaders are elected, connections are made again.
const aftermath = 3 * ackWait

// disturbed reports whether something between two moments can have kept a process from settling, or can have made the
// cluster forget.
func (k *checker) disturbed(by string, from, to time.Time) bool {
	l := k.lives[by]
	if !l.ended.IsZero() && l.ended.Before(to.Add(time.Second)) && (l.killed || l.exit != 0) {
		return true
	}
	return slices.ContainsFunc(k.events, func(e event) bool {
		if e.begin.After(to) || e.end.Add(aftermath).Before(from) {
			return false
		}
		switch e.Kind {
		case sidecarKill, sidecarStop: // by what became of the process: above
			return false
		case sidecarHold, stopCutOff, ackLost, linkCut, oneLinkCut, blip:
			return e.Sidecar == l.slot
		case nodeKill, nodeStop, nodePause, nodeCut, routeCut, stepDown, blackout, durableGone, streamAnew:
			return true
		case ackDenied, pullDenied, kvDenied: // the servers close a connection whose permissions change
			return true
		default:
			return false
		}
	})
}

// hurry holds that a retry waits for its delay: at least half of initial × 2^(n-1), at most the maximum. What was sent to a
// process that ends, the servers deliver again when they notice, whatever was decided about another delivery meanwhile.
func (k *checker) hurry(index int, before, again *call) {
	if !before.given || before.reply.status/100 != 5 || before.delivered == 0 || again.delivered != before.delivered+1 {
		return
	}
	initial, most := k.plan.schedule()
	delay := min(initial<<min(before.delivered-1, 10), most) / 2
	if gap := again.begun.Sub(before.ended); gap < delay && !k.disturbed(before.by, before.begun, again.begun) && !k.anyEnded(before.ended.Add(-100*ms), again.begun) {
		k.broken("retries wait", fmt.Sprintf("called again %s after a failure, at least %s are due", gap.Round(100*time.Microsecond), delay), index)
	}
}

// anyEnded reports whether some sidecar process ended in an interval.
func (k *checker) anyEnded(from, to time.Time) bool {
	for _, l := range k.lives {
		if l.ended.After(from) && l.ended.Before(to) {
			return true
		}
	}
	return false
}

// duplicatesBound is how many calls of accepted messages by another process the disturbances excuse: all leases
// (concurrency × messages of a request + prefetch)
//   - of a sidecar, for each time it was killed, did not stop cleanly, was paused for longer than half an ack wait, or was
//     cut from a node;
//   - of all sidecars, for each disturbance of the nodes, and each time that they may not ack;
//   - and for each deleted durable as many as were in the stream.
func (k *checker) duplicatesBound() int {
	n := 0
	for _, l := range k.lives {
		if l.killed || !l.ended.IsZero() && l.exit != 0 {
			n += k.plan.leases()
		}
	}
	for _, e := range k.events {
		switch e.Kind {
		case sidecarHold:
			if e.Length > ackWait/2 {
				n += k.plan.leases()
			}
		case stopCutOff, ackLost, linkCut, oneLinkCut:
			n += k.plan.leases()
		case nodeKill, nodeStop, nodePause, nodeCut, routeCut, stepDown, blackout, ackDenied:
			n += k.plan.leases() * k.plan.Sidecars
		case durableGone:
			n += e.affected
		default:
		}
	}
	return n
}

// stops holds that after a clean stop nothing is called again that the process had accepted: its acks were confirmed. What
// another sidecar had got before, because the lease had run out, it may have begun a moment later, or where it was itself
// paused or cut off, whenever it could.
//
// Cut off for less than a lease, its acks come in time once it is connected again: then nothing that it had accepted is
// called again at all. Some may be all the same, where a busy machine lets leases run out.
func (k *checker) stops() {
	lost := map[string][]int{}
	const moment = 300 * time.Millisecond
	for index, cs := range k.byIndex {
		for n, c := range cs {
			l := k.lives[c.by]
			if !c.given || !c.reply.accepts() || l.ended.IsZero() || l.killed || l.exit != 0 {
				continue
			}
			for _, again := range cs[n+1:] {
				if again.by != c.by && again.begun.After(l.ended.Add(moment)) && !k.expired(c, l.ended, again) {
					k.broken("a clean stop confirms its acks", "called again after the process that had the 2xx ended with 0", index)
				} else if again.by != c.by && again.begun.After(c.flushed) && k.cutOff(c) && !k.expired(c, l.ended, again) {
					lost[c.by] = append(lost[c.by], index)
				}
			}
		}
	}
	for by, messages := range lost {
		if len(messages) >= mostRunOut {
			k.broken("a clean stop confirms its acks", "called again though sidecar "+by+" was cut off for less than a lease", messages...)
		}
	}
}

// cuts holds that what a sidecar had accepted while no ack of it arrived, for less than a lease, is not delivered again, to
// whomever: its acks are sent again once it is connected again.
func (k *checker) cuts() {
	for _, e := range k.events {
		if e.Kind != ackLost {
			continue
		}
		var lost []int
		for index, cs := range k.byIndex {
			for n, c := range cs {
				if c.slot == e.Sidecar && c.given && c.reply.accepts() && k.lived(c.by, e.end.Add(2*ackWait)) &&
					!c.flushed.Before(e.begin) && c.flushed.Before(e.end) && k.cameAgain(e, c, cs[n+1:]) {
					lost = append(lost, index)
				}
			}
		}
		if len(lost) >= mostRunOut {
			k.broken("a cut loses no ack", fmt.Sprintf("delivered again though the acks of sidecar %d were lost for less than a lease", e.Sidecar), lost...)
		}
	}
}

// cameAgain reports whether a call's message was delivered again within the aftermath of an event, with nothing else to excuse it.
func (k *checker) cameAgain(e event, c *call, later []*call) bool {
	soon := e.end.Add(2 * ackWait)
	return slices.ContainsFunc(later, func(again *call) bool {
		return again.by != c.by && again.begun.After(c.flushed) && again.begun.Before(soon) && !k.expired(c, soon, again)
	}) || slices.ContainsFunc(k.known, func(again known) bool {
		return again.Sequence == c.seq && again.Time.After(c.flushed) && again.Time.Before(soon) && !k.expired(c, soon, &call{slot: all, begun: again.Time})
	})
}

// lived reports whether a process had not ended by then.
func (k *checker) lived(by string, then time.Time) bool {
	l, ok := k.lives[by]
	return ok && (l.ended.IsZero() || l.ended.After(then))
}

// mostRunOut is how many leases may run out in vain at a stop, on a busy machine.
const mostRunOut = 4

// cutOff reports whether the sidecar was cut off at its stop when it got this answer.
func (k *checker) cutOff(c *call) bool {
	return slices.ContainsFunc(k.events, func(e event) bool {
		return e.Kind == stopCutOff && e.Sidecar == c.slot && !c.flushed.Before(e.begin) && c.begun.Before(e.end)
	})
}

// expired reports whether a lease can have run out before the process ended, or the durable can have begun again after it.
func (k *checker) expired(c *call, ended time.Time, again *call) bool {
	return slices.ContainsFunc(k.events, func(e event) bool {
		meanwhile := e.begin.Before(again.begun) && e.end.Add(ackWait).After(c.begun)
		switch e.Kind {
		case durableGone, streamAnew:
			return meanwhile
		case nodeKill, nodeStop, nodePause, nodeCut, routeCut, stepDown, blackout, ackDenied:
			return e.begin.Before(ended) && e.end.Add(ackWait).After(c.begun)
		case sidecarHold, linkCut, oneLinkCut:
			return meanwhile && (e.Sidecar == c.slot && e.begin.Before(ended) || e.Sidecar == again.slot)
		case stopCutOff, ackLost:
			return meanwhile && e.Sidecar == again.slot
		default:
			return false
		}
	})
}

// inFlight holds the bound of requests at a time. A call that the caller gave up counts for half of its time limit only:
// when exactly it did is not known.
func (k *checker) inFlight() {
	type edge struct {
		at    time.Time
		delta int
	}
	edges := map[string][]edge{}
	seen := map[uint64]bool{}
	for _, c := range k.calls {
		if c.size > 1 && seen[c.request] {
			continue
		}
		seen[c.request] = true
		end := c.ended
		if limit := c.begun.Add(appTimeout / 2); end.IsZero() || !c.given && end.After(limit) {
			end = limit
		}
		edges[c.by] = append(edges[c.by], edge{c.begun, 1}, edge{end, -1})
	}
	for by, es := range edges {
		slices.SortFunc(es, func(a, b edge) int {
			if d := a.at.Compare(b.at); d != 0 {
				return d
			}
			return a.delta - b.delta
		})
		open, most := 0, 0
		for _, e := range es {
			open += e.delta
			most = max(most, open)
		}
		k.tally.peak = max(k.tally.peak, most)
		if most > concurrency {
			k.broken("requests in flight are bounded", fmt.Sprintf("%d at a time from sidecar %s", most, by))
		}
	}
}

// processes holds that sidecars end when they are told to, in time, and with 0 where nothing is in their way.
func (k *checker) processes() {
	for _, l := range k.lives {
		switch {
		case l.ended.IsZero() || l.killed && l.ended.Sub(l.asked) < stopLimit || l.killed && l.asked.IsZero():
		case l.asked.IsZero():
			k.broken("sidecars run", fmt.Sprintf("sidecar %s ended by itself with %d", l.id, l.exit))
		case l.ended.Sub(l.asked)-k.heldFor(l.slot, l.asked, l.ended) > stopLimit:
			k.broken("stops are bounded", fmt.Sprintf("sidecar %s took %s to stop", l.id, l.ended.Sub(l.asked).Round(ms)))
		case l.exit == -1 && l.asked.Sub(l.started) < ackWait: // by the signal: it had just begun
		case l.exit != 0 && l.exit != 1:
			k.broken("sidecars run", fmt.Sprintf("sidecar %s stopped with %d", l.id, l.exit))
		case l.exit != 0 && k.settled && !slices.ContainsFunc(k.events, func(e event) bool { return e.end.Add(aftermath).After(l.asked) }):
			k.broken("stops are clean", fmt.Sprintf("sidecar %s stopped with %d and nothing in its way", l.id, l.exit))
		}
	}
}
