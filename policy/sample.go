package policy

import "time"

const (
	mostSamples  = 512                   // are a measurement, whatever the limit
	leastStretch = 50 * time.Millisecond // a shorter one measures the scheduler
	slow         = 2 * time.Second       // after so long a quarter is enough
	precise      = 50                    // requests are a measurement of a doubling, if they differ by as much as they take
)

// sample is what was seen of an app in a stretch of time at one limit.
type sample struct {
	since     time.Time
	peak      int // requests in flight at most
	seen      int // ended
	overloads int // of those

	full    int           // ended, and were sent when the limit was reached
	passed  int           // of those
	working time.Duration // of those that passed, all together
	failing time.Duration // of those that did not
	squares float64       // of all of them, in seconds squared
}

// throughput is how much an app gets done.
type throughput struct {
	rate    float64 // passed a second
	passed  float64 // the share of those that passed
	latency float64 // seconds
}

func (s *sample) reset(now time.Time, inFlight int) { *s = sample{since: now, peak: inFlight} }

func (s *sample) add(full bool, took time.Duration, signal Signal) {
	s.seen++
	if signal == Overloaded {
		s.overloads++
	}
	switch {
	case !full:
		return
	case signal == Passed:
		s.passed++
		s.working += took
	default:
		s.failing += took
	}
	s.full++
	s.squares += took.Seconds() * took.Seconds()
}

// busy is for how long limit requests were at the app, to do what was done.
func (s *sample) busy(limit int) time.Duration { return (s.working + s.failing) / time.Duration(limit) }

// variation is the variance of how long requests took, against the square of their mean.
func (s *sample) variation() float64 {
	sum := max((s.working + s.failing).Seconds(), nothing)
	return max(float64(s.full)*s.squares/(sum*sum)-1, 0)
}

// overloaded reports whether too many say so: a few among many are no sign.
func (s *sample) overloaded() bool { return s.overloads > 3+s.seen/4 }

// throughput is how much was done with limit requests at the app all the time: by Little's law the limit divided by the time
// that each that passed took of it, and those that failed with it. Requests that take much longer than others end in a later stretch
// and are not in it, so a few of them hide nothing.
func (s *sample) throughput(limit int) throughput {
	if s.passed == 0 {
		return throughput{rate: nothing}
	}
	n := float64(s.passed)
	return throughput{
		rate:    float64(limit) / max((s.working+s.failing).Seconds()/n, nothing),
		passed:  n / float64(s.full),
		latency: s.working.Seconds() / n,
	}
}

// nothing stands for 0 where something is divided by it.
const nothing = 1e-9
