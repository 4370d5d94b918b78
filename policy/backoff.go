package policy

import (
	"math"
	"time"
)

// leastDelay stands in for a schedule that makes no sense (an initial or longest delay of nothing), so that no delay is ever 0.
const leastDelay = time.Millisecond

// Delay is how long a message waits after its nth attempt, random being in [0, 1): between the bounds of Bounds. It is never
// 0, whatever n, random and the schedule are.
func (r RetryConfig) Delay(n uint64, random float64) time.Duration {
	shortest, longest := r.Bounds(n)
	if !(random > 0) { // also NaN
		return shortest
	}
	if random >= 1 {
		return longest
	}
	// The random part is measured from the unclipped lower end, so that clipping moves no other delay.
	delay := longest - scale(longest, r.jitter()*(1-random))
	return min(max(delay, shortest), longest)
}

// Bounds are the shortest and the longest delay after the nth attempt: the longest is Initial × Multiplier^(n-1), at most
// Max; the shortest is that less the fraction Jitter, but at least a tenth of it.
func (r RetryConfig) Bounds(n uint64) (shortest, longest time.Duration) {
	longest = r.base(n)
	shortest = max(longest-scale(longest, r.jitter()), longest/10, 1)
	return shortest, longest
}

// base is the delay before jitter.
func (r RetryConfig) base(n uint64) time.Duration {
	if r.Initial <= 0 || r.Max <= 0 {
		return leastDelay
	}
	multiplier := r.Multiplier
	if !(multiplier >= 1) { // also NaN
		multiplier = 1
	}
	grown := float64(r.Initial) * math.Pow(multiplier, float64(max(n, 1)-1))
	if !(grown < float64(r.Max)) { // also infinite
		return r.Max
	}
	return max(time.Duration(grown), min(r.Initial, r.Max))
}

// jitter is the configured fraction, kept within 0 to 1.
func (r RetryConfig) jitter() float64 {
	if !(r.Jitter > 0) { // also NaN
		return 0
	}
	return min(r.Jitter, 1)
}

// scale is the fraction f (0 to 1) of d.
func scale(d time.Duration, f float64) time.Duration {
	scaled := float64(d) * f
	if scaled >= float64(d) { // rounding at the far end of the range
		return d
	}
	return time.Duration(scaled)
}
