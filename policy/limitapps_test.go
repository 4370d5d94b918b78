package policy_test

import (
	"time"

	"github.com/jetsidecar/jetsidecar/policy"
)

// simApps are the kinds of apps, and what is found out of each.
var simApps = []struct {
	name          string
	app           func() simApp
	best          int     // the best fixed number
	share         float64 // of its throughput, in the first two minutes
	lowest, above float64 // the mean of the limit after that
}{
	{"503 above 20", func() simApp { return &steady{takes: 50 * ms, spread: .2, most: 20, refuses: ms} }, 20, .95, 18, 21},
	{"slow 503 above 20", func() simApp { return &steady{takes: 50 * ms, spread: .2, most: 20, refuses: 50 * ms} }, 20, .95, 18, 21},
	{"slow app, 503 above 20", func() simApp { return &steady{takes: time.Second, spread: .2, most: 20, refuses: time.Second} }, 20, .8, 17, 21},
	{"slower than linear above 20", func() simApp { return &thrashing{50 * ms, 20, 2} }, 20, .95, 18, 22},
	{"stuck above 20", func() simApp { return &thrashing{50 * ms, 20, 10} }, 20, .8, 18, 22},
	{"dead for 1s above 20", func() simApp { return &dying{takes: 50 * ms, away: time.Second, most: 20} }, 20, .9, 18, 21},
	{"dead for 3s above 20", func() simApp { return &dying{takes: 50 * ms, away: 3 * time.Second, most: 20} }, 20, .85, 18, 21},
	{"one worker", func() simApp { return &pool{workers: 1, takes: 20 * ms} }, 1, .95, 1, 2},
	{"four workers", func() simApp { return &pool{workers: 4, takes: 20 * ms} }, 4, .95, 3.5, 6},
	{"20 workers", func() simApp { return &pool{workers: 20, takes: 20 * ms} }, 20, .95, 18, 26},
	{"20 workers, all sorts of work", func() simApp { return &pool{workers: 20, takes: 20 * ms, random: true} }, 64, .85, 14, 40},
	{"no limit", func() simApp { return &steady{takes: 50 * ms, spread: .2} }, 64, .95, 60, 64},
	{"no limit, 1s", func() simApp { return &steady{takes: time.Second, spread: .5} }, 64, .85, 55, 64},
	{"1 % take 100 times as long", func() simApp { return &steady{takes: 20 * ms, spread: .2, slow: .01} }, 64, .9, 55, 64},
	{"half are 4xx", func() simApp { return &steady{takes: 60 * ms, spread: .2, rejected: .5} }, 64, .9, 55, 64},
	{"5 % are 503", func() simApp { return &steady{takes: 60 * ms, spread: .2, sheds: .05} }, 64, .9, 50, 64},
}

// simChanges are ways in which an app changes, and what is done after that.
var simChanges = []struct {
	name          string
	app           func() simApp
	change        func(simApp)
	within        time.Duration
	lowest, above float64 // what passes in the ten seconds after that
}{
	{"more workers", func() simApp { return &pool{workers: 4, takes: 50 * ms} },
		func(a simApp) { a.(*pool).workers = 32 }, 15 * time.Second, 520, 650},
	{"fewer workers", func() simApp { return &pool{workers: 32, takes: 50 * ms} },
		func(a simApp) { a.(*pool).workers = 4 }, 15 * time.Second, 72, 82},
	{"faster", func() simApp { return &pool{workers: 8, takes: 50 * ms} },
		func(a simApp) { a.(*pool).takes = 5 * ms }, time.Second, 1500, 1700},
	{"takes more", func() simApp { return &steady{takes: 50 * ms, most: 20, refuses: ms} },
		func(a simApp) { a.(*steady).most = 60 }, 20 * time.Second, 1000, 1300},
	{"takes less", func() simApp { return &steady{takes: 50 * ms, most: 60, refuses: 50 * ms} },
		func(a simApp) { a.(*steady).most = 20 }, 5 * time.Second, 340, 410},
	{"slower by itself", func() simApp { return &steady{takes: 20 * ms, spread: .2} },
		func(a simApp) { a.(*steady).takes = 400 * ms }, 10 * time.Second, 140, 170},
}

// about is a time, of which the fraction spread is random on both sides.
func (s *sim) about(d time.Duration, spread float64) time.Duration {
	return s.noise.slower(s.now, time.Duration(float64(d)*(1+spread*(2*s.rnd.Float64()-1))))
}

// steady takes the same time whatever it has to do, up to a most, above which it answers 503 after a time.
type steady struct {
	takes    time.Duration
	spread   float64
	most     int           // 0: no limit
	refuses  time.Duration // how long a 503 takes
	slow     float64       // so many take a hundred times as long
	rejected float64       // so many are answered 4xx at once
	sheds    float64       // so many 503, for no reason
}

func (a *steady) serve(s *sim, inFlight int) (time.Duration, time.Duration, policy.Signal) {
	takes := s.about(a.takes, a.spread)
	p := s.rnd.Float64()
	switch {
	case a.most > 0 && inFlight > a.most:
		return s.now + a.refuses, a.refuses, policy.Overloaded
	case p < a.slow:
		takes *= 100
	case p < a.slow+a.rejected:
		takes = time.Millisecond
	case p < a.slow+a.rejected+a.sheds:
		return s.now + takes, takes, policy.Overloaded
	}
	return s.now + takes, takes, policy.Passed
}

// pool has so many workers, each for one request at a time; the others wait.
type pool struct {
	workers int
	takes   time.Duration
	random  bool // exponentially distributed
	free    []time.Duration
}

func (a *pool) serve(s *sim, _ int) (time.Duration, time.Duration, policy.Signal) {
	for len(a.free) < a.workers {
		a.free = append(a.free, 0)
	}
	first := 0
	for i, t := range a.free[:a.workers] {
		if t < a.free[first] {
			first = i
		}
	}
	takes := s.about(a.takes, 0.1)
	if a.random {
		takes = s.noise.slower(s.now, time.Duration(s.rnd.ExpFloat64()*float64(a.takes)))
	}
	end := max(a.free[first], s.now) + takes
	a.free[first] = end
	return end, end - s.now, policy.Passed
}

// thrashing becomes slower than linear above a most.
type thrashing struct {
	takes time.Duration
	most  int
	power int
}

func (a *thrashing) serve(s *sim, inFlight int) (time.Duration, time.Duration, policy.Signal) {
	takes := s.about(a.takes, 0.1)
	if inFlight > a.most {
		for range a.power {
			takes = takes * time.Duration(inFlight) / time.Duration(a.most)
		}
	}
	return s.now + takes, takes, policy.Passed
}

// dying ends above a most, with all it has, and is back after a time; until then a request waits for a connection, or with a breaker fails.
type dying struct {
	takes, away time.Duration
	most        int
	hangs       time.Duration // before it ends
	deaths      int
	back        time.Duration
	died        bool
}

func (a *dying) serve(s *sim, inFlight int) (time.Duration, time.Duration, policy.Signal) {
	takes := s.about(a.takes, 0.1)
	if s.now < a.back && s.gate != nil {
		return s.now + ms, ms, policy.Overloaded
	}
	if s.now < a.back {
		return a.back + takes, takes, policy.Passed
	}
	if inFlight > a.most {
		a.back, a.died, a.deaths = s.now+a.hangs+a.away, true, a.deaths+1
		return s.now, 0, policy.Overloaded
	}
	return s.now + takes, takes, policy.Passed
}
