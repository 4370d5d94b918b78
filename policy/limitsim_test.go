package policy_test

import (
	"cmp"
	"container/heap"
	"maps"
	"math/rand/v2"
	"slices"
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
	noise  *noise          // nil: the app has a machine of its own
	gate   *policy.Breaker // nil: none
	sent   uint64          // requests
	every  time.Duration   // between arrivals; 0: an endless backlog
	now    time.Duration
	events simEvents
	at     map[*simRequest]bool // the app
	passed int
	queued int        // arrived, and not sent
	ticks  bool       // there is an event when the next one arrives
	looks  bool       // there is an event when the breaker may let one in
	most   int        // the largest limit so far
	seen   func(*sim) // called when a request has ended
}

type simRequest struct {
	ends   time.Duration
	took   time.Duration
	signal policy.Signal
	ticket policy.Ticket
	number uint64
	index  int
	probe  bool // of an open breaker
	tick   bool // no request: one arrives
	look   bool // no request: the breaker may let one in
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
	if s.every > 0 && !s.ticks {
		s.ticks = true
		heap.Push(&s.events, &simRequest{ends: s.now, tick: true})
	}
	s.fill()
	for len(s.events) > 0 && s.events[0].ends <= end {
		r := heap.Pop(&s.events).(*simRequest)
		if to := s.noise.ends(r.ends); !r.tick && !r.look && to > r.ends {
			r.took += to - r.ends
			r.ends = to
			heap.Push(&s.events, r)
			continue
		}
		s.now = r.ends
		switch {
		case r.look:
			s.looks = false
		case r.tick && s.every == 0: // the backlog has come
			s.ticks = false
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
	for len(s.at) < s.allowed() && (s.every == 0 || s.queued > 0) && s.letsIn() {
		s.queued--
		s.sent++
		r := &simRequest{number: s.sent}
		if s.gate != nil {
			_, r.probe = s.gate.Open()
		}
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

// letsIn reports whether the breaker lets one more request in. It looks again when it may let one in later.
func (s *sim) letsIn() bool {
	if s.gate == nil {
		return true
	}
	_, open := s.gate.Open()
	most := s.gate.Allowed(s.clock())
	if open && most == 0 && !s.looks {
		s.looks = true
		heap.Push(&s.events, &simRequest{ends: s.now + s.gate.NextProbe().Sub(s.clock()), look: true})
	}
	return len(s.at) < most
}

// fatal requests end all others too.
func (s *sim) fatal(r *simRequest) bool {
	d, ok := s.app.(*dying)
	return ok && d.died && r.ends == s.now
}

func (s *sim) kill() {
	d := s.app.(*dying)
	byNumber := func(a, b *simRequest) int { return cmp.Compare(a.number, b.number) }
	for _, r := range slices.SortedFunc(maps.Keys(s.at), byNumber) { // the same each time
		r.ends, r.took, r.signal = s.now+d.hangs, d.hangs, policy.Overloaded
		heap.Fix(&s.events, r.index)
	}
	d.died = false
}

func (s *sim) end(r *simRequest) {
	delete(s.at, r)
	if r.signal == policy.Passed {
		s.passed++
	}
	switch {
	case s.gate == nil:
	case r.signal == policy.Passed:
		s.gate.Passed()
	default:
		s.gate.Failed(s.clock(), r.number, s.rnd.Float64())
	}
	if r.probe {
		r.signal = policy.Silent
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
