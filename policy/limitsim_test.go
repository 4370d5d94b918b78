package policy_test

import (
	"container/heap"
	"math/rand/v2"
	"time"

	"github.com/jetsidecar/jetsidecar/policy"
)

// simApp is an app in simulated time. serve is told how many requests it has now, the new one included, and says when that ends and how.
type simApp interface {
	serve(s *sim, inFlight int) (ends time.Duration, took time.Duration, signal policy.Signal)
}

// sim is a sidecar with an endless backlog before an app.
type sim struct {
	app    simApp
	limit  *policy.Limit // nil: fixed
	fixed  int           // requests at a time
	rnd    *rand.Rand
	every  time.Duration // between arrivals; 0: an endless backlog
	now    time.Duration
	events simEvents
	at     map[*simRequest]bool // the app
	passed int
	queued int        // arrived, and not sent
	most   int        // the largest limit so far
	seen   func(*sim) // called when a request has ended
}

type simRequest struct {
	ends   time.Duration
	took   time.Duration
	signal policy.Signal
	ticket policy.Ticket
	index  int
	tick   bool
}

type simEvents []*simRequest

func (e simEvents) Len() int           { return len(e) }
func (e simEvents) Less(i, j int) bool { return e[i].ends < e[j].ends }
func (e simEvents) Swap(i, j int)      { e[i], e[j] = e[j], e[i]; e[i].index, e[j].index = i, j }
func (e *simEvents) Push(x any)        { r := x.(*simRequest); r.index = len(*e); *e = append(*e, r) }
func (e *simEvents) Pop() any {
	old := *e
	r := old[len(old)-1]
	*e = old[:len(old)-1]
	return r
}

func newSim(app simApp, most int, seed uint64) *sim {
	return &sim{app: app, limit: policy.NewLimit(most), rnd: rand.New(rand.NewPCG(seed, 1)), at: map[*simRequest]bool{}}
}

func fixedSim(app simApp, fixed int, seed uint64) *sim {
	s := newSim(app, fixed, seed)
	s.limit, s.fixed = nil, fixed
	return s
}

func (s *sim) clock() time.Time { return time.Unix(1e9, 0).Add(s.now) }

func (s *sim) allowed() int {
	if s.limit == nil {
		return s.fixed
	}
	return s.limit.Now()
}

// run goes on for some time, and returns how many passed a second.
func (s *sim) run(d time.Duration) float64 {
	from, end := s.passed, s.now+d
	if s.every > 0 && len(s.events) == 0 {
		heap.Push(&s.events, &simRequest{ends: s.now, tick: true})
	}
	s.fill()
	for len(s.events) > 0 && s.events[0].ends <= end {
		r := heap.Pop(&s.events).(*simRequest)
		s.now = r.ends
		switch {
		case r.tick && s.every == 0: // the backlog has come
		case r.tick:
			s.queued++
			heap.Push(&s.events, &simRequest{ends: s.now + time.Duration(s.rnd.ExpFloat64()*float64(s.every)), tick: true})
		default:
			s.end(r)
		}
		s.fill()
	}
	s.now = end
	return float64(s.passed-from) / d.Seconds()
}

func (s *sim) fill() {
	for len(s.at) < s.allowed() && (s.every == 0 || s.queued > 0) {
		s.queued--
		r := &simRequest{}
		if s.limit != nil {
			r.ticket = s.limit.Start(s.clock())
		}
		s.at[r] = true
		r.ends, r.took, r.signal = s.app.serve(s, len(s.at))
		heap.Push(&s.events, r)
		if s.fatal(r) {
			s.kill()
		}
	}
}

// fatal requests end all others too.
func (s *sim) fatal(r *simRequest) bool {
	d, ok := s.app.(*dying)
	return ok && d.died && r.ends == s.now
}

func (s *sim) kill() {
	for r := range s.at {
		r.ends, r.signal = s.now, policy.Overloaded
		heap.Fix(&s.events, r.index)
	}
	s.app.(*dying).died = false
}

func (s *sim) end(r *simRequest) {
	delete(s.at, r)
	if r.signal == policy.Passed {
		s.passed++
	}
	if s.limit != nil {
		s.limit.Done(s.clock(), r.ticket, r.took, r.signal)
		s.most = max(s.most, s.limit.Now())
	}
	if s.seen != nil {
		s.seen(s)
	}
}

// meanLimit goes on for some time, and returns the mean of the limit.
func (s *sim) meanLimit(d time.Duration) float64 {
	const steps = 200
	sum := 0
	for range steps {
		s.run(d / steps)
		sum += s.allowed()
	}
	return float64(sum) / steps
}

// about is a time, of which the fraction spread is random on both sides.
func (s *sim) about(d time.Duration, spread float64) time.Duration {
	return time.Duration(float64(d) * (1 + spread*(2*s.rnd.Float64()-1)))
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
		takes = time.Duration(s.rnd.ExpFloat64() * float64(a.takes))
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

// dying ends above a most, with all it has, and is back after a time; until then a request waits for a connection.
type dying struct {
	takes, away time.Duration
	most        int
	back        time.Duration
	died        bool
}

func (a *dying) serve(s *sim, inFlight int) (time.Duration, time.Duration, policy.Signal) {
	takes := s.about(a.takes, 0.1)
	if s.now < a.back {
		return a.back + takes, takes, policy.Passed
	}
	if inFlight > a.most {
		a.back, a.died = s.now+a.away, true
		return s.now, 0, policy.Overloaded
	}
	return s.now + takes, takes, policy.Passed
}
