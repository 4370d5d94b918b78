package policy_test

import (
	"testing"
	"time"
)

// TestLimitFollowsUpwards holds that the limit is soon at what an app can take that can do more at a time than before, whenever that comes: just
// after a try as well as just before one.
func TestLimitFollowsUpwards(t *testing.T) {
	for _, c := range []struct {
		workers [2]int
		takes   time.Duration
		within  time.Duration
	}{
		{[2]int{6, 64}, 50 * ms, 6 * time.Second},
		{[2]int{4, 32}, 50 * ms, 6 * time.Second},
		{[2]int{20, 40}, 50 * ms, 6 * time.Second},
		{[2]int{20, 60}, 20 * ms, 4 * time.Second},
		{[2]int{1, 64}, 50 * ms, 9 * time.Second}, // which was slow to measure
	} {
		for at := 8 * time.Second; at < 30*time.Second; at += 2900 * ms {
			for seed := range uint64(6) {
				a := &pool{workers: c.workers[0], takes: c.takes}
				s := newSim(a, 64, seed)
				s.run(at)
				a.workers = c.workers[1]
				for s.limit.Aim() < c.workers[1]*4/5 && s.now < at+time.Minute {
					s.run(100 * ms)
				}
				if s.now > at+c.within {
					t.Errorf("from %d workers to %d after %s, seed %d: %s", c.workers[0], c.workers[1], at, seed, s.now-at)
				}
			}
		}
	}
}
