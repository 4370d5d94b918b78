package pipeline

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jetsidecar/jetsidecar/policy"
)

// gate lets requests through to the app, as many at a time as the breaker allows.
type gate struct {
	ready    func(context.Context) error                  // the app's ready probe; nil if it has none
	onChange func(open bool, since time.Time, why string) // called when the breaker opens, also anew by a message that fails, or closes
	onAlone  func()                                       // called when a message comes that must be alone, when it enters, and when it leaves
	onReady  func()                                       // called when the breaker is half open, for the first time since it opened
	drained  func(context.Context) bool                   // whether no message is left for the app anywhere, as far as is known

	mu        sync.Mutex
	breaker   *policy.Breaker
	inside    int           // requests at the app
	alone     int           // messages that are at the app alone, or wait until they are: nobody else enters
	aloneIn   bool          // one of them is at the app
	fresh     int           // at the gate with a message that was not tried before
	waiting   int           // messages that wait for changed
	watched   bool          // watch waits for changed
	toldReady bool          // onReady was called since the breaker opened
	changed   chan struct{} // closed when something changed
	opening   chan struct{} // closed when the breaker opens
	why       string        // the failure that opened the breaker
}

func newGate(cfg policy.BreakerConfig, concurrency int) *gate {
	return &gate{breaker: policy.NewBreaker(cfg, concurrency), changed: make(chan struct{}), opening: make(chan struct{})}
}

// entry is what the gate must know of a message.
type entry struct {
	alone bool // nobody else may be at the app
	fresh bool // it was not tried before: the app is probed with such a one rather than with one that failed, which may be the cause

	unwanted func() bool // asked now and then while it waits: whether it is not to be sent any more; nil: it is
}

// askEvery is how often it is asked of a message that waits whether it is to be sent.
const askEvery = time.Second

var errUnwanted = errors.New("the message is not to be sent any more")

// enter waits until a request may be sent. It returns an error when ctx ends, or has ended, or when the message is not to be sent; else leave must follow.
func (g *gate) enter(ctx context.Context, e entry) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if g.walkIn(e) {
		return nil
	}
	g.comes(e, 1)
	defer g.comes(e, -1)
	for {
		wait, changed, open := g.tryEnter(time.Now(), e)
		if changed == nil {
			if e.alone {
				g.aloneChanged()
			}
			if !open || g.ready == nil {
				return nil
			}
			err := g.ready(ctx)
			if err == nil {
				return nil
			}
			g.postpone(err)
			if e.alone {
				g.aloneChanged()
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			continue
		}
		if e.unwanted != nil {
			wait = min(wait, askEvery)
		}
		await(ctx, changed, wait)
		g.stopWaiting()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if e.unwanted != nil && e.unwanted() {
			return errUnwanted
		}
	}
}

// await waits for a change, or for so long, or for the end of ctx.
func await(ctx context.Context, changed <-chan struct{}, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-changed:
	case <-timer.C:
	}
}

// walkIn lets a request in where there is nothing to decide: the breaker is closed, and there is room.
func (g *gate) walkIn(e entry) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, open := g.breaker.Open(); open || e.alone || g.alone > 0 || g.inside >= g.breaker.Allowed(time.Time{}) {
		return false
	}
	g.inside++
	return true
}

// tryEnter lets a request in, and returns no channel; or it says how long to wait, and for what.
func (g *gate) tryEnter(now time.Time, e entry) (wait time.Duration, changed <-chan struct{}, open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, open = g.breaker.Open()
	turn := !open || e.fresh || g.fresh == 0
	// While the breaker is open one that must be alone gives way to a fresh one: else each would wait for the other.
	room := g.alone == 0 || e.alone && g.inside == 0 || open && e.fresh
	if most := g.breaker.Allowed(now); g.inside < most && turn && room {
		g.inside++
		g.aloneIn = e.alone
		return 0, nil, open
	}
	g.waiting++
	wait = time.Hour // until something changes
	if open && g.inside == 0 && turn {
		wait = max(g.breaker.NextProbe().Sub(now), time.Millisecond)
	}
	return wait, g.changed, open
}

// watch asks the app whether it is ready while the breaker is open and there is no message to try it with, until ctx ends.
func (g *gate) watch(ctx context.Context) {
	for ctx.Err() == nil {
		wait, changed := g.tryIdle(time.Now())
		if changed == nil {
			if err := g.ready(ctx); err != nil {
				g.postpone(err)
			} else {
				g.isReady(g.drained(ctx))
			}
			continue
		}
		await(ctx, changed, wait)
	}
}

// tryIdle takes a place for a look at the app, and returns no channel; or it says how long to wait, and for what.
func (g *gate) tryIdle(now time.Time) (wait time.Duration, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watched = false
	wait = time.Hour // until something changes
	if _, open := g.breaker.Open(); !open {
		return wait, g.opening
	}
	if g.inside == 0 && g.waiting == 0 {
		if wait = g.breaker.NextProbe().Sub(now); wait <= 0 {
			g.inside++
			return 0, nil
		}
	}
	g.watched = true
	return wait, g.changed
}

