package policy

import (
	"slices"
	"time"
)

const (
	mostSamples  = 512
	leastStretch = 50 * time.Millisecond // a shorter one measures the scheduler
	outliers     = 10                    // one in so many of the slowest answers is left out
)

// sample is what was seen of an app in a stretch of time at one limit.
type sample struct {
	since     time.Time
	peak      int // requests in flight at most
	seen      int // ended
	overloads int // of those

	full    int                  // ended, and were sent when the limit was reached
	passed  int                  // of those
	took    [mostSamples]float64 // seconds of the last of those that passed
	failing float64              // seconds of all that did not
}

// throughput is how much an app gets done.
type throughput struct {
	rate    float64 // passed a second
	passed  float64 // the share of those that passed
	latency float64 // seconds
}

func (s *sample) reset(now time.Time, inFlight int) {
	s.since, s.peak = now, inFlight
	s.seen, s.overloads, s.full, s.passed, s.failing = 0, 0, 0, 0, 0
}

func (s *sample) add(full bool, took time.Duration, signal Signal) {
	s.seen++
	if signal == Overloaded {
		s.overloads++
	}
	if !full {
		return
	}
	s.full++
	if signal == Passed {
		s.took[s.passed%mostSamples] = took.Seconds()
		s.passed++
	} else {
		s.failing += took.Seconds()
	}
}

// overloaded reports whether too many say so: a few among many are no sign.
func (s *sample) overloaded() bool { return s.overloads > 3+s.seen/4 }

// enough reports whether the sample tells how much the app gets done.
func (s *sample) enough(need int, now time.Time) bool {
	return s.full >= need && now.Sub(s.since) >= leastStretch
}

// throughput is how much was done with limit requests at the app all the time: by Little's law the limit divided by the time
// that each that passed took of it. The slowest answers are left out, since a few of them would hide all else.
func (s *sample) throughput(limit int) throughput {
	kept := s.took[:min(s.passed, mostSamples)]
	if len(kept) == 0 {
		return throughput{rate: 1e-9}
	}
	slices.Sort(kept)
	if n := len(kept); n >= 4 {
		kept = kept[:n-(n+outliers-1)/outliers]
	}
	sum := 0.0
	for _, seconds := range kept {
		sum += seconds
	}
	mean := max(sum/float64(len(kept)), 1e-9)
	return throughput{
		rate:    float64(limit) / (mean + s.failing/float64(s.passed)),
		passed:  float64(s.passed) / float64(s.full),
		latency: mean,
	}
}
