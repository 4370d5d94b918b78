package pipeline

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jetsidecar/jetsidecar/policy"
)

var (
	failed = policy.Decision{Verdict: policy.Retry, Delay: time.Second}
	atEnd  = policy.Decision{Verdict: policy.DLQ, Reason: policy.ReasonMaxDeliver}
	passed = policy.Decision{Verdict: policy.Ack}
	void   = policy.Decision{Verdict: policy.DLQ, Reason: policy.ReasonUndeliverable}
)

func breaker() policy.BreakerConfig {
	return policy.BreakerConfig{Failures: 2, ProbeInterval: time.Second, ProbeMax: 4 * time.Second, Hold: time.Minute}
}

func mustEnter(t *testing.T, g *gate, alone bool) {
	t.Helper()
	if err := g.enter(t.Context(), entry{alone: alone}); err != nil {
		t.Fatal(err)
	}
}

// opened is a gate whose breaker was opened by messages 1 and 2.
func opened(t *testing.T) *gate {
	t.Helper()
	g := newGate(breaker(), 4)
	mustEnter(t, g, false)
	mustEnter(t, g, false)
	if g.leave(1, atEnd, "503") {
		t.Fatal("a message stays while the breaker is closed")
	}
	g.leave(2, failed, "503")
	return g
}

func TestGateLetsOneProbeInAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := opened(t)
		start, inside, most := time.Now(), 0, 0
		var mu sync.Mutex
		var all sync.WaitGroup
		var entered []time.Duration
		for m := range uint64(5) {
			all.Go(func() {
				mustEnter(t, g, false)
				mu.Lock()
				inside++
				most = max(most, inside)
				entered = append(entered, time.Since(start))
				mu.Unlock()
				time.Sleep(10 * time.Millisecond) // at the app
				mu.Lock()
				inside--
				mu.Unlock()
				g.leave(m+10, failed, "503")
			})
		}
		all.Wait()
		if most != 1 {
			t.Errorf("%d requests at a time", most)
		}
		for i, d := range entered {
			least := []time.Duration{750 * time.Millisecond, 1500 * time.Millisecond, 3 * time.Second, 3 * time.Second, 3 * time.Second}[i]
			if i > 0 {
				d -= entered[i-1]
			}
			if d < least {
				t.Errorf("probe %d after %s", i, d)
			}
		}
	})
}

func TestGateHoldsMessagesAtTheirLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := opened(t)
		mustEnter(t, g, false)
		if !g.leave(3, atEnd, "503") {
			t.Error("a message at its limit does not stay")
		}
		mustEnter(t, g, false)
		if g.leave(4, failed, "503") {
			t.Error("a message below its limit stays")
		}
		time.Sleep(time.Minute)
		mustEnter(t, g, false)
		if g.leave(3, atEnd, "503") {
			t.Error("it stays after hold")
		}
	})
}

// The app is probed with a message that was not tried before, while there is one: those that failed may be the cause.
func TestGateProbesWithFreshMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := opened(t)
		var order []string
		var mu sync.Mutex
		var all sync.WaitGroup
		probe := func(name string, e entry, d policy.Decision) {
			all.Go(func() {
				if err := g.enter(t.Context(), e); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				g.leave(9, d, "503")
			})
		}
		for range 5 {
			probe("tried", entry{}, failed)
		}
		synctest.Wait()
		probe("fresh", entry{fresh: true}, failed)
		synctest.Wait()
		probe("fresh", entry{fresh: true}, failed)
		all.Wait()
		if len(order) != 7 || order[0] != "fresh" || order[1] != "fresh" {
			t.Errorf("order %v", order)
		}
	})
}

// One that must be at the app alone and fresh ones do not wait for each other while the breaker is open.
func TestGateProbesBesideOneThatMustBeAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := opened(t)
		var order []string
		var mu sync.Mutex
		var all sync.WaitGroup
		come := func(name string, e entry) {
			all.Go(func() {
				if e.alone {
					g.wantAlone()
					defer g.notAlone()
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				if g.enter(ctx, e) != nil {
					t.Error(name + " never enters")
					return
				}
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				g.leave(9, failed, "503")
			})
		}
		come("alone", entry{alone: true})
		come("tried", entry{})
		come("fresh", entry{fresh: true})
		come("fresh", entry{fresh: true})
		all.Wait()
		if got := strings.Join(order, " "); got != "fresh fresh alone tried" {
			t.Errorf("order %s", got)
		}
	})
}

