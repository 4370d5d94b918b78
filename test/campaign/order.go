//go:build unix

package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

const (
	// keys are how many there are in a campaign with an order.
	keys = 6
	// calmer is by how much fewer messages are published in a campaign with an order: of one key one is in work at a time, and one
	// sidecar has them all.
	calmer = 4
	// gaveUp is how long it may take the app to see that a caller gave up.
	gaveUp = 100 * ms
	// unaware is how long after a fault a sidecar may act on what it knew before.
	unaware = 500 * ms
)

// keyOf is the key that decides the order of a message.
func keyOf(seed uint64, index int) string { return fmt.Sprint("k", hash(seed, uint64(index), 6)%keys) }

// keyLine is what there is of one key in one life of the stream.
type keyLine struct {
	messages []queued // by sequence
	calls    []*call  // in the order they began
}

// queued is a message in its line.
type queued struct {
	seq   uint64
	index int
	done  time.Time // accepted or dead; zero if neither
}

// order holds, where one is kept, that of each key one message at a time is called, in the order of the stream: none while
// an earlier one is neither accepted nor dead, and none again once a later one was called.
func (k *checker) order() {
	if !k.plan.Ordered {
		return
	}
	for key, l := range k.keyLines() {
		slices.SortFunc(l.messages, func(a, b queued) int { return cmp.Compare(a.seq, b.seq) })
		l.messages = slices.CompactFunc(l.messages, func(a, b queued) bool { return a.seq == b.seq })
		slices.SortStableFunc(l.calls, func(a, b *call) int { return a.begun.Compare(b.begun) })
		for i, c := range l.calls {
			k.waitedFor(key, l, c)
			k.afterOthers(key, l.calls[:i], c)
		}
	}
}

// keyLines puts messages and calls into their lines. A message that the publisher was not told of is known by its calls or its
// place in the stream.
func (k *checker) keyLines() map[string]*keyLine {
	lines := map[string]*keyLine{}
	for _, m := range k.published {
		key := fmt.Sprint(keyOf(k.plan.Seed, m.index), " in stream ", m.epoch)
		l := lines[key]
		if l == nil {
			l = &keyLine{}
			lines[key] = l
		}
		l.calls = append(l.calls, k.byIndex[m.index]...)
		if q := (queued{m.seq, m.index, k.doneAt(m.index)}); k.queuedAs(m, &q) {
			l.messages = append(l.messages, q)
		}
	}
	return lines
}

// queuedAs finds a message's place in the stream. It returns false if it is not there, or if that is not known.
func (k *checker) queuedAs(m message, q *queued) bool {
	seq, there := k.source[m.index]
	switch {
	case there:
		q.seq = seq
	case len(k.byIndex[m.index]) > 0:
		q.seq = k.byIndex[m.index][0].seq
	case k.source != nil && m.epoch == k.epoch:
		return false // the servers lost it
	}
	return q.seq > 0 && (m.epoch == k.epoch || len(k.byIndex[m.index]) > 0)
}

// doneAt is when a message was first accepted by the app, or stored in the DLQ.
func (k *checker) doneAt(index int) (done time.Time) {
	for _, c := range k.byIndex[index] {
		if c.given && c.reply.accepts() && (done.IsZero() || c.ended.Before(done)) {
			done = c.ended
		}
	}
	for _, e := range k.dead[index] {
		if done.IsZero() || e.stored.Before(done) {
			done = e.stored
		}
	}
	return done
}

// waitedFor holds that all messages before the one that is called were done.
func (k *checker) waitedFor(key string, l *keyLine, c *call) {
	for _, q := range l.messages {
		if q.seq >= c.seq {
			return
		}
		if q.done.IsZero() || q.done.After(c.begun) {
			k.broken("none overtakes", fmt.Sprintf("of key %s, %d was called before %d was done", key, c.seq, q.seq), c.index, q.index)
		}
	}
}

// afterOthers holds that no later message was called before, and that none of the calls before is open.
func (k *checker) afterOthers(key string, before []*call, c *call) {
	for _, other := range before {
		if other.seq > c.seq && !k.knewNot(c) && !k.durableAnew(c) {
			k.broken("none comes again after a later one", fmt.Sprintf("of key %s, %d was called by %s after %d by %s", key, c.seq, c.by, other.seq, other.by), c.index, other.index)
		}
		end := other.ended
		if !other.given {
			end = end.Add(-gaveUp)
		}
		open := other.ended.IsZero() || c.begun.Before(end)
		if open && !k.durableAnew(c) && (other.by == c.by || !k.leaseLost(other, c.begun) && !k.knewNot(c)) {
			k.broken("one of a key at a time", fmt.Sprintf("of key %s, %d was called by %s while %d was in work at %s", key, c.seq, c.by, other.seq, other.by), c.index, other.index)
		}
	}
}

// durableAnew reports whether the durable was deleted before: then it starts again after all that was settled in a row.
func (k *checker) durableAnew(c *call) bool {
	return slices.ContainsFunc(k.events, func(e event) bool {
		return e.Kind == durableGone && e.begin.Before(c.begun) && e.end.Add(settleLimit).After(c.begun)
	})
}

// leaseLost reports whether the lease of what is in work can have been lost by then.
func (k *checker) leaseLost(inWork *call, then time.Time) bool {
	return slices.ContainsFunc(k.events, func(e event) bool {
		if e.begin.After(then) || e.end.Add(aftermath).Before(inWork.begun) {
			return false
		}
		switch e.Kind {
		case sidecarHold, linkCut, oneLinkCut, stopCutOff, ackLost, blip:
			return e.Sidecar == inWork.slot
		case nodeKill, nodeStop, nodePause, nodeCut, routeCut, stepDown, blackout, ackDenied, pullDenied, kvDenied, streamAnew:
			return true
		default:
			return false
		}
	})
}

// knewNot reports whether the process that called could not know yet that the durable was another's: it was paused, or what the servers
// said did not reach it.
func (k *checker) knewNot(c *call) bool {
	return slices.ContainsFunc(k.events, func(e event) bool {
		if c.begun.Before(e.begin) || c.begun.After(e.end.Add(unaware)) {
			return false
		}
		switch e.Kind {
		case sidecarHold:
			return e.Sidecar == c.slot
		default:
			return false
		}
	})
}
