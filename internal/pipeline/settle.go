package pipeline

import (
	"log/slog"
	"time"

	"github.com/jetsidecar/jetsidecar/forward"
	"github.com/jetsidecar/jetsidecar/jetstream"
	"github.com/jetsidecar/jetsidecar/policy"
)

// settle does what the verdict says. What survives a crash between any two steps:
//
//	ack, drop   remembered, not acked: delivered again; acked without a call by a process that remembers, with a bucket by any
//	retry       not nak'ed: delivered again after the ack wait instead of the delay
//	dlq         not stored: delivered again and tried again
//	            stored, not termed: delivered again; the app may be called again; the entry's id keeps it single
func (p *Pipeline) settle(a *attempt) {
	m := a.message
	switch {
	case a.duplicate:
		m.Ack()
		p.settled(a, ResultDuplicate)
	case a.decision.Verdict == policy.Ack:
		p.remember(a)
		m.Ack()
		p.settled(a, ResultAck)
	case a.decision.Verdict == policy.Drop:
		p.remember(a)
		m.Ack()
		p.settled(a, ResultDrop)
	case a.decision.Verdict == policy.Retry:
		p.settled(a, ResultRetry)
		p.retry(m, a.decision.Delay)
	case a.decision.Verdict == policy.DLQ && p.DLQ:
		p.graves.add(p.deadLetter(a)) // settled when the DLQ confirmed it
	case a.decision.Verdict == policy.DLQ:
		p.Log.Error("a dead letter is discarded: the dlq is not enabled", slog.Uint64("sequence", m.Sequence), slog.String("reason", string(a.decision.Reason)))
		m.Term(string(a.decision.Reason))
		p.settled(a, ResultDLQ)
	default:
		p.giveBack([]*jetstream.Message{m}) // cut off by a stop, or the lease was lost before the call: not an attempt
	}
}

// retry has a message tried again after a delay. With an order it stays leased, and keeps its turn.
func (p *Pipeline) retry(m *jetstream.Message, delay time.Duration) {
	if p.order == nil {
		m.Retry(delay)
		return
	}
	p.Source.Survived(m)
	if !p.order.later(m, delay) {
		m.HandBack() // stopping
		return
	}
	if m.Unwanted() {
		p.order.hurry() // whose durable it is may have been told before it waited
	}
}

// remember comes between the app's answer and the ack, never before the answer. With a bucket it returns when that has it, or
// cannot take it now: the message is acked all the same, as the app has answered.
func (p *Pipeline) remember(a *attempt) {
	if p.memory != nil {
		p.memory.Remember(a.key)
	}
}

func (p *Pipeline) settled(a *attempt, r Result) {
	m := a.message
	p.Observer.Settled(&Settled{
		Subject: m.Subject, Sequence: m.Sequence, Delivered: a.number,
		Batched: a.batched, Result: r, Reason: a.decision.Reason, Status: a.result.Status, Error: causeOf(&a.result),
		Delay: a.decision.Delay, Duration: a.result.Duration, Latency: time.Since(m.Stored),
	})
}

// causeOf is why: what went wrong, or what the app said.
func causeOf(r *forward.Result) string {
	if r.Error != "" {
		return r.Error
	}
	return r.Reason
}

// deadLetter is an attempt on its way to the DLQ.
func (p *Pipeline) deadLetter(a *attempt) *deadLetter {
	return &deadLetter{
		attempt: *a,
		letter: jetstream.DeadLetter{
			Message: a.message, Deliveries: a.number, Reason: string(a.decision.Reason), Status: a.result.Status,
			Error: causeOf(&a.result), Response: a.result.Response, FailedAt: time.Now(),
		},
	}
}
