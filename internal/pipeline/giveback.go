package pipeline

import (
	"context"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

// takeWaiting takes what is leased and not begun.
func (p *Pipeline) takeWaiting() []*jetstream.Message {
	var all []*jetstream.Message
	if p.order != nil {
		all = p.order.stop()
	}
	for m := p.Source.TakeReady(); m != nil; m = p.Source.TakeReady() {
		all = append(all, m)
	}
	return append(all, p.waiting.Drain()...)
}

// giveBack hands messages back at a stop: handing back is not failing. Those that the server would give up on then are left to workOff.
func (p *Pipeline) giveBack(messages []*jetstream.Message) {
	back := messages[:0]
	for _, m := range messages {
		if p.order == nil && m.Stranded() {
			p.Source.Requeue(m)
		} else {
			back = append(back, m)
		}
	}
	handBack(back)
}

// workOff handles, at a stop, what must not be handed back, until ctx ends: each message has a request as ever. What else came late, since the server
// had sent it before it heard of the stop, is handed back.
func (p *Pipeline) workOff(ctx context.Context) {
	<-p.stopped
	w := &worker{ctx: ctx, turn: make(chan struct{}, 1), sending: func(bool) {}}
	w.wanted = w.stillLeased
	for m := p.Source.TakeReady(); m != nil; m = p.Source.TakeReady() {
		switch {
		case ctx.Err() != nil, p.order != nil, !m.Stranded():
			m.HandBack()
		case p.Source.Resume(ctx, m):
			p.handle(ctx, w, m)
		}
	}
}
