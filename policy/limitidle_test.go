package policy_test

import (
	"testing"
	"time"
)

// TestLimitAfterIdleTime holds that what was seen before a time in which there was nothing to do, or during it, does not hold up the search.
func TestLimitAfterIdleTime(t *testing.T) {
	for _, every := range []time.Duration{time.Hour, 100 * ms, time.Second} {
		for seed := range uint64(3) {
			a := &pool{workers: 4, takes: 20 * ms}
			s := newSim(a, 64, seed)
			s.run(100 * time.Second)
			s.every, s.queued = every, 0
			s.run(20 * time.Minute)
			s.every, a.workers = 0, 32
			s.run(20 * time.Second)
			if x := s.run(10 * time.Second); x < 500 {
				t.Errorf("a request every %s, seed %d: %.0f a second after it, the limit is %d", every, seed, x, s.allowed())
			}
		}
	}
}

// TestLimitAfterIdleTimeSparesTheApp holds that the answers of a quiet time do not hide that the app is overloaded now.
func TestLimitAfterIdleTimeSparesTheApp(t *testing.T) {
	for seed := range uint64(3) {
		a := &steady{takes: 50 * ms, spread: .2}
		s := newSim(a, 64, seed)
		s.run(20 * time.Second)
		s.every, s.queued = 100*ms, 0
		s.run(20 * time.Minute)
		s.every, a.sheds = 5*ms, .5
		s.run(5 * time.Second)
		if n := s.allowed(); n > 3 {
			t.Errorf("seed %d: %d while half are answered 503", seed, n)
		}
	}
}

// TestLimitIdleTimeIsNoOutage holds that the time in which there is nothing to do is not taken for one in which the app was away.
func TestLimitIdleTimeIsNoOutage(t *testing.T) {
	for seed := range uint64(3) {
		a := &steady{takes: 50 * ms, most: 20, refuses: ms}
		s := newSim(a, 64, seed)
		s.run(30 * time.Second)
		for s.allowed() != 21 { // a try that will be too much
			s.run(ms)
		}
		for s.allowed() == 21 {
			s.run(ms)
		}
		s.every, s.queued = 10*time.Second, 0
		s.run(10 * time.Minute)
		s.every, a.most = 0, 60
		s.run(20 * time.Second)
		if x := s.run(10 * time.Second); x < 1000 {
			t.Errorf("seed %d: %.0f a second, the limit is %d", seed, x, s.allowed())
		}
	}
}
