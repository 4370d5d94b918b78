package jetstream

import (
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// roundPrefix begins the last part of the subject by which a round of keeping leases alive is confirmed.
const roundPrefix = "k."

// roundMost is how long at least a round is given to be confirmed.
const roundMost = 250 * time.Millisecond

var inProgress = []byte("+WPI")

// keepAlive tells the server that leases are worked on, at a third of the ack wait. It settles nothing, so it need not be known for sure that the
// durable is the one bound to.
//
// The last one of a round has a reply subject. The server takes them in the order they were sent, so its answer says that it heard of all, and only
// then do they count as kept alive: over a connection that is dead on one side, or where the user may not ack, leases are lost, and that must be
// known.
func (s *Source) keepAlive(now time.Time) {
	if s.roundOpen && now.Sub(s.roundAt) >= max(s.keepEvery()/2, roundMost) {
		s.roundLost(now)
	}
	var last *Message
	for m := s.touched.first(); m != nil && s.isDue(m, now); m = s.touched.first() {
		if s.expired(m, now) {
			// It may be in work elsewhere by now. What was not begun here is dropped.
			s.scattered()
			if s.touched.remove(m); !m.started {
				s.release(m)
			}
			continue
		}
		if last == nil {
			s.round++
			s.roundAt = now
		} else if s.conn.nc.Publish(last.reply, inProgress) != nil {
			return
		}
		last = m
		s.kept(m, now)
	}
	if last == nil {
		return
	}
	reply := s.ackInbox + roundPrefix + strconv.FormatUint(s.round, 10)
	if s.conn.nc.PublishRequest(last.reply, reply, inProgress) == nil {
		s.keepAll, s.roundOpen = false, true
	}
}

// roundLost is told that a round was not confirmed: nobody leads the durable, or somebody else. It is said again now.
func (s *Source) roundLost(now time.Time) {
	s.roundOpen, s.keepAll = false, true
	s.unsettled()
	s.askAnew(now, false)
}

// isDue reports whether a lease is to be kept alive now.
func (s *Source) isDue(m *Message, now time.Time) bool {
	return s.keepAll && m.keptAt.Before(now) || now.Sub(m.keptAt) >= s.keepEvery()
}

func (s *Source) keepEvery() time.Duration { return ackWait(s.bound.info.Config) / 3 }

// kept notes that the server is told of a lease. Where nothing is confirmed it is taken to have heard if something came from it lately.
func (s *Source) kept(m *Message, now time.Time) {
	m.keptAt, m.keptIn = now, s.round
	if s.cfg.AckAsync && now.Sub(s.hearing.last) < min(silence, s.keepEvery()) {
		m.touchedAt = now
	}
	s.touched.remove(m)
	s.touched.add(m)
}

// confirmedRound handles the server's answer to a round.
func (s *Source) confirmedRound(text string, msg *nats.Msg) {
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if msg.Header.Get("Status") == noResponders {
		s.unsettled()
		s.askAnew(now, false)
		return // it is said again, at its time
	}
	s.hears(now)
	s.confirmedAt = now
	if number == s.round {
		s.roundOpen = false
	}
	// Those of one round stand together, before those of later ones; messages that just came are among them.
	for m := s.touched.last(); m != nil && (m.keptIn == 0 || m.keptIn >= number); m = s.touched.before(m) {
		if m.keptIn == number && !s.expired(m, now) { // else the server may have heard of it too late: it is no lease of this one any more
			m.touchedAt = later(m.touchedAt, m.keptAt)
		}
	}
}

// touchList is a list of leases, the one first that the server was told of longest ago. It is intrusive: adding and removing cost no allocation.
type touchList struct{ root Message }

func (l *touchList) init() { l.root.prev, l.root.next = &l.root, &l.root }

func (l *touchList) first() *Message {
	if l.root.next == &l.root {
		return nil
	}
	return l.root.next
}

func (l *touchList) last() *Message { return l.before(&l.root) }

// before is the message before another one in the list; nil if there is none.
func (l *touchList) before(m *Message) *Message {
	if m.prev == &l.root {
		return nil
	}
	return m.prev
}

// all are the leases in the list.
func (l *touchList) all(yield func(*Message) bool) {
	for m := l.root.next; m != &l.root && yield(m); m = m.next {
	}
}

func (l *touchList) add(m *Message) {
	m.prev, m.next = l.root.prev, &l.root
	m.prev.next, m.next.prev = m, m
}

func (l *touchList) remove(m *Message) {
	if m.next == nil {
		return
	}
	m.prev.next, m.next.prev = m.next, m.prev
	m.prev, m.next = nil, nil
}
