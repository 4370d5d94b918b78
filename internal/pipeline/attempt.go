package pipeline

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/jetsidecar/jetsidecar/dedupe"
	"github.com/jetsidecar/jetsidecar/forward"
	"github.com/jetsidecar/jetsidecar/jetstream"
	"github.com/jetsidecar/jetsidecar/policy"
)

// attempt is one delivery on its way to a verdict.
type attempt struct {
	message *jetstream.Message
	scope   dedupe.Scope
	number  uint64 // of this try, 1 on the first: deliveries, and tries in place between them

	self      dedupe.Key // the message itself
	key       dedupe.Key // its id, or itself
	hasID     bool
	duplicate bool // answered before
	batched   bool // it shares its request
	named     bool // of a batch: the answer has a result of its own for it
	again     bool // to be tried again in place
	marks     int  // of a try alone: how many of its marks may be there

	result   forward.Result
	decision policy.Decision
}

// begin looks whether the message was answered before. It returns false if another with its id, or an earlier delivery of
// itself, is in flight: then this one waits, leased, for the verdict over the first.
//
// The id is taken before it is looked up: the other way round, a first message that ends in between would be missed. Both
// keys are looked up, since after a dead letter only the message itself is remembered.
func (p *Pipeline) begin(a *attempt) bool {
	if p.memory == nil {
		return true
	}
	p.identify(a)
	if !p.waiting.Begin(a.key, a.message) {
		return false
	}
	a.duplicate = p.answered(a)
	return true
}

// identify finds the keys of a message: its id, if it has one, and itself.
func (p *Pipeline) identify(a *attempt) {
	a.self = a.scope.Message(a.message.Sequence, a.message.Stored)
	a.key = a.self
	if ids := a.message.Header[p.Dedupe.Header]; len(ids) > 0 && ids[0] != "" {
		a.key, a.hasID = a.scope.ID(ids[0]), true
	}
}

// answered looks up whether the message, or one of the same id, was answered before.
func (p *Pipeline) answered(a *attempt) bool {
	if a.hasID {
		return p.memory.Seen(a.key, a.self)
	}
	return p.memory.Seen(a.self)
}

// end lets those go on that waited for this message's verdict. If that is not the end of the message, another delivery of itself, which came
// as the lease was lost, waits as for any retry: it would be the next call.
func (p *Pipeline) end(a *attempt) {
	if p.memory == nil {
		return
	}
	for _, m := range p.waiting.End(a.key) {
		if a.failed() && a.isOf(m) {
			p.retry(m, a.delay(p.Policy.Retry))
		} else {
			p.Source.Requeue(m)
		}
	}
}

// failed reports whether the app was called, and did not take the message.
func (a *attempt) failed() bool {
	return !a.again && (a.decision.Verdict == policy.Retry || a.decision.Verdict == policy.DLQ)
}

// isOf reports whether m is a delivery of the same message.
func (a *attempt) isOf(m *jetstream.Message) bool {
	return m.Sequence == a.message.Sequence && m.StreamCreated.Equal(a.message.StreamCreated)
}

// delay is how long the message waits for its next call.
func (a *attempt) delay(retry policy.RetryConfig) time.Duration {
	return cmp.Or(a.decision.Delay, retry.Delay(a.number, random()))
}

// try calls the app, unless the message was answered before, and decides. It returns false if the message is to be tried
// again in place: that spends no delivery.
func (p *Pipeline) try(ctx context.Context, w *worker, a *attempt) (decided bool) {
	if a.duplicate {
		return true
	}
	if !p.place(ctx, w) {
		a.result.Kind = policy.HandedBack // stopping
		return true
	}
	defer p.leavePlace()
	alone := p.pastLimit(a)
	if alone {
		p.gate.wantAlone()
		defer p.gate.notAlone()
	}
	e := entry{alone: alone, fresh: a.message.Fresh(), unwanted: a.message.Unwanted}
	if !p.enter(ctx, w, e) {
		a.result.Kind = policy.HandedBack // stopping, or not wanted any more
		return true
	}
	if a.message.Unwanted() { // it waited for long
		p.gate.exit()
		a.result.Kind = policy.HandedBack
		return true
	}
	if alone {
		if !p.mark(ctx, a) {
			p.gate.exit()
			return true
		}
		defer p.unmark(a)
	}
	p.call(w, a)
	for w.turnedBack {
		p.gate.exit()
		if !p.enter(ctx, w, e) {
			return true
		}
		p.call(w, a)
	}
	why := ""
	if a.decision.Verdict != policy.Ack {
		why = failure(a)
	}
	return !p.gate.leave(p.breakerKey(a), a.decision, why)
}

// breakerKey is what the breaker counts: different messages in a row; with an order of the whole stream there is only one at a time, and
// each attempt counts.
func (p *Pipeline) breakerKey(a *attempt) uint64 {
	if p.Order == OrderStream {
		return p.attempts.Add(1)
	}
	return a.message.Sequence
}

// failure is what went wrong, in a few words.
func failure(a *attempt) string {
	if a.result.Kind == policy.Answered {
		return "status " + strconv.Itoa(a.result.Status)
	}
	return a.result.Error
}

// call sends the message to the app once, and decides.
func (p *Pipeline) call(w *worker, a *attempt) {
	m := a.message
	w.sends = append(w.sends[:0], m)
	limits := p.limits(a)
	visit := p.visits()
	p.Observer.InFlight(1)
	a.result = p.App.Forward(w.ctx, p.Target, &forward.Message{
		Stream: p.Stream, Consumer: p.Durable, Subject: m.Subject, Sequence: m.Sequence, Delivered: a.number,
		MaxDeliver: uint64(limits.MaxDeliver), Pending: m.Pending, Stored: m.Stored, Header: m.Header, Body: m.Body,
		Sending: w.sending, Wanted: w.wanted, Turn: w.another,
	})
	p.Observer.InFlight(-1)
	clear(w.sends)
	w.state.CompareAndSwap(sending, idle)
	if a.result.Sent {
		p.Observer.Requested(a.result.Status, a.result.Duration)
	}
	if n := a.result.HeadersDropped; n > 0 || m.HeaderLost {
		if m.HeaderLost {
			n++
		}
		p.Observer.HeadersDropped(n)
	}
	a.decision = limits.Decide(a.result.Outcome, policy.Attempt{Number: a.number, Age: time.Since(m.Stored), Random: random()})
	p.visited(visit, &a.result, a.decision)
}

// smaller is the smaller of two limits, where 0 means none.
func smaller(a, b int) int {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
