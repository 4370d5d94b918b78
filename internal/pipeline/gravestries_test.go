package pipeline

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

var (
	errAll   = errors.New("maximum messages exceeded")
	errAlone = fmt.Errorf("storing: %w", jetstream.ErrDeadLetterTooLarge)
)

// clock is a time that tests move.
type clock struct{ now time.Time }

func newClock() *clock { return &clock{time.Unix(1700000000, 0)} }

func (c *clock) pass(d time.Duration) time.Time {
	c.now = c.now.Add(d)
	return c.now
}

// fail lets an entry be tried, if it may be, and fail.
func (c *clock) fail(t *tries, dl *deadLetter, err error) (pause time.Duration, tried bool) {
	if t.turn(dl, c.pass(time.Millisecond)) > 0 {
		return 0, false
	}
	began := c.now
	pause, _ = t.missed(dl, began, c.pass(time.Millisecond), err)
	return pause, true
}

// store lets an entry be tried, if it may be, and be stored.
func (c *clock) store(t *tries) bool {
	if t.turn(&deadLetter{}, c.pass(time.Millisecond)) > 0 {
		return false
	}
	t.took(c.now)
	return true
}

// Entries that are refused by their own subject or size, however many, keep no other from being stored.
func TestRefusedEntriesKeepNoOtherBack(t *testing.T) {
	c, s := newClock(), &tries{}
	for i := range 1000 {
		if _, tried := c.fail(s, &deadLetter{}, errAlone); !tried {
			t.Fatalf("refused entry %d had to wait", i)
		}
		if i%100 == 99 && !c.store(s) {
			t.Fatalf("another had to wait after %d refused ones", i+1)
		}
	}
}

// An entry that fails while others are stored counts as refused by itself, whatever the answer says.
func TestAnEntryThatFailsAloneKeepsNoOtherBack(t *testing.T) {
	c, s := newClock(), &tries{}
	bad := &deadLetter{}
	c.fail(s, bad, errAll)
	if !c.store(s) {
		t.Fatal("one failure keeps others back")
	}
	for i := range 20 {
		c.pass(time.Minute)
		if _, tried := c.fail(s, bad, errAll); !tried || !bad.alone {
			t.Fatalf("try %d: tried %v, alone %v", i, tried, bad.alone)
		}
	}
	if !c.store(s) {
		t.Error("its failures keep others back")
	}
}

// While all fail, one try is made at a time, with growing pauses; the first that is stored lets all go.
func TestOneTryAtATimeWhileAllFail(t *testing.T) {
	c, s := newClock(), &tries{}
	var last time.Duration
	for i := range 10 {
		dl := &deadLetter{}
		pause, tried := c.fail(s, dl, errAll)
		if !tried {
			t.Fatalf("%d had to wait", i)
		}
		if i+1 < tolerated {
			continue
		}
		if wait := s.turn(&deadLetter{}, c.now); wait != pause || pause > longPause || pause < min(last, longPause/2) {
			t.Errorf("after %d failures others wait %s, the pause is %s after one of %s", i+1, wait, pause, last)
		}
		last = pause
		if s.turn(&deadLetter{}, c.pass(pause)) > 0 {
			t.Fatal("nobody may try after the pause")
		}
		if s.turn(&deadLetter{}, c.now) == 0 {
			t.Error("two try at a time")
		}
		s.next = c.now // the one that tries is the next to fail
	}
	if !c.store(s) || s.turn(&deadLetter{}, c.now) != 0 || s.turn(&deadLetter{}, c.now) != 0 {
		t.Error("others wait although one was stored")
	}
}

// An entry that is refused alone and tries while all fail leaves the turn to the next one.
func TestARefusedEntryGivesTheTurnBack(t *testing.T) {
	c, s := newClock(), &tries{}
	for range tolerated {
		c.fail(s, &deadLetter{}, errAll)
	}
	c.pass(longPause)
	if _, tried := c.fail(s, &deadLetter{}, errAlone); !tried {
		t.Fatal("it had to wait")
	}
	if !c.store(s) {
		t.Error("the next one has to wait")
	}
}

// A refused entry is tried again at growing intervals, and very many of them not more often than 50 times a second.
func TestRefusedEntriesWait(t *testing.T) {
	c, s := newClock(), &tries{}
	dls := make([]*deadLetter, 2000)
	for i := range dls {
		dls[i] = &deadLetter{}
	}
	for range longestAfter {
		for _, dl := range dls {
			c.fail(s, dl, errAlone)
		}
		c.pass(longPause)
	}
	tried := 0
	for range 600 { // a minute
		for _, dl := range dls {
			if s.turn(dl, c.now) == 0 {
				s.missed(dl, c.now, c.now, errAlone)
				tried++
			}
		}
		c.pass(100 * time.Millisecond)
	}
	if most := 2000 + 60*50; tried > most || tried < 2000 {
		t.Errorf("%d tries in a minute, want 2000 to %d", tried, most)
	}
}

// What is logged of a DLQ that takes some entries and not others: a failure every 30 s, and not that it is over.
func TestFailuresAreLoggedSeldom(t *testing.T) {
	c, s := newClock(), &tries{}
	said, over := 0, 0
	bad := &deadLetter{}
	for range 1200 { // five minutes
		now := c.pass(250 * time.Millisecond)
		if s.turn(bad, now) == 0 {
			s.missed(bad, now, now, errAlone)
			if s.saysFailure(bad, now, now, errAlone) {
				said++
			}
		}
		s.took(c.pass(0))
		if s.saysOver(c.now) {
			over++
		}
	}
	if said < 5 || said > 10 || over != 0 {
		t.Errorf("a failure was said %d times, its end %d times", said, over)
	}
	s.took(c.pass(quietFor + longPause))
	if !s.saysOver(c.now) || s.saysOver(c.now) {
		t.Error("the end is to be said once")
	}
}

// A try that began before another entry was stored says nothing of now.
func TestALateFailureIsNotLogged(t *testing.T) {
	c, s := newClock(), &tries{}
	began := c.now
	s.took(c.pass(time.Second))
	dl := &deadLetter{}
	s.missed(dl, began, c.pass(time.Second), errAll)
	if s.saysFailure(dl, began, c.now, errAll) || s.told {
		t.Error("it was said")
	}
	c.pass(time.Second)
	s.missed(dl, c.now, c.now, errAll)
	if !s.saysFailure(dl, c.now, c.now, errAll) {
		t.Error("the same entry failed again, and that was not said")
	}
}
