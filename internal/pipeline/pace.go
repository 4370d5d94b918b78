package pipeline

import (
	"context"
	"errors"
	"time"

	"golang.org/x/time/rate"
)

// burstTime is how much of the rate may come at once: timers are no finer than that where the rate is high.
const burstTime = 10 * time.Millisecond

// pace lets so many requests go a second, in the order in which they came. It starts with nothing saved up, so that a sidecar that
// is started again and again is not faster.
type pace struct {
	limiter *rate.Limiter
	head    chan struct{} // held by who is the next: only that one waits for the time, so who gives up delays nobody
}

// newPace returns nil if there is no limit.
func newPace(perSecond float64) *pace {
	if perSecond <= 0 {
		return nil
	}
	burst := max(1, int(perSecond*burstTime.Seconds()))
	limiter := rate.NewLimiter(rate.Limit(perSecond), burst)
	limiter.AllowN(time.Now(), burst)
	return &pace{limiter: limiter, head: make(chan struct{}, 1)}
}

// wait waits until a request may go. It returns false if ctx ends, or stop is closed, before that.
func (p *pace) wait(ctx context.Context, stop <-chan struct{}) bool {
	select {
	case p.head <- struct{}{}:
	case <-ctx.Done():
		return false
	case <-stop:
		return false
	}
	defer func() { <-p.head }()
	turn := p.limiter.Reserve()
	delay := turn.Delay()
	if delay == 0 {
		return true
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-stop:
	}
	turn.Cancel()
	return false
}

// enter waits until a request may be sent; false when the sidecar stops first. Who waits for the rate when the breaker opens goes back
// before the gate: then there is one request at a time.
func (p *Pipeline) enter(ctx context.Context, w *worker, e entry) bool {
	if p.pace == nil {
		return p.gate.enter(ctx, e) == nil
	}
	for {
		w.opens, w.turnedBack = p.gate.opens(), false
		if p.gate.enter(ctx, e) != nil {
			return false
		}
		if p.pace.wait(ctx, w.opens) {
			return true
		}
		p.gate.exit()
		if ctx.Err() != nil {
			return false
		}
	}
}

var errTurnedBack = errors.New("the breaker has opened, or the sidecar stops")

// anotherTurn makes the worker wait for the rate again: the app was away since its turn came. If the breaker opens meanwhile, the request
// is turned back, and goes before the gate.
func (p *Pipeline) anotherTurn(ctx context.Context, w *worker) error {
	if p.pace.wait(ctx, w.opens) {
		return nil
	}
	w.turnedBack = ctx.Err() == nil
	return errTurnedBack
}