// While one must be at the app alone nothing is pulled; with the breaker open only while it is there, so that another message can
// come and close it.
func TestGateKeepsOneAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := newGate(breaker(), 4)
		closed.wantAlone()
		if !closed.keepsAlone() {
			t.Error("others may be pulled while one waits to be alone")
		}
		g := opened(t)
		var told []bool
		g.onAlone = func() { told = append(told, g.keepsAlone()) }
		g.ready = func(context.Context) error {
			if len(told) == 2 {
				return errors.New("not ready")
			}
			return nil
		}
		g.wantAlone()
		mustEnter(t, g, true)
		g.leave(2, failed, "503")
		g.notAlone()
		if want := []bool{false, true, false, true, false}; !slices.Equal(told, want) {
			t.Errorf("kept alone: %v, want %v: waits, enters, is put off, enters again, is done", told, want)
		}
	})
}

func TestGateClosesWithTheFirstThatPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []bool
		g := opened(t)
		g.onChange = func(open bool, since time.Time, why string) {
			changes = append(changes, open)
			if time.Since(since) < time.Second/2 || why != "503" {
				t.Errorf("open since %s, %q", since, why)
			}
		}
		mustEnter(t, g, false)
		g.leave(2, passed, "")
		if len(changes) != 1 || changes[0] {
			t.Errorf("changes %v", changes)
		}
		mustEnter(t, g, false)
		if wait, _, _ := g.tryEnter(time.Now(), entry{}); wait == 0 {
			t.Error("two at a time right after it closed")
		}
	})
}

func TestGateIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := opened(t)
		if !g.idle() {
			t.Error("nobody is there, and it is not idle")
		}
		var waiting sync.WaitGroup
		waiting.Go(func() { mustEnter(t, g, false) })
		synctest.Wait()
		if g.idle() {
			t.Error("idle with a message that waits")
		}
		waiting.Wait()
		if g.idle() {
			t.Error("idle with a message at the app")
		}
		g.leave(3, passed, "")
	})
}

func TestGateProbesReadyFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := opened(t)
		asked := 0
		g.ready = func(context.Context) error {
			if asked++; asked < 3 {
				return errors.New("not ready")
			}
			return nil
		}
		start := time.Now()
		mustEnter(t, g, false)
		if d := time.Since(start); asked != 3 || d < 750*time.Millisecond+1500*time.Millisecond+3*time.Second {
			t.Errorf("asked %d times in %s", asked, d)
		}
		g.leave(2, passed, "")
	})
}

func TestGateAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(breaker(), 4)
		mustEnter(t, g, false) // somebody is at the app
		g.wantAlone()
		var all sync.WaitGroup
		var order []string
		var mu sync.Mutex
		note := func(s string) { mu.Lock(); defer mu.Unlock(); order = append(order, s) }
		all.Go(func() {
			mustEnter(t, g, true)
			note("alone")
			time.Sleep(time.Second)
			note("alone done")
			g.leave(7, passed, "")
			g.notAlone()
		})
		all.Go(func() {
			time.Sleep(time.Millisecond)
			mustEnter(t, g, false)
			note("other")
			g.leave(8, passed, "")
		})
		time.Sleep(time.Second)
		note("first leaves")
		g.leave(6, passed, "")
		all.Wait()
		if got := order; len(got) != 4 || got[0] != "first leaves" || got[1] != "alone" || got[2] != "alone done" || got[3] != "other" {
			t.Errorf("order %v", got)
		}
	})
}

func TestGateEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := opened(t)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		if err := g.enter(ctx, entry{}); err == nil {
			t.Error("entered")
		}
		if g.waiting != 0 || g.inside != 0 {
			t.Errorf("%d wait, %d are inside", g.waiting, g.inside)
		}
		if g = newGate(breaker(), 4); g.enter(ctx, entry{}) == nil || g.inside != 0 {
			t.Error("entered a gate with room after the end")
		}
	})
}

// A message that is not to be sent any more leaves the gate soon, though nothing changes there.
func TestGateIsLeftByWhatIsNotWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := opened(t)
		mustEnter(t, g, false) // the probe, which takes its time
		since := time.Now()
		err := g.enter(t.Context(), entry{unwanted: func() bool { return time.Since(since) > time.Minute }})
		if took := time.Since(since); !errors.Is(err, errUnwanted) || took > time.Minute+2*askEvery {
			t.Errorf("%v after %s", err, took)
		}
		if g.waiting != 0 || g.inside != 1 {
			t.Errorf("%d wait, %d are inside", g.waiting, g.inside)
		}
	})
}

