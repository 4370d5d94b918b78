package policy

import "time"

const (
	startLimit = 4    // requests at a time before anything is known of the app
	leastStep  = 0.25 // of the limit, upwards, when nothing is known of where the app fails
	downStep   = 0.2  // of the limit, downwards
	paysUp     = 0.5  // of what a larger limit could bring at most, it must bring so much to stay
	paysDown   = 0.25 // of what a smaller limit could cost at most, it may cost so much to stay
	faster     = 0.7  // of the latency that was usual: the app has changed, and another limit is tried at once
	slower     = 1.5  // the same
	worse      = 0.1  // so many less pass: the same
	backOff    = 0.7  // of the requests at the app, so many are right after it was overloaded

	leastPause    = time.Second
	mostPause     = 8 * time.Second  // between tries of another limit
	overloadPause = 16 * time.Second // after a try that overloaded the app
	costly        = time.Second / 2  // a try that costs so much is one
	costlyPause   = time.Minute      // after one that cost so much of its time
)

// Limit finds how many requests at a time an app can take, from 1 to a most. It is a state machine that is told the time,
// and it is not safe for concurrent use.
//
// It measures how much the app gets done at one limit (its base), tries another for as long, and keeps the one that is better
// by enough: a larger one must bring at least half of what it could bring, a smaller one may cost at most a quarter of what it
// could cost. So it ends where more requests only wait longer in the app. A larger limit that pays is followed by a step twice
// as large; one that does not is tried again after a pause. An app that says that it is overloaded, or does not answer, ends a
// try at once; at the base it costs three tenths of it.
//
// Only requests that were sent while the limit was reached are measured, so a limit that is not used does not grow. Two
// limits are compared over neighbouring stretches of time: an app that becomes slower by itself does not shrink it.
type Limit struct {
	most    int
	limit   int  // now
	base    int  // the best one known; limit differs from it during a try
	ceiling int  // the app was overloaded by so many; 0 if that is not known
	costly  bool // and that took the app away for long: it is approached in small steps
	step    float64

	down   bool          // the next try is a smaller limit
	once   bool          // the last try was one, and good enough
	pause  time.Duration // until the next try
	next   time.Time     // of which; zero: when the base was measured
	trip   time.Time     // when a try overloaded the app, until the base was measured again
	usual  time.Duration // how long it took to measure the base
	anchor throughput    // of the base after the last try, zero if not known
	ref    throughput    // of the base, zero if not known

	stretch  uint64 // counts the stretches of time at one limit
	sample   sample
	inFlight int
}

// Signal is what the end of a request says about the app.
type Signal uint8

// The signals.
const (
	Silent     Signal = iota // nothing: it was not sent, or cut off by a stop
	Passed                   // the app has done its work, also if the message was at fault
	Failed                   // the app has not, for whatever reason
	Overloaded               // it says that it cannot take so much, or it does not answer
)

// Ticket is a request at the app.
type Ticket struct {
	stretch uint64
	full    bool // it reached the limit
}

// NewLimit is for an app of which nothing is known.
func NewLimit(most int) *Limit {
	l := &Limit{most: max(most, 1), step: 1, pause: leastPause}
	l.base = min(startLimit, l.most)
	l.limit = l.base
	return l
}

// Now is how many requests may be at the app.
func (l *Limit) Now() int { return l.limit }

// Start is told that a request is sent; Done must follow.
func (l *Limit) Start(now time.Time) Ticket {
	if l.stretch == 0 {
		l.set(now, l.base)
	}
	l.inFlight++
	l.sample.peak = max(l.sample.peak, l.inFlight)
	return Ticket{stretch: l.stretch, full: l.inFlight*10 >= l.limit*9}
}

// Done is told what came of a request, and how long the app had it.
func (l *Limit) Done(now time.Time, t Ticket, took time.Duration, s Signal) {
	l.inFlight--
	before := t.stretch+1 == l.stretch && l.limit > l.base // what was there when more came may fail because of it
	if s == Silent || t.stretch != l.stretch && !(before && s == Overloaded) {
		return // it says nothing about this limit
	}
	l.sample.add(t.full && t.stretch == l.stretch, took, s)
	switch late := l.limit > l.base && now.Sub(l.sample.since) > 4*l.usual+time.Second/4; {
	case l.sample.overloaded() || late && t.full:
		l.overload(now)
	case late: // there is no longer enough to do
		l.refuse(now, l.ref)
	case l.sample.enough(l.need(), now):
		l.measured(now, l.sample.throughput(l.limit))
	}
}

// need is how many requests are a measurement: the more the finer the step to another limit is.
func (l *Limit) need() int {
	switch {
	case l.limit > l.base && l.step >= 1 || l.ref.rate == 0:
		return min(max(2*l.limit, 4), mostSamples)
	case l.limit > l.base:
		return min(max(4*l.limit, 8), mostSamples)
	default:
		return min(max(8*l.limit, 16), mostSamples)
	}
}

// set begins a stretch of time at a limit.
func (l *Limit) set(now time.Time, limit int) {
	l.limit = limit
	l.stretch++
	l.sample.reset(now, l.inFlight)
}

// measured is told the throughput of a stretch of time.
func (l *Limit) measured(now time.Time, x throughput) {
	switch {
	case l.limit > l.base && l.better(x):
		l.step = min(2*(float64(l.limit)/float64(l.base)-1), 1)
		l.settle(now, x)
		l.tryUp(now)
	case l.limit < l.base && l.goodEnough(x):
		l.shrink(now, x)
	case l.limit != l.base:
		l.refuse(now, x)
	default:
		l.atBase(now, x)
	}
}

