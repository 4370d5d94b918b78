package pipeline

import (
	"sync"
	"time"

	"github.com/jetsidecar/jetsidecar/jetstream"
	"github.com/jetsidecar/jetsidecar/policy"
)

// together is how many messages of a batch are looked up or stored in the dedupe bucket at a time.
const together = 16

// each asks the bucket for each message, several at a time.
func (p *Pipeline) each(items []*attempt, do func(*attempt)) {
	var working sync.WaitGroup
	slots := make(chan struct{}, together)
	for _, a := range items {
		slots <- struct{}{}
		working.Go(func() {
			do(a)
			<-slots
		})
	}
	working.Wait()
}

// settleAll settles what is decided, and counts it. What settle says of a crash holds for each message.
func (p *Pipeline) settleAll(b *batch, seen *Batch) {
	acked := b.done[:0]
	for _, a := range b.done {
		switch {
		case a.again:
			p.end(a)
			p.Source.Survived(a.message)
			p.Source.Requeue(a.message)
			continue
		case a.decision.Verdict == policy.Ack:
			acked = append(acked, a)
			continue
		case a.decision.Verdict == policy.Retry:
			seen.Retry++
		case a.decision.Verdict == policy.DLQ:
			seen.DLQ++
		case a.decision.Verdict == policy.Drop:
			seen.Drop++
		}
		p.settle(a)
		p.end(a)
	}
	seen.Ack = len(acked)
	p.ackAll(b, acked)
}

// ackAll remembers messages, then acks them.
func (p *Pipeline) ackAll(b *batch, acked []*attempt) {
	if len(acked) == 0 {
		return
	}
	p.rememberAll(b, acked)
	b.acked = b.acked[:0]
	for _, a := range acked {
		b.acked = append(b.acked, a.message)
	}
	p.Source.AckAll(b.acked)
	now := time.Now()
	s := Settled{Batched: true, Result: ResultAck}
	for _, a := range acked {
		m := a.message
		s.Subject, s.Sequence, s.Delivered, s.Latency = m.Subject, m.Sequence, a.number, now.Sub(m.Stored)
		s.Status, s.Duration, s.Error = a.result.Status, a.result.Duration, causeOf(&a.result)
		p.Observer.Settled(&s)
		p.end(a)
	}
}

// rememberAll is remember for several messages.
func (p *Pipeline) rememberAll(b *batch, acked []*attempt) {
	switch {
	case p.memory == nil:
	case p.Bucket != nil:
		p.each(acked, p.remember)
	default:
		b.keys = b.keys[:0]
		for _, a := range acked {
			b.keys = append(b.keys, a.key)
		}
		p.memory.Memory().RememberAll(b.keys)
	}
}

// handBackAll hands messages back: the sidecar is stopping.
func (p *Pipeline) handBackAll(items []*attempt) {
	for _, a := range items {
		p.giveBack([]*jetstream.Message{a.message})
		p.end(a)
	}
}

// describe is what is known of a request before it is sent.
func describe(items []*attempt) Batch {
	seen := Batch{Messages: len(items), First: items[0].message.Sequence}
	for _, a := range items {
		seen.First, seen.Last = min(seen.First, a.message.Sequence), max(seen.Last, a.message.Sequence)
		seen.Bytes += len(a.message.Body)
	}
	return seen
}
