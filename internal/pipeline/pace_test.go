package pipeline

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// paced is a pipeline with nothing but a rate and a gate.
func paced(perSecond float64) *Pipeline {
	return &Pipeline{pace: newPace(perSecond), gate: newGate(breaker(), 16)}
}

// sent is when each of n requests may be sent, all waiting at a time, in the order in which they came.
func sent(t *testing.T, p *Pipeline, n int) []time.Duration {
	t.Helper()
	start, at := time.Now(), make([]time.Duration, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if !p.enter(t.Context(), &worker{}, entry{}) {
				t.Error("not let in")
			}
			at[i] = time.Since(start)
			p.gate.leave(uint64(i), passed, "")
		})
		synctest.Wait() // one comes after the other
	}
	all.Wait()
	return at
}

func TestPaceInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := sent(t, paced(10), 8)
		for i, d := range at {
			if want := time.Duration(i+1) * 100 * time.Millisecond; d != want {
				t.Errorf("request %d after %s, want %s", i, d, want)
			}
		}
	})
}

// TestPaceBelowOne holds that a rate may be a request in many seconds, and that nothing is saved up meanwhile but one.
func TestPaceBelowOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := paced(0.5)
		time.Sleep(time.Minute)
		if at := sent(t, p, 3); !slices.Equal(at, []time.Duration{0, 2 * time.Second, 4 * time.Second}) {
			t.Errorf("at %v", at)
		}
	})
}

// TestPaceOverStarts holds that a start gives nothing: however often there is one, the rate is not exceeded.
func TestPaceOverStarts(t *testing.T) {
	for _, perSecond := range []float64{0.5, 20, 5000} {
		synctest.Test(t, func(t *testing.T) {
			begin, count := time.Now(), 0
			for range 20 {
				p := paced(perSecond)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				for p.enter(ctx, &worker{}, entry{}) {
					p.gate.leave(1, passed, "")
					count++
				}
				cancel()
			}
			if most := perSecond * time.Since(begin).Seconds(); float64(count) > most {
				t.Errorf("%d at %g a second in %s", count, perSecond, time.Since(begin))
			}
			if perSecond > 1 && float64(count) < 0.9*perSecond*20 {
				t.Errorf("only %d at %g a second", count, perSecond)
			}
		})
	}
}

// TestPaceEndsWithAStop holds that who waits for the rate is told of a stop at once, and leaves nothing behind.
func TestPaceEndsWithAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := paced(0.001)
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if p.enter(ctx, &worker{}, entry{}) {
					t.Error("let in")
				}
			})
		}
		synctest.Wait()
		cancel()
		all.Wait()
		if d := time.Since(start); d != 0 || p.gate.inside != 0 {
			t.Errorf("after %s, %d are inside", d, p.gate.inside)
		}
	})
}

// TestPaceOfWhoGivesUp holds that a turn that is not used is the next one's.
func TestPaceOfWhoGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, start := newPace(0.1), time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if p.wait(ctx, nil) {
			t.Error("let in")
		}
		if !p.wait(t.Context(), nil) || time.Since(start) != 10*time.Second {
			t.Errorf("after %s", time.Since(start))
		}
	})
}

// TestPaceAndBreaker holds that those who wait for the rate when the breaker opens are not sent: there is one probe at a time, which
// counts, and does not wait for a turn that others have given up.
func TestPaceAndBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := paced(10) // the breaker opens with two failures, and probes after 1s, 2s, 4s
		start := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		var all sync.WaitGroup
		for m := range uint64(5) {
			all.Go(func() {
				if !p.enter(t.Context(), &worker{}, entry{}) {
					t.Error("not let in")
				}
				mu.Lock()
				at = append(at, time.Since(start))
				mu.Unlock()
				p.gate.leave(m, failed, "503")
			})
		}
		all.Wait()
		if at[0] != 100*time.Millisecond || at[1] != 200*time.Millisecond {
			t.Errorf("at %v", at)
		}
		for i, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			if d := at[i+2] - at[i+1]; d < wait*3/4 || d > wait+100*time.Millisecond {
				t.Errorf("probe %d after %s", i, d)
			}
		}
	})
}

// TestPaceOfAnotherTurn holds that a request that waits for another turn goes before the gate when the breaker opens, that it takes its turn
// among those that wait for their first, and that it gives up with its context.
func TestPaceOfAnotherTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, w, start := paced(10), &worker{}, time.Now()
		if !p.enter(t.Context(), w, entry{}) || p.anotherTurn(t.Context(), w) != nil || time.Since(start) != 200*time.Millisecond {
			t.Fatalf("after %s", time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if p.anotherTurn(ctx, w) == nil || w.turnedBack {
			t.Errorf("turned back %v by the end of its context", w.turnedBack)
		}
		done := make(chan error)
		go func() { done <- p.anotherTurn(t.Context(), w) }()
		synctest.Wait()
		for m := range uint64(2) {
			p.gate.inside++
			p.gate.leave(m, failed, "503")
		}
		if err := <-done; err == nil || !w.turnedBack {
			t.Errorf("%v, turned back %v by the breaker", err, w.turnedBack)
		}
		p.gate.exit()
		if !p.enter(t.Context(), w, entry{}) || w.turnedBack || p.gate.inside != 1 {
			t.Errorf("turned back %v, %d inside", w.turnedBack, p.gate.inside)
		}
	})
}
