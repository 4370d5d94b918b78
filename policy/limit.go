package policy

import (
	"math"
	"time"
)

const (
	startLimit = 4    // requests at a time before anything is known of the app
	leastStep  = 0.25 // of the limit, upwards, when nothing is known of where the app fails
	downStep   = 0.2  // of the limit, downwards
	mostDown   = 0.5  // the same, after smaller ones that stayed
	paysUp     = 0.5  // of what a larger limit could bring at most, it must bring so much to stay
	paysDown   = 0.25 // of what a smaller limit could cost at most, it may cost so much to stay
	faster     = 0.7  // of the latency that was usual: the app has changed, and another limit is tried at once
	slower     = 1.5  // the same
	worse      = 0.1  // so many less pass: the same
	backOff    = 0.7  // of the requests at the app, so many are right after it was overloaded

	leastPause    = time.Second
	mostPause     = 3 * time.Second       // before other limits are tried, the larger first
	overloadPause = 16 * time.Second      // after a try that overloaded the app
	costly        = time.Second / 2       // a try that took the app away for so long is one
	costRest      = 20                    // times what a try has cost is the pause after it, so that all of them cost a twentieth
	mostCostRest  = 10 * time.Minute      // but at most
	usualRest     = 6                     // times what a measurement takes is the pause after a try
	mostUsualRest = time.Minute           // but at most
	idle          = 50 * time.Millisecond // nobody was at the app for so long: there is nothing to do
)

// Limit finds how many requests at a time an app can take, from 1 to a most. It is a state machine that is told the time,
// and it is not safe for concurrent use.
//
// It measures how much the app gets done at one limit (its base), tries another for as long, and keeps the one that is better
// by enough: a larger one must bring at least half of what it could bring, a smaller one may cost at most a quarter of what it
// could cost. So it ends where more requests only wait longer in the app. A larger limit that pays is followed by a step twice
// as large, and so is a smaller one that stays; one that does not is tried again after a pause. An app that says that it is overloaded, or does not answer, ends a
// try at once; at the base it costs three tenths of it. A larger limit is not open at once: one more request goes for each that
// passes, so that an app that breaks does so with the first that is too many.
//
// On a machine that does other things too one comparison is wrong now and then. So a smaller limit must be good enough twice, and a
// larger one must fail twice, unless it fails by much.
//
// Only requests that were sent while the limit was reached are measured, so a limit that is not used does not grow. Two
// limits are compared over neighbouring stretches of time: an app that becomes slower by itself does not shrink it.
type Limit struct {
	most    int
	limit   int           // what is measured
	open    int           // so many of it may be used: one more with each request that passes
	base    int           // the best one known; limit differs from it during a try
	ceiling int           // the app was overloaded by so many; 0 if that is not known
	cost    time.Duration // and that took the app away for so long
	step    float64
	fall    float64 // the step downwards

	down   bool          // the next try is a smaller limit
	once   bool          // the last try said once what it must say twice
	pause  time.Duration // until the next try
	next   time.Time     // of which; zero: when the base was measured
	trip   time.Time     // when the app passed the last request before a try overloaded it, until that has done as much again as fills the base
	passed int           // since then
	usual  time.Duration // how long it took to measure the base
	anchor throughput    // of the base after the last try, zero if not known
	ref    throughput    // of the base, zero if not known

	stretch  uint64 // counts the stretches of time at one limit
	sample   sample
	inFlight int
	last     time.Time // when a request ended
	alive    time.Time // when one passed
	idle     bool      // nobody was at the app for a while before those that are
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
	l := &Limit{most: max(most, 1), step: 1, fall: downStep, pause: leastPause}
	l.base = min(startLimit, l.most)
	l.limit, l.open = l.base, l.base
	return l
}

// Now is how many requests may be at the app at this moment.
func (l *Limit) Now() int { return l.open }

// Aim is the limit that Now grows to.
func (l *Limit) Aim() int { return l.limit }

// Start is told that a request is sent; Done must follow.
func (l *Limit) Start(now time.Time) Ticket {
	if l.stretch == 0 {
		l.last = now
		l.set(now, l.base)
	}
	l.idle = l.idle || l.inFlight == 0 && now.Sub(l.last) > idle
	l.inFlight++
	l.sample.peak = max(l.sample.peak, l.inFlight)
	return Ticket{stretch: l.stretch, full: l.inFlight*10 >= l.limit*9}
}

// Done is told what came of a request, and how long the app had it.
func (l *Limit) Done(now time.Time, t Ticket, took time.Duration, s Signal) {
	l.inFlight--
	l.last = now
	l.idle = l.idle && (s != Silent || l.inFlight > 0) // while a breaker is open nobody is at the app, but there is something to do
	if s == Passed {
		l.alive = now
		l.open = min(l.open+1, l.limit)
	}
	before := t.stretch+1 == l.stretch && l.limit > l.base // what was there when more came may fail because of it
	if s == Silent || t.stretch != l.stretch && !(before && s == Overloaded) {
		return // it says nothing about this limit
	}
	if l.idle {
		l.idle, l.trip = false, time.Time{}
		l.forget(now)
		return
	}
	if s == Passed && !l.trip.IsZero() {
		l.passedAgain(now)
	}
	l.sample.add(t.full && t.stretch == l.stretch, took, s)
	elapsed := now.Sub(l.sample.since)
	switch late := l.limit > l.base && elapsed > 4*l.usual+time.Second/4; {
	case l.sample.overloaded() || late && (t.full || s == Overloaded || took > elapsed/2):
		l.overload(now)
	case late || l.limit <= l.base && elapsed > 4*(l.sample.busy(l.limit)+took)+time.Second: // the limit is hardly ever reached
		l.forget(now)
	case l.enough(elapsed):
		l.measured(now, l.sample.throughput(l.limit))
	}
}

// forget begins anew: what was seen so far is no measurement, as there was not enough to do.
func (l *Limit) forget(now time.Time) {
	if l.limit != l.base {
		l.rest(now, 0)
		l.set(now, l.base)
		return
	}
	l.sample.reset(now, l.inFlight)
}

// passedAgain is told that the app has done something after a try that overloaded it. The try has cost the time until as many as fill the
// base have passed, less what they take at best: also that in which a breaker was open, and let in few at first.
func (l *Limit) passedAgain(now time.Time) {
	if l.passed++; l.passed < l.base {
		return
	}
	l.cost = max(now.Sub(l.trip)-2*time.Duration(l.ref.latency*float64(time.Second)), 0)
	l.trip, l.next = time.Time{}, now.Add(l.pauseAfter())
}

// enough reports whether the sample is a measurement: so many rounds of requests, fewer where they are slow, and the more the more
// they differ and the finer the step is that it is compared over.
func (l *Limit) enough(elapsed time.Duration) bool {
	rounds, step := 8, max(l.step, 1/float64(l.base))
	if l.limit != l.base {
		rounds, step = 4, math.Abs(float64(l.limit)/float64(l.base)-1)
	}
	if l.limit > l.base && l.step >= 1 || l.ref.rate == 0 {
		rounds = 2
	}
	need := min(max(rounds*l.limit, 2*rounds, int(precise*l.sample.variation()/(step*step))), mostSamples)
	if elapsed > slow {
		need = min(max(need/4, l.limit, 2), mostSamples)
	}
	return l.sample.full >= need && elapsed >= leastStretch
}

// set begins a stretch of time at a limit.
func (l *Limit) set(now time.Time, limit int) {
	l.limit, l.open = limit, min(limit, l.base)
	l.stretch++
	l.sample.reset(now, l.inFlight)
}
