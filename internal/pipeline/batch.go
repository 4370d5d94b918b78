package pipeline

import (
	"context"
	"time"

	"github.com/jetsidecar/jetsidecar/dedupe"
	"github.com/jetsidecar/jetsidecar/forward"
	"github.com/jetsidecar/jetsidecar/jetstream"
	"github.com/jetsidecar/jetsidecar/policy"
)

// batch is what a worker has of its messages. All of it is used again for the next one.
type batch struct {
	messages []*jetstream.Message
	alone    []*jetstream.Message // past their limit: each is tried alone
	attempts []attempt
	live     []*attempt // to be sent
	sent     []*attempt // in the request under way
	done     []*attempt // decided by the request under way
	parts    []part     // what is still to be sent, see next
	requests []forward.Message
	acked    []*jetstream.Message
	lookups  []dedupe.Lookup
	keys     []dedupe.Key
}

// workBatches handles one batch after the other until ctx ends. One worker at a time gathers: others would each get a part of what
// could be in one request.
func (p *Pipeline) workBatches(ctx context.Context, w *worker) {
	b := &batch{}
	for {
		p.batches.Lock()
		b.messages = p.Source.NextBatch(ctx, p.Batch, b.messages[:0])
		p.batches.Unlock()
		if ctx.Err() != nil {
			p.giveBack(b.messages)
			return
		}
		p.handleBatch(ctx, w, b)
		b.forget()
	}
}

// forget lets go of the messages.
func (b *batch) forget() {
	clear(b.messages)
	clear(b.alone)
	clear(b.attempts)
	clear(b.requests)
	clear(b.acked)
}

// handleBatch takes messages from lease to verdict.
func (p *Pipeline) handleBatch(ctx context.Context, w *worker, b *batch) {
	p.admit(b)
	p.settleDuplicates(b)
	if len(b.live) > 0 {
		b.parts = append(b.parts, part{items: b.live})
	}
	for len(b.parts) > 0 {
		p.sendPart(ctx, w, b, b.next(time.Now()))
	}
	for _, m := range b.alone {
		if ctx.Err() != nil {
			p.giveBack([]*jetstream.Message{m})
			continue
		}
		p.handle(ctx, w, m)
	}
}

// admit looks which messages are to be sent, as handle and begin do for one: not those that were decided before, that wait for
// another with their id, or that must be alone.
func (p *Pipeline) admit(b *batch) {
	b.attempts, b.live, b.alone = b.attempts[:0], b.live[:0], b.alone[:0]
	var scope dedupe.Scope
	var created time.Time
	for i, m := range b.messages {
		if i == 0 || !m.StreamCreated.Equal(created) {
			scope, created = p.scopeOf(m), m.StreamCreated
		}
		a := attempt{message: m, scope: scope, number: m.Delivered + m.Tries, batched: true}
		if p.pastLimit(&a) {
			b.alone = append(b.alone, m)
			continue
		}
		if dl, ok := p.graves.dug(m); ok {
			p.graves.add(dl)
			continue
		}
		if p.memory != nil {
			p.identify(&a)
			if !p.waiting.Begin(a.key, m) {
				continue
			}
		}
		b.attempts = append(b.attempts, a)
	}
	for i := range b.attempts {
		b.live = append(b.live, &b.attempts[i])
	}
	if p.memory != nil {
		p.lookUp(b)
	}
}

// lookUp finds which messages were answered before.
func (p *Pipeline) lookUp(b *batch) {
	if p.Bucket != nil {
		p.each(b.live, func(a *attempt) { a.duplicate = p.answered(a) })
		return
	}
	b.lookups = b.lookups[:0]
	for _, a := range b.live {
		b.lookups = append(b.lookups, dedupe.Lookup{Keys: [2]dedupe.Key{a.key, a.self}})
	}
	p.memory.Memory().SeenAll(b.lookups)
	for i, a := range b.live {
		a.duplicate = b.lookups[i].Seen
	}
}

// settleDuplicates acks what was answered before.
func (p *Pipeline) settleDuplicates(b *batch) {
	live := b.live[:0]
	for _, a := range b.live {
		if !a.duplicate {
			live = append(live, a)
			continue
		}
		p.settle(a)
		p.end(a)
	}
	b.live = live
}

// callBatch sends messages to the app in one request. What came of it is the result of each, unless the worker was turned back.
func (p *Pipeline) callBatch(w *worker, b *batch, items []*attempt) forward.BatchResult {
	b.requests, w.sends = b.requests[:0], w.sends[:0]
	lost := 0
	for _, a := range items {
		m := a.message
		w.sends = append(w.sends, m)
		if m.HeaderLost {
			lost++
		}
		b.requests = append(b.requests, forward.Message{
			Stream: p.Stream, Consumer: p.Durable, Subject: m.Subject, Sequence: m.Sequence, Delivered: a.number,
			MaxDeliver: uint64(smaller(p.Policy.MaxDeliver, m.MaxDeliver)), Pending: m.Pending, Stored: m.Stored, Header: m.Header,
			Body: m.Body, Sending: w.sending, Wanted: w.wanted, Turn: w.another,
		})
	}
	p.Observer.InFlight(1)
	v := p.visits()
	r := p.App.ForwardBatch(w.ctx, p.Target, b.requests)
	p.visited(v, &r.Result, policy.Decision{Verdict: p.Policy.Means(r.Outcome)})
	p.Observer.InFlight(-1)
	clear(w.sends)
	w.state.CompareAndSwap(sending, idle)
	if r.Sent {
		p.Observer.Requested(r.Status, r.Duration)
	}
	if lost += r.HeadersDropped; lost > 0 {
		p.Observer.HeadersDropped(lost)
	}
	if w.turnedBack {
		return r
	}
	for _, a := range items {
		a.result = r.Result
	}
	return r
}

// decideAll decides over messages by their results.
func (p *Pipeline) decideAll(items []*attempt, now time.Time) {
	for _, a := range items {
		limits := p.limits(a)
		a.decision = limits.Decide(a.result.Outcome, policy.Attempt{Number: a.number, Age: now.Sub(a.message.Stored), Random: random()})
	}
}
