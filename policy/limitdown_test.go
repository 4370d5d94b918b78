package policy_test

import (
	"testing"
	"time"
)

// TestLimitFollowsDownwards holds that the limit goes down soon where an app can do much less at a time than before, also on a machine that
// others use too: requests wait in the app meanwhile.
func TestLimitFollowsDownwards(t *testing.T) {
	for _, shared := range []bool{false, true} {
		var runs, late int
		for _, workers := range [][2]int{{40, 5}, {32, 4}, {60, 10}, {40, 20}, {8, 2}} {
			for seed := range uint64(8) {
				a := &pool{workers: workers[0], takes: 50 * ms}
				s := newSim(a, 64, seed)
				if shared {
					s.shares(seed)
				}
				s.run(100 * time.Second)
				a.workers, a.free = workers[1], nil
				changed := s.now
				for s.limit.Aim() > workers[1]*3/2 && s.now < changed+time.Minute {
					s.run(100 * ms)
				}
				if runs++; s.now > changed+24*time.Second {
					late++
					t.Logf("from %d workers to %d, shared %v, seed %d: %s", workers[0], workers[1], shared, seed, s.now-changed)
				}
			}
		}
		if !shared && late > 0 || late*2 > runs {
			t.Errorf("shared %v: %d of %d runs were late", shared, late, runs)
		}
	}
}
