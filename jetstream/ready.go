package jetstream

import (
	"math/rand/v2"
	"time"
)

// crowdedFor is about how long a message waits for another delivery that there was no room for.
const crowdedFor = 2 * time.Second

// put leaves a message to the workers. Where they are all busy for long, what is ready may be full of messages whose leases ended, since
// their durable was made anew: those are dropped then. It reports false if there is no room all the same.
func (s *Source) put(m *Message) bool {
	s.putting.Lock()
	defer s.putting.Unlock()
	for range 2 {
		select {
		case s.ready <- m:
			return true
		default:
			s.dropReleased()
		}
	}
	return false
}

// dropReleased drops what is ready and not leased any more, and keeps the order of the rest. While it is called nobody else adds to it.
func (s *Source) dropReleased() {
	for range len(s.ready) {
		select {
		case m := <-s.ready:
			if !m.released.Load() {
				s.ready <- m
			}
		default: // the workers took the rest
			return
		}
	}
}

// offer leaves a message to the workers, unless it must wait for earlier ones.
func (s *Source) offer(m *Message) {
	if s.order != nil && s.order.gathering && !m.first {
		s.order.held = append(s.order.held, m)
		return
	}
	if !s.put(m) {
		// More than can be leased: only after pulls that seemed dead came alive.
		s.decide(m, nak(crowdedFor/2+rand.N(crowdedFor/2)), time.Now())
	}
}
