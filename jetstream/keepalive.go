package jetstream

import (
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// roundPrefix begins the last part of the subject by which a round of keeping leases alive is confirmed.
const roundPrefix = "k."

const (
	// roundMost is how long at least a round is given to be confirmed.
	roundMost = 250 * time.Millisecond
	// mostRounds bounds how many rounds are remembered that are not confirmed.
	mostRounds = 64
)

var inProgress = []byte("+WPI")

// rounds are those of keeping leases alive that are not confirmed, the oldest one first.
type rounds struct {
	last   uint64 // the number of the last one that was sent
	open   []round
	answer time.Duration // how long answers take: it rises at once, and falls slowly
}

type round struct {
	number uint64
	sentAt time.Time
	lost   bool // all that it said was said again since, or is to be
}

// overdue reports whether a round has waited for its answer for longer than patience.
func (r *rounds) overdue(now time.Time, patience time.Duration) bool {
	i := slices.IndexFunc(r.open, func(o round) bool { return !o.lost })
	return i >= 0 && now.Sub(r.open[i].sentAt) >= patience
}

// lose marks all rounds: what they said is to be said again. An answer may come all the same.
func (r *rounds) lose() {
	for i := range r.open {
		r.open[i].lost = true
	}
}

// sent is told of a round. Where too many are remembered one that is lost is forgotten, or else the second one: how long the first has waited
// must be known.
func (r *rounds) sent(number uint64, now time.Time) {
	if len(r.open) == mostRounds {
		i := slices.IndexFunc(r.open, func(o round) bool { return o.lost })
		if i < 0 {
			i = 1
		}
		r.open = slices.Delete(r.open, i, i+1)
	}
	r.open = append(r.open, round{number: number, sentAt: now})
}

// answered is told of the answer to a round. It reports whether one before was not answered: answers come in the order of the rounds.
func (r *rounds) answered(number uint64, now time.Time) (skipped bool) {
	for i, o := range r.open {
		if o.number > number {
			break
		}
		skipped = skipped || o.number < number && !o.lost
		if o.number == number {
			took := now.Sub(o.sentAt)
			r.answer = max(took, r.answer-(r.answer-took)/8)
			r.open = slices.Delete(r.open, 0, i+1)
			return skipped
		}
	}
	return false
}

// keepAlive tells the server that leases are worked on, at a third of the ack wait. It settles nothing, so it need not be known for sure that the
// durable is the one bound to.
//
// The last one of a round has a reply subject. The server takes them in the order they were sent, so its answer says that it heard of all, and only
// then do they count as kept alive: over a connection that is dead on one side, or where the user may not ack, leases are lost, and that must be
// known.
func (s *Source) keepAlive(now time.Time) {
	if s.rounds.overdue(now, s.roundPatience()) {
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
			s.rounds.last++
		} else if s.conn.nc().Publish(last.reply, inProgress) != nil {
			return
		}
		last = m
		s.kept(m, now)
	}
	if last == nil {
		return
	}
	reply := s.ackInbox + roundPrefix + strconv.FormatUint(s.rounds.last, 10)
	if s.conn.nc().PublishRequest(last.reply, reply, inProgress) == nil {
		s.keepAll = false
		s.rounds.sent(s.rounds.last, now)
	}
}

// roundPatience is how long a round is given to be confirmed: a sixth of the ack wait, or twice what answers take over a slow network, since
// one that is said again too soon takes the place of the first. At half the ack wait it is time to say it again.
func (s *Source) roundPatience() time.Duration {
	third := s.keepEvery()
	return max(third/2, roundMost, min(2*s.rounds.answer, 3*third/2))
}

// roundLost is told that a round was not confirmed: nobody leads the durable, or somebody else. It is said again now.
func (s *Source) roundLost(now time.Time) {
	s.rounds.lose()
	s.keepAll = true
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
	m.keptAt, m.keptIn = now, s.rounds.last
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
	if s.rounds.answered(number, now) {
		s.roundLost(now)
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
