package pipeline

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jetsidecar/jetsidecar/forward"
	"github.com/jetsidecar/jetsidecar/policy"
)

const (
	sharply  = 0.75             // a limit that drops to so much of what it was, or less, is worth a line
	dropLine = 30 * time.Second // at most one in so long
)

// places are the places at the app, where their number is found out: as many as policy.Limit says. Who comes first gets one first.
// A place is taken before the gate, so that who waits for the breaker has one, and nobody who has one waits for who has none.
type places struct {
	log *slog.Logger

	mu     sync.Mutex // a leaf
	limit  *policy.Limit
	taken  int
	line   []chan struct{} // who waits, the first one first
	logged time.Time
}

func newPlaces(most int, log *slog.Logger) *places {
	return &places{limit: policy.NewLimit(most), log: log}
}

// take waits for a place. It returns an error when ctx ends; else give must follow. turn is the caller's own, and holds one.
func (p *places) take(ctx context.Context, turn chan struct{}) error {
	p.mu.Lock()
	if len(p.line) == 0 && p.taken < p.limit.Now() {
		p.taken++
		p.mu.Unlock()
		return nil
	}
	p.line = append(p.line, turn)
	p.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		p.leaveLine(turn)
		return ctx.Err()
	}
}

// leaveLine ends the waiting, and gives up the place if there is one by now.
func (p *places) leaveLine(turn chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range p.line {
		if other == turn {
			p.line = append(p.line[:i], p.line[i+1:]...)
			return
		}
	}
	<-turn
	p.taken--
	p.next()
}

// give gives a place up.
func (p *places) give() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	p.next()
}

// next lets those in for whom there is a place.
func (p *places) next() {
	for len(p.line) > 0 && p.taken < p.limit.Now() {
		turn := p.line[0]
		p.line[0] = nil
		p.line = p.line[1:]
		p.taken++
		turn <- struct{}{}
	}
}

// now is how many places there are.
func (p *places) now() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit.Now()
}

// starts is told that a request is sent; ends must follow.
func (p *places) starts() policy.Ticket {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit.Start(time.Now())
}

// ends is told what came of a request, and how long the app had it.
func (p *places) ends(t policy.Ticket, took time.Duration, s policy.Signal) {
	before, after, sharp := p.note(time.Now(), t, took, s)
	switch {
	case after == before:
	case sharp:
		p.log.Info("the app is overloaded: fewer requests at a time", slog.Int("from", before), slog.Int("to", after))
	default:
		p.log.Debug("the limit of requests at a time changes", slog.Int("from", before), slog.Int("to", after))
	}
}

// note returns the limit before and after, and whether that is a sharp drop of which there was no line for a while.
func (p *places) note(now time.Time, t policy.Ticket, took time.Duration, s policy.Signal) (before, after int, sharp bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before = p.limit.Aim()
	p.limit.Done(now, t, took, s)
	after = p.limit.Aim()
	p.next()
	sharp = s == policy.Overloaded && float64(after) <= sharply*float64(before) && now.Sub(p.logged) >= dropLine
	if sharp {
		p.logged = now
	}
	return before, after, sharp
}

// place waits for a place at the app, where their number is found out; false when the sidecar stops first.
func (p *Pipeline) place(ctx context.Context, w *worker) bool {
	return p.places == nil || p.places.take(ctx, w.turn) == nil
}

// leavePlace gives the place up.
func (p *Pipeline) leavePlace() {
	if p.places != nil {
		p.places.give()
	}
}

// visit is a request at the app.
type visit struct {
	ticket policy.Ticket
	probe  bool // of an open breaker
}

// visits is told that a request is sent; visited must follow.
func (p *Pipeline) visits() (v visit) {
	if p.places != nil {
		v.probe, _, _ = p.gate.state()
		v.ticket = p.places.starts()
	}
	return v
}

// visited is told what came of it.
func (p *Pipeline) visited(v visit, r *forward.Result, d policy.Decision) {
	if p.places != nil {
		p.places.ends(v.ticket, r.Duration, p.signal(v, r, d))
	}
}

// signal is what the end of a request says about how much the app can take. A probe of an open breaker says nothing.
func (p *Pipeline) signal(v visit, r *forward.Result, d policy.Decision) policy.Signal {
	switch {
	case v.probe || !r.Sent || r.Kind == policy.HandedBack:
		return policy.Silent
	case r.Refused || p.Policy.Overloaded(r.Outcome):
		return policy.Overloaded
	case failing(d):
		return policy.Failed
	default:
		return policy.Passed
	}
}
