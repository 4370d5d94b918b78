package policy_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/jetsidecar/jetsidecar/policy"
)

const ms = time.Millisecond

// seeds are how often a simulation is repeated with other random numbers.
const seeds = 2

// TestLimitFindsWhatAnAppTakes holds that the throughput comes near to that of the best fixed number, and where the limit ends.
func TestLimitFindsWhatAnAppTakes(t *testing.T) {
	for _, c := range simApps {

		t.Run(c.name, func(t *testing.T) {
			fixed := fixedSim(c.app(), c.best, 1).run(2 * time.Minute)
			for seed := range uint64(seeds) {
				s := newSim(c.app(), 64, seed)
				if x := s.run(2 * time.Minute); x < c.share*fixed {
					t.Errorf("seed %d: %.0f a second; %d at a time: %.0f", seed, x, c.best, fixed)
				}
				if mean := s.meanLimit(time.Minute); mean < c.lowest || mean > c.above {
					t.Errorf("seed %d: the limit is %.1f", seed, mean)
				}
			}
		})
	}
}

// TestLimitSparesAnAppThatDies holds that what kills an app is found without killing it again and again.
func TestLimitSparesAnAppThatDies(t *testing.T) {
	for seed := range uint64(seeds) {
		fixed := fixedSim(&dying{takes: 50 * ms, most: 20}, 20, seed).run(15 * time.Second)
		if x := newSim(&dying{takes: 50 * ms, away: time.Second, most: 20}, 64, seed).run(15 * time.Second); x < .79*fixed {
			t.Errorf("seed %d: %.0f a second; 20 at a time: %.0f", seed, x, fixed)
		}
	}
}

// TestLimitOpensGently holds that an app that breaks is asked for one request too many, not for a whole step, and that it is not broken
// again for a while where it is then away for long.
func TestLimitOpensGently(t *testing.T) {
	for seed := range uint64(5) {
		a := &dying{takes: 50 * ms, away: time.Second, most: 20}
		s := newSim(a, 64, seed)
		busiest := 0
		s.seen = func(s *sim) { busiest = max(busiest, len(s.at)+1) }
		s.run(15 * time.Second)
		if busiest > 21 || a.deaths > 1 {
			t.Errorf("seed %d: up to %d at a time, and %d deaths in 15s", seed, busiest, a.deaths)
		}
		s.run(2 * time.Minute)
		if a.deaths > 7 {
			t.Errorf("seed %d: %d deaths", seed, a.deaths)
		}
	}
}

// TestLimitOfAnAppThatHangs holds that it is known how many were too much also where nothing ends any more, and that they are not tried often.
func TestLimitOfAnAppThatHangs(t *testing.T) {
	for seed := range uint64(3) {
		a := &dying{takes: 50 * ms, hangs: 5 * time.Second, most: 20}
		s := newSim(a, 64, seed)
		s.run(2 * time.Minute)
		if n := s.allowed(); a.deaths > 3 || n < 18 || n > 20 {
			t.Errorf("seed %d: it hung %d times, the limit is %d", seed, a.deaths, n)
		}
	}
}

// TestLimitFollowsAnApp holds that the limit follows an app that changes.
func TestLimitFollowsAnApp(t *testing.T) {
	for _, c := range simChanges {

		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(seeds) {
				a := c.app()
				s := newSim(a, 64, seed)
				s.run(100 * time.Second)
				c.change(a)
				s.run(c.within)
				if x := s.run(10 * time.Second); x < c.lowest || x > c.above {
					t.Errorf("seed %d: %.0f a second, the limit is %d", seed, x, s.allowed())
				}
			}
		})
	}
}

// TestLimitOfASlowApp holds that an app that needs seconds a request is learned in some fifteen of them.
func TestLimitOfASlowApp(t *testing.T) {
	for seed := range uint64(5) {
		s := newSim(&steady{takes: 5 * time.Second, spread: .2}, 64, seed)
		s.run(75 * time.Second)
		if n := s.allowed(); n < 60 {
			t.Errorf("seed %d: %d after 75s", seed, n)
		}
	}
}