// isReady gives the place up again: the app is ready.
func (g *gate) isReady(drained bool) {
	g.mu.Lock()
	g.inside--
	half := g.breaker.Ready(time.Now(), drained) && !g.toldReady
	g.toldReady = g.toldReady || half
	g.tell()
	g.mu.Unlock()
	if half && g.onReady != nil {
		g.onReady()
	}
}

func (g *gate) stopWaiting() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting--
}

// comes counts the fresh messages at the gate. When the last one has left, it may be the turn of one that is not.
func (g *gate) comes(e entry, delta int) {
	if !e.fresh {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fresh += delta; g.fresh == 0 {
		g.tell()
	}
}

// wantAlone is told that a message is to be at the app alone, until notAlone: nobody else enters, and nothing is pulled. While the
// breaker is open that begins when it enters.
func (g *gate) wantAlone() { g.changeAlone(1) }

// notAlone is told that such a message is done.
func (g *gate) notAlone() { g.changeAlone(-1) }

func (g *gate) changeAlone(delta int) {
	g.mu.Lock()
	g.alone += delta
	g.tell()
	g.mu.Unlock()
	g.aloneChanged()
}

func (g *gate) aloneChanged() {
	if g.onAlone != nil {
		g.onAlone()
	}
}

// keepsAlone reports whether nothing may be pulled, for a message that is at the app alone, or waits until it is. While the breaker is
// open several such ones may wait for long, and perhaps only another message can close it.
func (g *gate) keepsAlone() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, open := g.breaker.Open()
	return g.aloneIn || g.alone > 0 && !open
}

// opens is closed when the breaker opens; nil if it is open.
func (g *gate) opens() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, open := g.breaker.Open(); open {
		return nil
	}
	return g.opening
}

// exit gives the place up without a request.
func (g *gate) exit() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	g.aloneIn = false
	g.tell()
}

// postpone gives the place up again: the app is not ready for a probe.
func (g *gate) postpone(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	g.aloneIn = false
	if g.breaker.Postpone(time.Now(), random()) {
		g.why, g.toldReady = err.Error(), false
	}
	g.tell()
}

// leave is told what came of the request, and reports whether its message is to be tried again in place: it is at its limit,
// and the breaker holds.
func (g *gate) leave(m uint64, d policy.Decision, why string) (again bool) {
	g.left(func(now time.Time) { again = g.judge(now, m, d, why) })
	return again
}

// left has the end of a request counted, and tells those who wait for it.
func (g *gate) left(count func(now time.Time)) {
	g.mu.Lock()
	now := time.Now()
	since, was := g.breaker.Open()
	g.inside--
	g.aloneIn = false // it was this one: nobody else is inside then
	count(now)
	opened, open := g.breaker.Open()
	g.tell()
	why := g.why
	g.mu.Unlock()
	if (open != was || open && !opened.Equal(since)) && g.onChange != nil {
		if open {
			since = opened
		}
		g.onChange(open, since, why)
	}
}

// judge counts the decision over one message, and reports whether it is to be tried again in place.
func (g *gate) judge(now time.Time, m uint64, d policy.Decision, why string) (again bool) {
	switch {
	case silent(d):
	case failing(d):
		g.failed(now, m, why)
		return limited(d) && g.breaker.Holds(now)
	default:
		g.breaker.Passed()
	}
	return false
}

// failed counts a failure of a message.
func (g *gate) failed(now time.Time, m uint64, why string) {
	if g.breaker.Failed(now, m, random()) {
		g.why, g.toldReady = why, false
		close(g.opening)
		g.opening = make(chan struct{})
	}
}

// silent reports whether a decision says nothing of the app, which saw nothing of the message: it was handed back, or no request can be made of it.
func silent(d policy.Decision) bool { return d.Verdict == 0 || d.Reason == policy.ReasonUndeliverable }

// failing reports whether an answer meant that a message is to be tried again, whatever its limits made of that.
func failing(d policy.Decision) bool { return d.Verdict == policy.Retry || limited(d) }

// limited reports whether a message that was to be tried again is at a limit.
func limited(d policy.Decision) bool {
	return d.Reason == policy.ReasonMaxDeliver || d.Reason == policy.ReasonMaxAge
}

func (g *gate) tell() {
	if g.waiting > 0 || g.watched {
		close(g.changed)
		g.changed = make(chan struct{})
	}
}

// state is what the breaker does now.
func (g *gate) state() (open bool, since time.Time, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	since, open = g.breaker.Open()
	return open, since, g.why
}

// halfOpen reports whether the app said that it is ready while there was no message to try it with.
func (g *gate) halfOpen() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.breaker.HalfOpen()
}

// idle reports whether no message is at the app or waits for it.
func (g *gate) idle() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside == 0 && g.waiting == 0
}
