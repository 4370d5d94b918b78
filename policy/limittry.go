package policy

import "time"

// measured is told the throughput of a stretch of time.
func (l *Limit) measured(now time.Time, x throughput) {
	switch {
	case l.limit > l.base && l.better(x):
		l.step = min(2*(float64(l.limit)/float64(l.base)-1), 1)
		l.settle(now, x)
		l.climb(now)
	case l.limit < l.base && l.goodEnough(x):
		l.shrink(now, x)
	case l.limit != l.base:
		l.refuse(now, x)
	default:
		l.atBase(now, x)
	}
}

// shrink takes a smaller limit if it was good enough twice, each time against a base that was measured right before.
func (l *Limit) shrink(now time.Time, x throughput) {
	if l.once {
		l.settle(now, x)
		l.fall = min(2*l.fall, mostDown)
		l.once = false
	} else {
		l.once = true
	}
	l.down, l.next = true, now
	l.set(now, l.base)
}

// better reports whether a larger limit pays.
func (l *Limit) better(x throughput) bool {
	step := float64(l.limit)/float64(l.base) - 1
	if l.costly() { // such a step is too small to be measured well
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
	l.base, l.ref, l.usual, l.anchor = l.limit, x, l.took(now), throughput{}
	l.once = false
	if l.base >= l.ceiling {
		l.ceiling, l.cost, l.pause = 0, 0, leastPause
	}
}

// took is how long a measurement took while there was enough to do.
func (l *Limit) took(now time.Time) time.Duration {
	return min(now.Sub(l.sample.since), 2*l.sample.busy(l.limit))
}

// climb goes on upwards at once, unless the next step is the one that overloaded the app.
func (l *Limit) climb(now time.Time) {
	if l.base+1 == l.ceiling {
		l.next = now.Add(l.pauseAfter())
		l.set(now, l.base)
		return
	}
	l.tryUp(now)
}

// atBase is told the throughput of a stretch at the base: is it time to try another limit?
func (l *Limit) atBase(now time.Time, x throughput) {
	if x.passed == 0 { // an outage: nothing can be learned from it
		l.ref, l.anchor, l.trip, l.next = throughput{}, throughput{}, time.Time{}, now.Add(leastPause)
		l.set(now, l.base)
		return
	}
	first := l.ref.rate == 0
	l.ref, l.usual = x, l.took(now)
	switch {
	case l.anchor.rate == 0:
		l.anchor = x
	case x.latency < faster*l.anchor.latency:
		l.down, l.pause, l.next, l.anchor = false, leastPause, now, x
	case x.latency > slower*l.anchor.latency || x.passed < l.anchor.passed-worse:
		l.down, l.pause, l.next, l.anchor = true, leastPause, now, throughput{}
		l.set(now, l.base) // it may have changed within this stretch, which is nothing to compare with then
		return
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

// costly reports whether the app was away for long when it was overloaded: that is approached in small steps.
func (l *Limit) costly() bool { return l.ceiling > 0 && l.cost > costly }

// pauseAfter is until the next try after one that overloaded the app. It is short where small steps lead nearer to what was too much.
func (l *Limit) pauseAfter() time.Duration {
	if l.costly() && l.base+1 < l.ceiling {
		return leastPause
	}
	return max(l.pause, min(costRest*l.cost, mostCostRest))
}

// smallStep is one that may overload the app by little only.
func (l *Limit) smallStep() int { return max(1, l.base/16) }

// tryUp tries a larger limit, up to halfway to where the app was overloaded.
func (l *Limit) tryUp(now time.Time) {
	to := l.base + max(1, int(l.step*float64(l.base)))
	switch {
	case l.costly():
		to = min(to, l.base+l.smallStep(), max(l.base+1, l.ceiling-1))
	case l.ceiling > 0:
		to = min(to, max(l.base+1, (l.base+l.ceiling)/2))
	}
	l.try(now, min(to, l.most))
}

func (l *Limit) tryDown(now time.Time) {
	l.try(now, max(l.base-max(1, int(l.fall*float64(l.base))), 1))
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
	switch up := l.limit > l.base && cost < leastPause; {
	case l.limit < l.base && (l.fall > downStep || x.latency > slower*l.ref.latency): // by too much, or the app has just become slower
		l.fall, l.once, l.down, l.pause, l.next = downStep, false, true, leastPause, now
	case up && !l.once && cost < l.usual/4: // the machine may have been busy with other things just then
		l.once, l.next = true, now
	case up && l.step > leastStep: // a smaller step may still pay
		l.once, l.step, l.next, l.anchor = false, leastStep, now, throughput{}
	default:
		l.rest(now, cost)
	}
	l.set(now, l.base)
}

// rest puts the next look at both sides off, upwards first: for twice as long as the last time, and for long against what a try takes and has cost.
func (l *Limit) rest(now time.Time, cost time.Duration) {
	var pause time.Duration
	if l.down = !l.down && l.base > 1; !l.down {
		pause = max(l.pause, min(usualRest*l.usual, mostUsualRest))
		l.pause = min(2*l.pause, mostPause)
	}
	l.next = now.Add(max(pause, min(costRest*cost, mostCostRest)))
	l.once, l.step, l.fall, l.anchor = false, leastStep, downStep, l.ref // which shows whether the app changes in the pause
}

// overload goes back to the base, or makes that smaller. It does not say that the base was wrong for long: the app may have been
// away for another reason.
func (l *Limit) overload(now time.Time) {
	tried := l.limit > l.base
	l.ceiling = min(l.limit, max(l.sample.peak, 1))
	if tried {
		l.trip, l.passed = l.alive, 0
		l.pause = min(2*l.pause, overloadPause)
	} else {
		l.base = max(int(backOff*float64(l.ceiling)), 1)
		l.trip, l.ref, l.pause = time.Time{}, throughput{}, leastPause
	}
	l.down, l.once, l.step, l.fall, l.anchor = false, false, leastStep, downStep, throughput{}
	l.next = now.Add(l.pause)
	l.set(now, l.base)
}