// TestLimitAfterAnOutage holds that one shrinks the limit to very few, and that it is back soon.
func TestLimitAfterAnOutage(t *testing.T) {
	a := &steady{takes: 50 * ms, spread: .2}
	s := newSim(a, 64, 1)
	s.run(time.Minute)
	a.sheds = 1
	s.run(time.Minute)
	if n := s.allowed(); n > 3 {
		t.Errorf("%d in an outage", n)
	}
	a.sheds = 0
	s.run(5 * time.Second)
	if n := s.allowed(); n < 60 {
		t.Errorf("%d 5s after it", n)
	}
}

// TestLimitThatIsNotReached holds that a limit does not grow where it is not used, and does with a backlog.
func TestLimitThatIsNotReached(t *testing.T) {
	s := newSim(&steady{takes: 50 * ms}, 64, 1)
	s.every = 200 * ms // a quarter of a request in flight
	s.run(10 * time.Minute)
	if s.most > 6 {
		t.Errorf("grew to %d", s.most)
	}
	s.every, s.queued = 0, 0
	s.run(10 * time.Second)
	if n := s.allowed(); n < 60 {
		t.Errorf("%d with a backlog", n)
	}
}

// TestLimitMessageFaults holds that answers that blame the message do not shrink it.
func TestLimitMessageFaults(t *testing.T) {
	s := newSim(&steady{takes: 20 * ms, spread: .2, rejected: 1}, 16, 1)
	s.run(time.Minute)
	if n := s.allowed(); n < 12 {
		t.Errorf("%d with nothing but 4xx", n)
	}
}

// TestLimitStaysInBounds holds that, whatever happens, the limit is from one to the most, and that a good app has it back at the most.
func TestLimitStaysInBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 16).Draw(t, "most")
		a := &chaos{rnd: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))}
		a.shares = [3]float64{rapid.Float64Range(0, 1).Draw(t, "silent"), rapid.Float64Range(0, 1).Draw(t, "failed"), rapid.Float64Range(0, 1).Draw(t, "overloaded")}
		s := newSim(a, most, 1)
		s.seen = func(s *sim) {
			if n := s.limit.Now(); n < 1 || n > most {
				t.Fatalf("%d of %d", n, most)
			}
		}
		s.run(time.Duration(rapid.Int64Range(0, int64(5*time.Second)).Draw(t, "for")))
		s.app = &steady{takes: 100 * ms}
		s.run(2 * time.Minute)
		best := s.allowed()
		for range 20 { // it may be trying a smaller one just now
			s.run(197 * ms)
			best = max(best, s.allowed())
		}
		if best < most*9/10 {
			t.Fatalf("%d of %d with a good app", best, most)
		}
	})
}

// chaos answers anything after any time.
type chaos struct {
	rnd    *rand.Rand
	shares [3]float64
}

func (a *chaos) serve(s *sim, _ int) (time.Duration, time.Duration, policy.Signal) {
	takes := time.Duration(a.rnd.ExpFloat64() * float64(50*ms))
	for i, share := range a.shares {
		if a.rnd.Float64() < share {
			return s.now + takes, takes, []policy.Signal{policy.Silent, policy.Failed, policy.Overloaded}[i]
		}
	}
	return s.now + takes, takes, policy.Passed
}

func TestOverloaded(t *testing.T) {
	answered := func(status int) policy.Outcome { return policy.Outcome{Kind: policy.Answered, Status: status} }
	wanted := answered(503)
	wanted.Action = policy.DLQ
	table, err := policy.NewStatusTable(policy.StatusConfig{DLQ: []string{"503"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		table   *policy.StatusTable
		outcome policy.Outcome
		want    bool
	}{
		{"429", nil, answered(429), true},
		{"502", nil, answered(502), true},
		{"503", nil, answered(503), true},
		{"504", nil, answered(504), true},
		{"no answer", nil, policy.Outcome{Kind: policy.NoAnswer}, true},
		{"200", nil, answered(200), false},
		{"404", nil, answered(404), false},
		{"422", nil, answered(422), false},
		{"500", nil, answered(500), false},
		{"503 that the app means otherwise", nil, wanted, false},
		{"503 that the user means otherwise", table, answered(503), false},
		{"handed back", nil, policy.Outcome{Kind: policy.HandedBack}, false},
		{"undeliverable", nil, policy.Outcome{Kind: policy.Undeliverable}, false},
	} {
		p := policy.Policy{Status: c.table}
		if got := p.Overloaded(c.outcome); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}
