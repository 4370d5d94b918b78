package policy_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/policy"
)

// TestLimitOnASharedMachine holds that with a breaker, and on a machine that others use too, most runs come near to the best fixed number.
func TestLimitOnASharedMachine(t *testing.T) {
	var runs, poor int
	for _, c := range simApps {
		for seed := range uint64(2) {
			fixed := fixedSim(c.app(), c.best, seed)
			if d, ok := fixed.app.(*dying); ok {
				d.away = 0
			}
			s := newSim(c.app(), 64, seed)
			fixed.shares(seed)
			s.shares(seed)
			best := fixed.run(2 * time.Minute)
			share := s.run(2*time.Minute) / best
			if runs++; share < .8 {
				poor++
				t.Logf("%s, seed %d: %.2f of the best", c.name, seed, share)
			}
			if share < .7 {
				t.Errorf("%s, seed %d: %.2f of the best", c.name, seed, share)
			}
		}
	}
	if poor*20 > runs {
		t.Errorf("%d of %d runs had less than 80 %% of the best", poor, runs)
	}
}

// TestLimitFollowsOnASharedMachine holds that there too it follows an app that changes.
func TestLimitFollowsOnASharedMachine(t *testing.T) {
	var runs, poor int
	for _, c := range simChanges {
		for seed := range uint64(5) {
			a := c.app()
			s := newSim(a, 64, seed)
			s.shares(seed)
			s.run(100 * time.Second)
			c.change(a)
			s.run(20 * time.Second)
			if runs++; s.run(10*time.Second) < .8*c.lowest {
				poor++
				t.Logf("%s, seed %d: the limit is %d", c.name, seed, s.allowed())
			}
		}
	}
	if poor*20 > runs {
		t.Errorf("%d of %d runs did not follow in 20s", poor, runs)
	}
}

// shares puts the sidecar and the app on a machine that others use too, with a breaker between them.
func (s *sim) shares(seed uint64) {
	s.noise = &noise{rnd: rand.New(rand.NewPCG(seed, 2)), jitter: .15, busy: .2, quiet: 2 * time.Second}
	s.gate = policy.NewBreaker(policy.BreakerConfig{Failures: 5, ProbeInterval: time.Second, ProbeMax: 30 * time.Second, Hold: time.Hour}, 64)
}

// noise is what others do to an app on the same machine: while they are busy all takes longer, and now and then nothing ends for a while.
type noise struct {
	rnd    *rand.Rand
	jitter float64       // of each time, on both sides
	busy   float64       // longer at most, for seconds
	quiet  time.Duration // between two stalls, on average

	factor      float64
	until       time.Duration // the factor holds
	stall, over time.Duration // the next one
}

// slower is how long takes what would take d on a machine of its own.
func (n *noise) slower(now, d time.Duration) time.Duration {
	if n == nil {
		return d
	}
	for now >= n.until {
		n.until += time.Duration(n.rnd.ExpFloat64() * float64(3*time.Second))
		n.factor = 1 + n.busy*max(1.5*n.rnd.Float64()-.5, 0)
	}
	return time.Duration(float64(d) * n.factor * (1 + n.jitter*(2*n.rnd.Float64()-1)))
}

// ends is when what would end at a time does. It must be asked for later and later times.
func (n *noise) ends(at time.Duration) time.Duration {
	if n == nil {
		return at
	}
	for at >= n.over {
		n.stall = n.over + time.Duration(n.rnd.ExpFloat64()*float64(n.quiet))
		n.over = n.stall + 50*ms + time.Duration(n.rnd.Float64()*float64(50*ms))
	}
	if at > n.stall {
		return n.over
	}
	return at
}