// shrink takes a smaller limit if it was good enough twice, each time against a base that was measured right before: a machine that is busy
// with other things now and then must not shrink it step by step.
func (l *Limit) shrink(now time.Time, x throughput) {
	if l.once {
		l.settle(now, x)
	}
	l.once = !l.once
	l.down, l.next = true, now
	l.set(now, l.base)
}

// better reports whether a larger limit pays.
func (l *Limit) better(x throughput) bool {
	step := float64(l.limit)/float64(l.base) - 1
	if l.costly && l.ceiling > 0 { // such a step is too small to be measured well
		return x.rate >= l.ref.rate*(1-step) && x.passed >= l.ref.passed-paysUp*step
	}
	return x.rate >= l.ref.rate*(1+paysUp*step) && x.passed >= l.ref.passed-paysUp*step/(1+step)
}

// goodEnough reports whether a smaller limit does not cost much.
func (l *Limit) goodEnough(x throughput) bool {
	step := 1 - float64(l.limit)/float64(l.base)
	return x.rate >= l.ref.rate*(1-paysDown*step)
}

// settle makes the limit that was tried the base.
func (l *Limit) settle(now time.Time, x throughput) {
	l.base, l.ref, l.usual, l.anchor = l.limit, x, now.Sub(l.sample.since), throughput{}
	if l.base >= l.ceiling {
		l.ceiling, l.costly, l.pause = 0, false, leastPause
	}
}

// atBase is told the throughput of a stretch at the base: is it time to try another limit?
func (l *Limit) atBase(now time.Time, x throughput) {
	if x.passed == 0 { // an outage: nothing can be learned from it
		l.ref, l.anchor, l.trip, l.next = throughput{}, throughput{}, time.Time{}, now.Add(leastPause)
		l.set(now, l.base)
		return
	}
	first := l.ref.rate == 0
	took := now.Sub(l.sample.since)
	if !l.trip.IsZero() { // wait the longer the more the try has cost, and the more of them overloaded the app
		cost := max(now.Sub(l.trip)-l.usual, 0)
		l.next, l.costly, l.trip = now.Add(l.pauseAfter(cost)), cost > costly, time.Time{}
	}
	l.ref, l.usual = x, took
	switch {
	case l.anchor.rate == 0:
		l.anchor = x
	case x.latency < faster*l.anchor.latency:
		l.down, l.pause, l.next, l.anchor = false, leastPause, now, x
	case x.latency > slower*l.anchor.latency || x.passed < l.anchor.passed-worse:
		l.down, l.pause, l.next, l.anchor = true, leastPause, now, x
	}
	switch {
	case first && l.next.IsZero():
		l.tryUp(now)
	case now.Before(l.next):
		l.set(now, l.base)
	case l.down:
		l.tryDown(now)
	default:
		l.tryUp(now)
	}
}

// pauseAfter is until the next try after one that overloaded the app. It is short where small steps lead nearer to what was too much.
func (l *Limit) pauseAfter(cost time.Duration) time.Duration {
	if cost > costly && l.base+1 < l.ceiling {
		return leastPause
	}
	return max(l.pause, min(time.Duration(2*l.pause.Seconds()*float64(cost)), costlyPause))
}

// smallStep is one that may overload the app by little only.
func (l *Limit) smallStep() int { return max(1, l.base/16) }

// tryUp tries a larger limit, up to halfway to where the app was overloaded.
func (l *Limit) tryUp(now time.Time) {
	to := l.base + max(1, int(l.step*float64(l.base)))
	switch {
	case l.ceiling > 0 && l.costly:
		to = min(to, l.base+l.smallStep(), max(l.base+1, l.ceiling-1))
	case l.ceiling > 0:
		to = min(to, max(l.base+1, (l.base+l.ceiling)/2))
	}
	l.try(now, min(to, l.most))
}

func (l *Limit) tryDown(now time.Time) {
	l.try(now, max(l.base-max(1, int(downStep*float64(l.base))), 1))
}

func (l *Limit) try(now time.Time, limit int) {
	if limit == l.base {
		l.rest(now, 0)
	}
	l.set(now, limit)
}

// refuse goes back to the base.
func (l *Limit) refuse(now time.Time, x throughput) {
	cost := time.Duration(float64(now.Sub(l.sample.since)) * max(1-x.rate/l.ref.rate, 0))
	if l.limit > l.base && l.step > leastStep && cost < leastPause {
		l.step, l.next, l.anchor = leastStep, now, throughput{} // a smaller step may still pay
	} else {
		l.rest(now, cost)
	}
	l.set(now, l.base)
}

// rest puts the next try off: for twice as long as the last time, and for long against what a try takes and has cost.
func (l *Limit) rest(now time.Time, cost time.Duration) {
	l.next = now.Add(max(l.pause, 8*l.usual, min(10*cost, costlyPause)))
	l.pause = min(2*l.pause, mostPause)
	l.down, l.once, l.step, l.anchor = !l.down, false, leastStep, throughput{}
}

// overload goes back to the base, or makes that smaller. It does not say that the base was wrong for long: the app may have been
// away for another reason.
func (l *Limit) overload(now time.Time) {
	tried := l.limit > l.base
	l.ceiling = min(l.limit, max(l.sample.peak, 1))
	if tried {
		l.trip = now
		l.pause = min(2*l.pause, overloadPause)
	} else {
		l.base = max(int(backOff*float64(l.ceiling)), 1)
		l.trip, l.ref, l.pause = time.Time{}, throughput{}, leastPause
	}
	l.down, l.once, l.step, l.anchor = false, false, leastStep, throughput{}
	l.next = now.Add(l.pause)
	l.set(now, l.base)
}
