package jetstream

import (
	"slices"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// gatherPause is the first pause after a pull that brought a new message while older ones were waited for; it doubles.
const gatherPause = 250 * time.Millisecond

// roomDelay is how long at least what is handed back to make room stays away: until the request for another message is there. Without a delay it would
// come right again: with each thing it hears of, a server that has only requests waiting that it may not serve (those of who stands by, or of too
// few bytes) moves the first one of what waits for redelivery behind the last (nats-server consumer.go, loopAndGatherMsgs). Much later, new ones
// would come before it.
const roomDelay = 100 * time.Millisecond

// room is how leases are got for the earlier messages while some are gathered.
type room struct {
	pause     time.Duration // before the next pull, after one that brought a new message
	notBefore time.Time     // no pull before then

	// What was handed back to make room, since the floor was there and since that time.
	returned   map[uint64]bool
	floor      uint64
	returnedAt time.Time

	// What was handed back to make room and is pending since: nobody else was given it. Whether it was delivered once only.
	seen map[uint64]bool
}

// makeRoom is for when all leases are taken by messages that wait for earlier ones: it widens the bound that is allowed now, up to the
// limit. At the limit, and when all that a dead process had must have expired, the last message is handed back for a while, and one of those is asked for.
// That is done once for each message, until the floor moves or an ack wait has passed.
func (s *Source) makeRoom(info *natsjs.ConsumerInfo, now time.Time) {
	coming, lost := s.expected()
	if coming > 0 || s.width-len(s.leases)-lost > 0 || len(s.settling) > 0 {
		return
	}
	if s.width < s.limit() {
		s.widen()
		return
	}
	if o := s.order; len(o.held) > 0 && now.Sub(o.since) >= ackWait(info.Config) && s.mayPublish(now) {
		s.returnLast(info, now)
	}
}

// returnLast hands the last message back, once until the floor moves or an ack wait has passed: after that all that waits for redelivery was here.
func (s *Source) returnLast(info *natsjs.ConsumerInfo, now time.Time) {
	o := s.order
	r := &o.room
	if r.returned == nil || r.floor != info.AckFloor.Stream || now.Sub(r.returnedAt) >= ackWait(info.Config) {
		r.floor, r.returnedAt, r.returned = info.AckFloor.Stream, now, map[uint64]bool{}
	}
	if r.seen == nil {
		r.seen = map[uint64]bool{}
	}
	last := slices.MaxFunc(o.held, bySequence)
	if r.returned[last.Sequence] {
		return
	}
	r.returned[last.Sequence], r.seen[last.Sequence] = true, last.Delivered == 1
	o.held = slices.DeleteFunc(o.held, func(m *Message) bool { return m == last })
	s.decide(last, nak(min(max(roomDelay, 2*s.rounds.answer), ackWait(info.Config)/2)), now)
}

// knowsAll reports whether all that is pending is leased here, or was before it was handed back to make room.
func (s *Source) knowsAll(info *natsjs.ConsumerInfo, h here) bool {
	o := s.order
	if len(o.room.seen) == 0 || info.Delivered.Consumer >= o.next {
		return false
	}
	for seq, once := range o.room.seen {
		if seq <= info.AckFloor.Stream {
			delete(o.room.seen, seq)
			continue
		}
		if m := s.leases[seq]; m != nil && m.verdict == "" {
			continue // counted already
		}
		if h.count++; once {
			h.fresh++
		}
	}
	if h.count > info.NumAckPending {
		o.room.seen = nil // some of it was settled, or removed
	}
	return h.count == info.NumAckPending && info.NumAckPending-info.NumRedelivered <= h.fresh
}

// sawBefore reports whether a message before this one was handed back.
func (r *room) sawBefore(sequence uint64) bool {
	for seq := range r.seen {
		if seq < sequence {
			return true
		}
	}
	return false
}

// gatherBatch is how many messages to ask for while gathering: one at a time. After one that was not delivered before there are none waiting
// for redelivery, so the next pull comes later: new ones would take the leases that the earlier ones need.
func (s *Source) gatherBatch(free, coming int, now time.Time) int {
	o := s.order
	switch {
	case free <= 0 || coming > 0 || now.Before(o.room.notBefore):
		return 0
	case o.room.pause > 0 && free == 1 && s.width == s.limit() && len(s.leases) > 0 && now.Sub(o.since) < ackWait(s.bound.info.Config):
		return 0
	}
	return 1
}

// gatherOne reports whether a message may be asked for while gathering, to try a failing app with: as at other times. What is held may be tried only once
// all is here. So where all that a dead process had must have expired, and only what is held was not tried before, it is asked for the rest.
func (s *Source) gatherOne(coming int, now time.Time) bool {
	if s.wantsOne(coming) {
		return true
	}
	for _, m := range s.leases {
		if m.verdict == "" && m.Delivered == 1 && !m.kept && !slices.Contains(s.order.held, m) {
			return false
		}
	}
	return coming == 0 && now.Sub(s.order.since) >= ackWait(s.bound.info.Config)
}

// gatherMore is told of each message that arrives while gathering.
func (s *Source) gatherMore(m *Message) {
	o := s.order
	if m.Delivered > 1 {
		o.room.pause = 0
		return
	}
	o.room.pause = min(max(2*o.room.pause, gatherPause), max(ackWait(s.bound.info.Config)/6, gatherPause))
	o.room.notBefore = m.arrivedAt.Add(o.room.pause)
}
