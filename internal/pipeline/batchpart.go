package pipeline

import (
	"context"
	"slices"
	"time"

	"github.com/jetsidecar/jetsidecar/forward"
	"github.com/jetsidecar/jetsidecar/jetstream"
	"github.com/jetsidecar/jetsidecar/policy"
)

// longestPart is how long at most messages that are at their limit wait before they are sent again, each time that they are halved.
const longestPart = time.Minute

// part is messages that are to be sent in one request.
type part struct {
	items []*attempt
	// failed says that they failed together in a larger request, by an answer that meant retry. Their decisions are what would
	// become of each if it had been alone.
	failed bool
	due    time.Time // not before; zero: at once
}

// next takes the part to be sent next: the newest of those that are due, else the one that is first.
func (b *batch) next(now time.Time) part {
	at := len(b.parts) - 1
	for i := at; i >= 0; i-- {
		if !b.parts[i].due.After(now) {
			at = i
			break
		}
		if b.parts[i].due.Before(b.parts[at].due) {
			at = i
		}
	}
	next := b.parts[at]
	b.parts = slices.Delete(b.parts, at, at+1)
	return next
}

// sendPart sends messages in one request, and settles those that it decides over. What must be sent again, in smaller requests,
// is put on top of the parts that are left.
//
// While the breaker is open the app is tried with one message at a time, and what failed together with others is not sent again
// now.
func (p *Pipeline) sendPart(ctx context.Context, w *worker, b *batch, next part) {
	if next.failed && p.gate.isOpen() {
		p.putOff(b, next.items)
		return
	}
	if !pause(ctx, time.Until(next.due)) || !p.place(ctx, w) {
		p.handBackAll(next.items)
		return
	}
	defer p.leavePlace()
	if !p.enter(ctx, w, entry{fresh: anyFresh(next.items)}) {
		p.handBackAll(next.items)
		return
	}
	if next.items = p.dropLost(w, next.items); len(next.items) == 0 {
		p.gate.exit()
		return
	}
	if len(next.items) > 1 && p.gate.isOpen() {
		next = b.splitOne(next)
	}
	seen := describe(next.items)
	r := p.callBatch(w, b, next.items)
	if w.turnedBack {
		p.gate.exit()
		b.parts = append(b.parts, next)
		return
	}
	b.sent = append(b.sent[:0], next.items...)
	rest := b.named(next.items, r.Items)
	now, means := time.Now(), p.Policy.Means(r.Outcome)
	p.decideAll(b.done, now)
	p.decideAll(rest, now)
	p.gate.leaveBatch(b.sent, rest, means, failureOf(&r))
	b.distribute(p, rest, &r)
	p.settleAll(b, &seen)
	if r.Sent && r.Kind != policy.HandedBack {
		seen.Again = seen.Messages - seen.Ack - seen.Retry - seen.DLQ - seen.Drop
		seen.Status, seen.Error, seen.Duration = r.Status, causeOf(&r.Result), r.Duration
		p.Observer.Batched(&seen)
	}
}

// putOff retries messages that failed together, as in any outage. Those that would be dead-lettered by that stay, and are tried again
// in place.
func (p *Pipeline) putOff(b *batch, items []*attempt) {
	b.done = append(b.done[:0], items...)
	for _, a := range items {
		a.again = a.decision.Verdict == policy.DLQ
	}
	p.settleAll(b, &Batch{})
}

// dropLost hands back the messages whose lease was lost while they waited, and returns the others.
func (p *Pipeline) dropLost(w *worker, items []*attempt) []*attempt {
	w.sends = w.sends[:0]
	for _, a := range items {
		w.sends = append(w.sends, a.message)
	}
	if !jetstream.LostAny(w.sends) {
		return items
	}
	kept := items[:0]
	for _, a := range items {
		if a.message.Lost() {
			a.message.HandBack()
			p.end(a)
		} else {
			kept = append(kept, a)
		}
	}
	return kept
}

// splitOne takes one message out of a part to try the app with: one that was not tried before, if there is one. The others wait.
func (b *batch) splitOne(whole part) part {
	for i, a := range whole.items {
		if a.message.Fresh() {
			whole.items[0], whole.items[i] = a, whole.items[0]
			break
		}
	}
	b.parts = append(b.parts, part{items: whole.items[1:], failed: whole.failed})
	return part{items: whole.items[:1]}
}

// named notes the messages that the answer names as done, each with a result of its own, and returns the others.
func (b *batch) named(items []*attempt, outcomes []policy.Outcome) (rest []*attempt) {
	b.done = b.done[:0]
	rest = items[:0]
	for i, a := range items {
		if a.named = outcomes != nil && outcomes[i].Kind != 0; !a.named {
			rest = append(rest, a)
			continue
		}
		a.result.Outcome = outcomes[i]
		b.done = append(b.done, a)
	}
	return rest
}

// distribute says what becomes of the messages that the answer does not name. A verdict that ends a message in another way than by an
// ack is given over one message only: before it, several are sent again in halves. If the answer may be one message's doing, that is
// done at once and with all of them; else only with those that are at their limit, after a while each time.
func (b *batch) distribute(p *Pipeline, rest []*attempt, r *forward.BatchResult) {
	switch {
	case len(rest) <= 1:
		b.done = append(b.done, rest...)
	case p.Policy.Divides(r.Outcome):
		b.halve(rest, part{failed: p.Policy.Means(r.Outcome) == policy.Retry})
	default:
		limited := rest[:0]
		for _, a := range rest {
			if a.decision.Verdict == policy.DLQ {
				limited = append(limited, a)
			} else {
				b.done = append(b.done, a)
			}
		}
		wait := min(max(p.Policy.Retry.Delay(1, random()), min(r.RetryAfter, p.Policy.Retry.RetryAfterMax)), longestPart)
		b.halve(limited, part{failed: true, due: time.Now().Add(wait)})
	}
}

// halve puts messages on top of the parts in two halves, the first one to be sent first.
func (b *batch) halve(items []*attempt, like part) {
	half := len(items) / 2
	first, second := like, like
	first.items, second.items = items[:half], items[half:]
	for _, one := range []part{second, first} {
		if len(one.items) > 0 {
			b.parts = append(b.parts, one)
		}
	}
}

// pause waits. It returns false if ctx has ended, or ends first.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func anyFresh(items []*attempt) bool {
	for _, a := range items {
		if a.message.Fresh() {
			return true
		}
	}
	return false
}

// failureOf is what went wrong with a request, in a few words.
func failureOf(r *forward.BatchResult) string {
	if r.Kind == policy.Answered && r.Items != nil {
		return "results of a batch"
	}
	return failure(&attempt{result: r.Result})
}
