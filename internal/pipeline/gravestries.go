package pipeline

import (
	"log/slog"
	"time"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

const (
	// tolerated is how many entries in a row may fail, each of which could say something of all, until the DLQ counts as failing: then
	// one try is made at a time.
	tolerated = 3
	// apart keeps the tries of entries apart that are refused alone, once each of them waits longest: there may be very many.
	apart = 20 * time.Millisecond
	// sayEvery is how often a failure is logged at most.
	sayEvery = 30 * time.Second
	// quietFor is how long nothing must have failed until the log says that the DLQ takes entries again: longer than an entry that is
	// refused alone waits for its next try.
	quietFor = 15 * time.Second
)

// tries is what the tries to store dead letters say of the DLQ: whether it fails, or single entries do. It is told the time.
type tries struct {
	failures int       // in a row, of entries that could say something of all
	next     time.Time // not before then is a DLQ that fails tried again
	stored   time.Time // when the last try began that stored an entry
	slot     time.Time // when the last of those that wait longest is tried again
	failed   time.Time // when a try failed last that counts for the log
	said     time.Time // when a failure was last logged
	told     bool      // and not that it is over
}

// turn reports how long an entry must wait before it may be tried; 0: now. Then its result must follow.
func (t *tries) turn(dl *deadLetter, now time.Time) time.Duration {
	if wait := dl.notBefore.Sub(now); wait > 0 {
		return wait
	}
	if t.failures < tolerated {
		return 0
	}
	if wait := t.next.Sub(now); wait > 0 {
		return wait
	}
	t.next = now.Add(longPause) // this one tries; its result sets it anew
	return 0
}

// took is told that an entry was stored.
func (t *tries) took(began time.Time) {
	if began.After(t.stored) {
		t.stored = began
	}
	t.failures, t.next = 0, time.Time{}
}

// missed is told that an entry was not stored. It returns the pause before its next try, and whether that may be for a reason that
// concerns all entries.
func (t *tries) missed(dl *deadLetter, began, now time.Time, err error) (pause time.Duration, all bool) {
	dl.tries++
	if t.isAlone(dl, began, err) {
		dl.alone = true
	}
	dl.failedAt = now
	if !dl.alone {
		pause = jittered(pauseAfter(t.failures))
		if t.failures++; t.failures >= tolerated {
			t.next = now.Add(pause)
		}
		return pause, true
	}
	if t.failures >= tolerated {
		t.next = now // it says nothing: the next one tries
	}
	pause = jittered(pauseAfter(dl.tries - 1))
	if dl.tries > longestAfter {
		if first := now.Add(pause); t.slot.Add(apart).After(first) {
			t.slot = t.slot.Add(apart)
		} else {
			t.slot = first
		}
		pause = t.slot.Sub(now)
	}
	dl.notBefore = now.Add(pause)
	return pause, false
}

// isAlone reports whether an entry fails for a reason of its own: the answer says so, or others were stored since this try began, or since
// it failed before. Once that was seen it is taken for granted.
func (t *tries) isAlone(dl *deadLetter, began time.Time, err error) bool {
	return dl.alone || jetstream.RefusedAlone(err) || t.stored.After(began) || !dl.failedAt.IsZero() && t.stored.After(dl.failedAt)
}

// longestAfter is after how many tries the pause is longPause.
const longestAfter = 6

func pauseAfter(failures int) time.Duration {
	return min(firstPause<<min(failures, longestAfter), longPause)
}

// saysFailure reports whether a failure is to be logged. One of a try that began before another was stored is not, if it is the first of its
// entry: what it says may be over.
func (t *tries) saysFailure(dl *deadLetter, began, now time.Time, err error) bool {
	if dl.tries == 1 && t.stored.After(began) && !jetstream.RefusedAlone(err) {
		return false
	}
	t.failed = now
	return t.says(now)
}

// says reports whether it is time to log a failure again.
func (t *tries) says(now time.Time) bool {
	if !t.said.IsZero() && now.Sub(t.said) <= sayEvery {
		return false
	}
	t.said, t.told = now, true
	return true
}

// saysOver reports whether it is to be logged that the DLQ takes entries again.
func (t *tries) saysOver(now time.Time) bool {
	if !t.told || !t.stored.After(t.failed) || now.Sub(t.failed) < quietFor {
		return false
	}
	t.told = false
	return true
}

// failed notes a failure, and returns the pause before the next try.
func (g *graves) failed(dl *deadLetter, began time.Time, err error) time.Duration {
	g.p.Observer.DeadLetterFailed(dl.message.Sequence, err)
	held := g.p.order != nil || dl.message.Last()
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	pause, all := g.tries.missed(dl, began, now, err)
	if g.tries.saysFailure(dl, began, now, err) {
		g.p.Log.Error("the dlq cannot take an entry, its message is held back", slog.Uint64("sequence", dl.message.Sequence), slog.String("error", err.Error()))
	}
	if all || held { // who looks knows when a held one is due, too
		g.lookSoon()
	}
	if g.stopping {
		dl.hasten(now)
	}
	return pause
}

// succeeded notes that an entry was stored.
func (g *graves) succeeded(began time.Time) {
	g.mu.Lock()
	g.tries.took(began)
	g.mu.Unlock()
	g.sayOver()
}

// sayOver logs that the DLQ takes entries again, once it has for a while.
func (g *graves) sayOver() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.tries.saysOver(time.Now()) {
		g.p.Log.Info("the dlq takes entries again")
	}
}
