package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jetsidecar/jetsidecar/jetstream"
	"github.com/jetsidecar/jetsidecar/policy"
)

const (
	// maxWriters bounds how many dead letters of a consumer are stored at a time.
	maxWriters = 16
	firstPause = 250 * time.Millisecond
	longPause  = 10 * time.Second
	watchEvery = 10 * time.Second
)

// deadLetter is a message that is decided and not stored yet.
type deadLetter struct {
	attempt
	letter    jetstream.DeadLetter
	since     time.Time // when it was put aside
	tries     int       // that failed
	failedAt  time.Time // when the last of them did
	notBefore time.Time // when it may be tried again, whatever the others may
	alone     bool      // it fails while others are stored
	unsure    bool      // it was sent to the DLQ, and may be there
}

// graves stores dead letters in the background. While the DLQ cannot take one, only the storing is tried again; the
// app is not called again for it by this process. So that healthy messages keep flowing, dead letters that wait give up
// their lease: they are nak'ed with a delay, their cause is remembered, and when they are delivered again they come
// straight back here. Only when too many causes would have to be remembered do they hold their leases.
type graves struct {
	p     *Pipeline
	queue chan *deadLetter
	doubt chan struct{} // asks for a look at the DLQ stream

	mu         sync.Mutex
	aside      map[asideKey]*deadLetter // put aside, by message
	remembered int                      // bytes in aside
	tries      tries
	held       []*deadLetter // leased, waiting for their turn
	busy       int           // added and neither stored nor put aside
	storing    int           // of those, on their way to the DLQ
	stopping   bool          // nothing waits any more, but what must not be handed back: see finish
	closed     bool          // nothing more is sent to the DLQ: what is held stays
}

func newGraves(p *Pipeline) *graves {
	return &graves{
		p: p, queue: make(chan *deadLetter, 2*(p.Concurrency*max(p.Batch.MaxMessages, 1)+p.Prefetch)+1), aside: map[asideKey]*deadLetter{},
		doubt: make(chan struct{}, 1),
	}
}

func (g *graves) writers() int { return min(g.p.Concurrency, maxWriters) }

// add takes a dead letter to be stored.
func (g *graves) add(dl *deadLetter) {
	g.count(1)
	g.enqueue(dl)
}

// enqueue is add for one that is counted.
func (g *graves) enqueue(dl *deadLetter) {
	select {
	case g.queue <- dl:
	default:
		g.putAside(dl, longPause) // more than can be leased
		g.count(-1)
	}
}

func (g *graves) count(delta int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy += delta
}

// write stores dead letters until ctx ends.
func (g *graves) write(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case dl := <-g.queue:
			if dl.message.Lost() {
				g.lost(dl)
			} else if wait := g.turn(dl); wait > 0 {
				g.putAside(dl, wait)
			} else {
				g.store(ctx, dl)
				g.stored()
			}
			g.count(-1)
		}
	}
}

// turn reports how long an entry must wait before it may be sent to the DLQ; 0 if now: then stored must follow.
func (g *graves) turn(dl *deadLetter) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return longPause
	}
	wait := g.tries.turn(dl, time.Now())
	if wait <= 0 {
		g.storing++
	}
	return wait
}

func (g *graves) stored() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.storing--
}

// store writes one dead letter, and settles its message once the DLQ confirmed it.
func (g *graves) store(ctx context.Context, dl *deadLetter) {
	began := time.Now()
	dropped, err := g.p.DeadLetters.Put(ctx, dl.letter)
	switch {
	case err == nil:
		g.succeeded(began)
		if g.p.memory != nil {
			g.p.memory.Remember(dl.self) // only itself: a corrected message under the same id is delivered
		}
		if dl.decision.Reason == policy.ReasonCrashLoop {
			g.p.unmark(&dl.attempt)
		}
		dl.message.Term(dl.letter.Reason)
		if dropped > 0 {
			g.p.Observer.HeadersDropped(dropped)
		}
		g.p.settled(&dl.attempt, ResultDLQ)
	case ctx.Err() != nil: // stored or not: finish has counted it
	default:
		dl.unsure = dl.unsure || errors.Is(err, jetstream.ErrUnsure)
		g.putAside(dl, g.failed(dl, began, err))
	}
}

// lookSoon asks for a look at the DLQ stream.
func (g *graves) lookSoon() {
	select {
	case g.doubt <- struct{}{}:
	default:
	}
}

// watch keeps the DLQ stream there, and gives the held dead letters another turn.
func (g *graves) watch(ctx context.Context) {
	pause, lost := firstPause, true
	for ctx.Err() == nil {
		err := g.p.DeadLetters.Ensure(ctx)
		switch {
		case err == nil:
			if lost {
				g.retryNow()
			}
			pause = watchEvery
		default:
			g.complain(ctx, err)
			pause = min(max(2*pause, firstPause), longPause/5)
		}
		lost = err != nil
		g.releaseHeld()
		g.sayOver()
		wait := time.NewTimer(g.beforeHeld(jittered(pause)))
		select {
		case <-ctx.Done():
		case <-wait.C:
		case <-g.doubt:
			pause = firstPause
			g.pauseLook(ctx)
		}
		wait.Stop()
	}
}

// beforeHeld is how long to wait so that held dead letters get their turn when the DLQ is to be tried again: keys wait for them.
func (g *graves) beforeHeld(pause time.Duration) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, dl := range g.held {
		pause = min(pause, max(time.Until(g.tries.next), time.Until(dl.notBefore), firstPause))
	}
	return pause
}

// pauseLook keeps looks that were asked for apart.
func (g *graves) pauseLook(ctx context.Context) {
	wait := time.NewTimer(jittered(firstPause))
	defer wait.Stop()
	select {
	case <-ctx.Done():
	case <-wait.C:
	}
}

// retryNow lets the next dead letter try the DLQ at once.
func (g *graves) retryNow() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tries.next = time.Now()
}

func (g *graves) complain(ctx context.Context, err error) {
	if ctx.Err() != nil || errors.Is(err, jetstream.ErrNotConnected) || errors.Is(err, jetstream.ErrNoSource) {
		return // said elsewhere
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.tries.failed = now
	if g.tries.says(now) {
		g.p.Log.Error("the dlq is not usable", slog.String("error", err.Error()))
	}
}

// releaseHeld gives the held dead letters another turn.
func (g *graves) releaseHeld() {
	now := time.Now()
	g.mu.Lock()
	var due, later []*deadLetter
	for _, dl := range g.held {
		if g.closed || now.Before(dl.notBefore) {
			later = append(later, dl)
		} else {
			due = append(due, dl)
		}
	}
	g.held = later
	g.busy += len(due) // at no time is one of them in neither
	g.mu.Unlock()
	for _, dl := range due {
		g.enqueue(dl)
	}
}

// jittered is a duration between three quarters of d and all of it.
func jittered(d time.Duration) time.Duration {
	return d - rand.N(d/4+1)
}
