package jetstream

import (
	"cmp"
	"slices"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// gatherLook is how often the durable is looked at while messages are gathered.
const gatherLook = 250 * time.Millisecond

// arrived is told the number of each delivery.
func (o *order) arrived(number uint64) (gap bool) {
	if gap = number != o.next; gap {
		o.room.seen = nil // another may have had them since
	}
	o.next = max(o.next, number+1)
	return gap
}

// begin is told what the server says of the durable when it is bound.
func (o *order) begin(info *natsjs.ConsumerInfo) {
	*o = order{beneath: o.beneath, keys: o.keys, behind: o.behind, next: info.Delivered.Consumer + 1}
	o.beneath.heed(info)
	if info.NumAckPending > 0 {
		o.scatter()
	}
}

// scatter begins to gather: something may be pending elsewhere.
func (o *order) scatter() {
	if !o.gathering {
		o.gathering, o.since, o.room.pause, o.room.notBefore = true, time.Now(), 0, time.Time{}
	}
}

// scattered is told that the lease of a message was lost.
func (s *Source) scattered() {
	if s.order != nil && s.bound != nil {
		s.order.scatter()
	}
}

// unsettled is told that the connection or the leader changed: nothing is begun until it is known whom the durable is pinned to. A server that was
// restarted may have pinned it to another client and given that one what is leased here, however long the ack wait.
func (s *Source) unsettled() {
	if s.order != nil && s.bound != nil {
		s.order.unsure, s.order.room.seen = true, nil
		s.order.scatter()
	}
}

// gatherDue reports whether the durable must be looked at to know whether all is gathered.
func (s *Source) gatherDue(now time.Time) bool {
	return s.order != nil && len(s.order.held) > 0 && s.bound != nil && now.Sub(s.order.looked) >= gatherLook
}

// lookToGather asks for a look: what was learned just now may end the gathering.
func (s *Source) lookToGather() {
	if s.order != nil && s.order.gathering {
		s.suspect = true
		s.wake()
	}
}

// gather is told what the server says of the durable at a look. It ends the gathering if nothing is pending but what is leased
// here, and else lets the first message of all go on.
func (s *Source) gather(l *look, info *natsjs.ConsumerInfo) {
	o, now := s.order, time.Now()
	heard := s.heardAnswer(l.asked, now)
	if o == nil || !o.gathering {
		return
	}
	o.looked = now
	if !heard || now.Sub(l.asked) > s.patience() {
		s.lookToGather() // an answer that was on its way for so long is old
		return
	}
	if s.pinnedSince(l, info) {
		s.lookToGather()
		return
	}
	s.settlePin(info)
	s.dropSettled(info, l.arrived)
	here := s.pendingHere(info.Delivered.Stream, l.arrived, now)
	switch {
	case s.anothers():
		s.returnHeld()
	case here.late:
		s.lookToGather() // the answer says nothing of what arrived since
	case info.NumAckPending < here.count && len(o.held) > 0:
		s.returnSettled(info, now)
	case info.NumAckPending <= here.count && info.NumAckPending-info.NumRedelivered <= here.fresh:
		s.gathered(info)
	case here.first != nil && s.nothingBeneath(info, here, now):
		s.letGo(here.first)
	case o.beneath.open: // the answer may let the first one go
	default:
		s.makeRoom(info, now)
	}
}

// here is what is leased of all that was pending when the server was asked.
type here struct {
	count int
	fresh int // of those, the ones that were delivered only once, that is to this source: nobody else can have settled them
	first *Message
	late  bool // more arrived since
}

// pendingHere counts what is leased and undecided: what a verdict was sent for may be off the server's books already. What is above the last
// one delivered, as the server says, was delivered by a leader that could not tell the others any more: the new one does not know of it.
func (s *Source) pendingHere(delivered, arrived uint64, now time.Time) (h here) {
	for _, m := range s.leases {
		h.late = h.late || m.arrival > arrived
		if m.verdict != "" || m.arrival > arrived || m.settled || s.expired(m, now) || m.Sequence > delivered {
			continue
		}
		h.count++
		if m.Delivered == 1 {
			h.fresh++
		}
		if h.first == nil || m.Sequence < h.first.Sequence {
			h.first = m
		}
	}
	return h
}

// dropSettled drops what the server knows to be settled: after another client had it, and its verdict came late.
func (s *Source) dropSettled(info *natsjs.ConsumerInfo, arrived uint64) {
	for _, m := range s.leases {
		if m.verdict == "" && m.Sequence <= info.AckFloor.Stream && m.arrival <= arrived {
			m.settled = true // what is at the app ends as it does
		}
	}
	held := s.order.held
	s.order.held = slices.DeleteFunc(slices.Clone(held), func(m *Message) bool { return m.settled })
	for _, m := range held {
		if m.settled {
			s.release(m)
		}
	}
}

// returnHeld hands back all that is held, in the order of the stream.
func (s *Source) returnHeld() {
	held := s.order.held
	s.order.held, s.order.room.seen = nil, nil
	slices.SortFunc(held, bySequence)
	for _, m := range held {
		s.decide(m, handBack, time.Now())
	}
}

// returnSettled hands back all that is held, since some of what is leased is settled already: that does not come again. It may be at the app, and
// stay leased for as long as that takes. So this is done again after longer and longer pauses: the rest comes at once each time.
func (s *Source) returnSettled(info *natsjs.ConsumerInfo, now time.Time) {
	o, wait := s.order, ackWait(info.Config)
	if now.Before(o.noneReturned) {
		return
	}
	o.returnPause = min(max(2*o.returnPause, wait/6, gatherLook), wait)
	o.noneReturned = now.Add(o.returnPause)
	s.returnHeld()
}

// gathered ends the gathering and offers what was held, in the order of the stream.
func (s *Source) gathered(info *natsjs.ConsumerInfo) {
	o := s.order
	held := o.held
	o.held, o.room.returned, o.room.seen, o.gathering, o.next = nil, nil, nil, false, info.Delivered.Consumer+1
	o.returnPause, o.noneReturned = 0, time.Time{}
	slices.SortFunc(held, bySequence)
	for _, m := range held {
		if !m.released.Load() {
			s.offer(m)
		}
	}
}

// letGo offers the first message of all that are pending.
func (s *Source) letGo(first *Message) {
	o := s.order
	if i := slices.Index(o.held, first); i >= 0 {
		o.held = slices.Delete(o.held, i, i+1)
		first.first = true
		delete(o.room.seen, first.Sequence)
		s.offer(first)
	}
}

func bySequence(a, b *Message) int { return cmp.Compare(a.Sequence, b.Sequence) }