// An app is asked whether it is ready as often as it would be tried, where there is nothing to try it with, and never beside a message.
func TestGateAsksAnAppThatNothingComesFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := opened(t)
		start := time.Now()
		var mu sync.Mutex
		var asked []time.Duration
		var ready bool
		var halves int
		g.onReady = func() { mu.Lock(); halves++; mu.Unlock() }
		g.drained = func(context.Context) bool { return false }
		g.ready = func(context.Context) error {
			if g.idle() {
				t.Error("asked without a place")
			}
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, time.Since(start))
			if ready {
				return nil
			}
			return errors.New("not yet")
		}
		after := func(d time.Duration) (all []time.Duration, half int) {
			time.Sleep(d)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(asked), halves
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go g.watch(ctx)

		all, half := after(20 * time.Second)
		if n := len(all); n < 5 || n > 8 || all[0] < 750*time.Millisecond || all[n-1]-all[n-2] < 3*time.Second || half != 0 {
			t.Fatalf("asked at %v, %d times half open", all, half)
		}
		mu.Lock()
		ready = true
		mu.Unlock()
		if _, half := after(20 * time.Second); half != 1 || !g.halfOpen() {
			t.Fatalf("half open %v, told %d times", g.halfOpen(), half)
		}
		came := time.Now()
		mustEnter(t, g, false)
		if time.Since(came) != 0 {
			t.Errorf("a message waited for %s", time.Since(came))
		}
		before, _ := after(0)
		if all, _ := after(time.Minute); len(all) != len(before) {
			t.Error("asked while a message is at the app")
		}
		g.leave(3, failed, "503")
		if open, since, _ := g.state(); !open || !since.Equal(start) {
			t.Errorf("open %v since %s", open, since)
		}
		if g.halfOpen() {
			t.Error("half open after a failure")
		}
		mustEnter(t, g, false)
		g.leave(4, passed, "")
		before, _ = after(0)
		all, _ = after(time.Hour)
		if open, _, _ := g.state(); open || len(all) != len(before) {
			t.Errorf("open %v, asked %d times more", open, len(all)-len(before))
		}
	})
}

// A message of which no request can be made says nothing of the app: it is no verdict between those that fail, and does not close the breaker.
func TestGateLearnsNothingOfWhatTheAppDidNotSee(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(breaker(), 4)
		for m, d := range []policy.Decision{failed, void, failed, void} {
			mustEnter(t, g, false)
			if g.leave(uint64(m), d, "503") {
				t.Error("a message stays")
			}
		}
		if !g.isOpen() {
			t.Error("closed with an app that failed each message it saw")
		}
	})
}

// An outage after the app was ready, with nothing left for it, for as long as hold is a new one: it is told of, with its own cause, and holds.
func TestGateOpensAnew(t *testing.T) {
	for _, byPath := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := opened(t)
			var bad error
			var mu sync.Mutex
			g.drained = func(context.Context) bool { return true }
			g.ready = func(context.Context) error { mu.Lock(); defer mu.Unlock(); return bad }
			told := 0
			g.onChange = func(open bool, since time.Time, why string) {
				if told++; !open || !since.Equal(time.Now()) || why != "500" {
					t.Errorf("open %v since %s: %s", open, since, why)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			var watching sync.WaitGroup
			watching.Go(func() { g.watch(ctx) })
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if !g.halfOpen() {
				t.Fatal("not half open")
			}
			began := time.Now()
			if byPath {
				mu.Lock()
				bad = errors.New("500")
				mu.Unlock()
				time.Sleep(5 * time.Second)
				synctest.Wait()
				mu.Lock()
				bad = nil
				mu.Unlock()
			}
			mustEnter(t, g, false)
			if !g.leave(3, atEnd, "500") {
				t.Error("a message at its limit does not stay")
			}
			if open, since, why := g.state(); !open || since.Before(began) || why != "500" {
				t.Errorf("open %v since %s: %s", open, since, why)
			}
			if want := map[bool]int{false: 1, true: 0}[byPath]; told != want {
				t.Errorf("told %d times, want %d", told, want)
			}
			cancel()
			watching.Wait()
		})
	}
}
