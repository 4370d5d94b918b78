package policy

import "time"

// Breaker tells an app that fails from messages that fail. It is a state machine that is told the time, and it is not
// safe for concurrent use.
//
// It opens when the given number of different messages in a row had an answer that meant retry, with no other verdict
// between: one poison message, however often it fails, never opens it. While it is open one request at a time is tried,
// after a wait that doubles. A verdict other than retry closes it; then the number of requests allowed at a time starts
// with one and grows by one with each further verdict other than retry. Half open it is when the app said that it is ready and
// no message was there to try it with: all holds as while it is open, but the next message need not wait. Drained it is when nothing is
// left for the app either. That is no proof that the app is well, but while it lasts Hold does not run, and what has run of it comes back as
// fast as time passes: a failure after as much as Hold of that is a new opening. A message that waits for the end of Hold is left, so
// none waits for longer than that.
type Breaker struct {
	cfg     BreakerConfig
	most    int      // requests at a time, when nothing is wrong
	failed  []uint64 // the different messages that failed in a row, fewer than cfg.Failures
	open    bool
	half    bool          // open, and the app said that it is ready
	since   time.Time     // when it opened
	until   time.Time     // when Hold is over
	drained time.Time     // since when it is half open with nothing left for the app; zero: it is not, or that is counted
	rested  time.Duration // how long it was so since it is half open
	wait    time.Duration
	next    time.Time // the next probe
	allowed int
}

// NewBreaker is a closed breaker for an app that may get most requests at a time.
func NewBreaker(cfg BreakerConfig, most int) *Breaker {
	return &Breaker{cfg: cfg, most: most, allowed: most}
}

// Open reports whether the breaker is open, and since when.
func (b *Breaker) Open() (since time.Time, open bool) { return b.since, b.open }

// HalfOpen reports whether the breaker is open, and the app was ready when it was last asked with no message to try it with.
func (b *Breaker) HalfOpen() bool { return b.half }

// Allowed is how many requests may be at the app at a time: 0 while a probe has to wait.
func (b *Breaker) Allowed(now time.Time) int {
	switch {
	case !b.open:
		return b.allowed
	case !b.half && now.Before(b.next):
		return 0
	default:
		return 1
	}
}

// NextProbe is when a request may be tried while the breaker is open, and when the app is to be asked again while it is half open.
func (b *Breaker) NextProbe() time.Time { return b.next }

// Holds reports whether nothing may be dead-lettered for a limit now: the breaker is open, and not for longer than Hold.
func (b *Breaker) Holds(now time.Time) bool { return b.open && now.Before(b.until) }

// Failed is told that a message had an answer that meant retry. Random, in [0, 1), is for the jitter of the next probe. It
// reports whether this opened the breaker, or opened it anew.
func (b *Breaker) Failed(now time.Time, message uint64, random float64) (opened bool) {
	switch {
	case b.cfg.Failures <= 0:
		return false
	case b.open:
		opened = b.worse(now)
		b.delay(now, random)
		return opened
	}
	for _, m := range b.failed {
		if m == message {
			return false
		}
	}
	if len(b.failed)+1 < b.cfg.Failures {
		b.failed = append(b.failed, message)
		return false
	}
	b.failed = b.failed[:0]
	b.opens(now)
	b.delay(now, random)
	return true
}

func (b *Breaker) opens(now time.Time) {
	b.open, b.since, b.until, b.wait = true, now, now.Add(b.cfg.Hold), 0
}

// Ready is told that the app is ready, and that there is no message to try it with; drained: that none is left for it anywhere. It
// reports whether this made the breaker half open. Only a verdict closes it: an app may call itself ready and fail every message.
func (b *Breaker) Ready(now time.Time, drained bool) (halfOpened bool) {
	if !b.open {
		return false
	}
	was := b.half
	b.half, b.next = true, now.Add(b.cfg.ProbeMax)
	b.refill(now)
	if drained {
		b.drained = now
	}
	return !was
}

// Postpone is told that the app is not ready for a probe: the next one waits as after one that failed. It reports whether this opened
// the breaker anew.
func (b *Breaker) Postpone(now time.Time, random float64) (opened bool) {
	if b.open {
		opened = b.worse(now)
		b.delay(now, random)
	}
	return opened
}

// refill counts the time since when nothing was left for the app: what has run of Hold comes back for it.
func (b *Breaker) refill(now time.Time) {
	if b.drained.IsZero() {
		return
	}
	rest := now.Sub(b.drained)
	b.until = now.Add(min(max(b.until.Sub(b.drained), 0)+rest, b.cfg.Hold))
	b.rested += rest
	b.drained = time.Time{}
}

// worse ends that the breaker is half open. It reports whether nothing was left for the app for so long meanwhile that this is a new opening.
func (b *Breaker) worse(now time.Time) (anew bool) {
	b.refill(now)
	if anew = b.rested > 0 && b.rested >= b.cfg.Hold; anew {
		b.opens(now)
	}
	b.rested = 0
	return anew
}

// delay sets the next probe: ProbeInterval after the opening, then doubling to ProbeMax, of which a quarter is random. A request
// that was at the app already when the breaker opened does not put the first probe off further.
func (b *Breaker) delay(now time.Time, random float64) {
	if b.wait > 0 && now.Before(b.next) && !b.half {
		return
	}
	b.half = false
	if b.wait == 0 {
		b.wait = min(b.cfg.ProbeInterval, b.cfg.ProbeMax)
	} else if b.wait = 2 * b.wait; b.wait > b.cfg.ProbeMax || b.wait <= 0 {
		b.wait = b.cfg.ProbeMax
	}
	b.next = now.Add(b.wait - time.Duration(random*float64(b.wait/4)))
}

// Passed is told of a verdict other than retry. It reports whether this closed the breaker.
func (b *Breaker) Passed() (closed bool) {
	b.failed = b.failed[:0]
	if b.open {
		b.open, b.half, b.drained, b.rested, b.allowed = false, false, time.Time{}, 0, 1
		return true
	}
	b.allowed = min(b.allowed+1, b.most)
	return false
}
