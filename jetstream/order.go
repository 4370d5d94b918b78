package jetstream

import (
	"context"
	"slices"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

const (
	// gatherLook is how often the durable is looked at while messages are gathered.
	gatherLook = 250 * time.Millisecond
	// gatherPause is the first pause after a pull that brought a new message while older ones were waited for; it doubles.
	gatherPause = 250 * time.Millisecond
)

// order keeps a source from offering a message while an earlier one may be pending elsewhere: leased by another client of the
// durable, by a process that died, or lost on its way.
//
// The server numbers all deliveries of a durable. As long as the numbers that arrive have no gap, and nothing was pending
// elsewhere at some point before them, all that is pending is leased here, and may be worked on in any way that suits its order.
// After a gap, a lease that was lost, or a start with messages pending, it is not known: then messages are gathered. What
// arrives is leased and not offered, until the server says that nothing is pending but what is leased here. Meanwhile only the
// message right above the acknowledgement floor may be worked on, since nothing can be before it.
//
// The server's own order of redelivery is not relied upon: messages of a dead process expire by when they were last kept alive,
// not by their sequence, and new ones are delivered before those that have not expired yet.
type order struct {
	next      uint64 // the number of the next delivery, if there is no gap
	gathering bool
	unsure    bool      // it is not known whom the durable is pinned to: after a change of connection or leader
	since     time.Time // when it began
	looked    time.Time
	elsewhere int           // pending and not leased here, at the last look
	held      []*Message    // leased and not offered
	pause     time.Duration // before the next pull, after one that brought a new message
	notBefore time.Time     // no pull before then
	released  func(*Message) *Message
	unpinned  func()

	// What was handed back to make room, since the floor was there and since that time.
	returned   map[uint64]bool
	floor      uint64
	returnedAt time.Time
}

// Tell sets who is told of two things, on a source that keeps order: that the lease of a message ended, for whatever reason, which returns the
// message that is to be offered next, if there is one that waited for it; and that the durable is another's, so that what waits for another try is to be begun now: Begin hands it back.
// Neither must call the source. It is called before Run.
func (s *Source) Tell(released func(*Message) *Message, unpinned func()) {
	s.order.released, s.order.unpinned = released, unpinned
}

// arrived is told the number of each delivery.
func (o *order) arrived(number uint64) (gap bool) {
	gap = number != o.next
	o.next = max(o.next, number+1)
	return gap
}

// begin is told what the server says of the durable when it is bound.
func (o *order) begin(info *natsjs.ConsumerInfo) {
	*o = order{released: o.released, unpinned: o.unpinned, next: info.Delivered.Consumer + 1, elsewhere: info.NumAckPending}
	if info.NumAckPending > 0 {
		o.scatter()
	}
}

// scatter begins to gather: something may be pending elsewhere.
func (o *order) scatter() {
	if !o.gathering {
		o.gathering, o.since, o.pause, o.notBefore = true, time.Now(), 0, time.Time{}
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
		s.order.unsure = true
		s.order.scatter()
	}
}

// Take waits for a message, as Next does, and leaves it to Begin to begin it.
func (s *Source) Take(ctx context.Context) *Message {
	select {
	case m := <-s.ready:
		return m
	case <-ctx.Done():
		return nil
	}
}

// Begin marks a message as worked on, on a source that keeps order. It returns false if it must not be: its lease is lost, or an earlier message may be
// pending elsewhere. Then it is offered again when it may be, if it is still leased.
func (s *Source) Begin(m *Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.released {
		return false
	}
	if s.expired(m, time.Now()) || m.settled {
		s.release(m)
		s.scattered()
		return false
	}
	if s.anothers() && !s.order.unsure {
		s.decide(m, handBack, time.Now())
		return false
	}
	if s.order.unsure || s.order.gathering && !m.started && !m.first {
		s.order.held = append(s.order.held, m)
		return false
	}
	m.started = true
	s.refill()
	return true
}

// offerNext offers a message that waited for another, whose lease ended.
func (s *Source) offerNext(m *Message) {
	if s.bound == nil || m.released {
		return
	}
	select {
	case s.ready <- m:
	default: // cannot happen: there are never more leases than room
		s.release(m)
		s.scattered()
	}
}

// Survived says that this process outlived a try of a message that stays leased: more may be leased now.
func (s *Source) Survived() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.widen()
	s.refill()
}

// takeHeld returns a message that is held back, or nil if there is none.
func (s *Source) takeHeld() *Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.order == nil || len(s.order.held) == 0 {
		return nil
	}
	m := s.order.held[0]
	s.order.held = s.order.held[1:]
	return m
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

// gather is told what the server says of the durable, asked at a time. It ends the gathering if nothing is pending but what is leased
// here, and else lets the first message of all go on.
func (s *Source) gather(info *natsjs.ConsumerInfo, asked time.Time) {
	o := s.order
	if o == nil || !o.gathering {
		return
	}
	now := time.Now()
	o.looked = now
	s.settlePin(info)
	s.dropSettled(info, asked)
	here, late := 0, false
	var first *Message
	for _, m := range s.leases {
		late = late || m.arrivedAt.After(asked)
		if m.verdict != "" || m.arrivedAt.After(asked) || m.settled || s.expired(m, now) {
			continue
		}
		here++
		if first == nil || m.Sequence < first.Sequence {
			first = m
		}
	}
	o.elsewhere = max(info.NumAckPending-here, 0)
	switch {
	case s.anothers():
		s.returnHeld()
	case late:
		s.lookToGather() // the answer says nothing of what arrived since
	case info.NumAckPending < here && len(o.held) > 0:
		s.returnHeld() // some are settled already: those do not come again
	case o.elsewhere == 0:
		s.gathered(info)
	case first != nil && info.AckFloor.Stream+1 >= first.Sequence:
		s.letGo(first)
	default:
		s.makeRoom(info, now)
	}
}

// dropSettled drops what the server knows to be settled: after another client had it, and its verdict came late.
func (s *Source) dropSettled(info *natsjs.ConsumerInfo, asked time.Time) {
	for _, m := range s.leases {
		if m.verdict == "" && m.Sequence <= info.AckFloor.Stream && !m.arrivedAt.After(asked) {
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
	s.order.held = nil
	slices.SortFunc(held, bySequence)
	for _, m := range held {
		s.decide(m, handBack, time.Now())
	}
}

// gathered ends the gathering and offers what was held, in the order of the stream.
func (s *Source) gathered(info *natsjs.ConsumerInfo) {
	o := s.order
	held := o.held
	o.held, o.returned, o.gathering, o.next = nil, nil, false, info.Delivered.Consumer+1
	slices.SortFunc(held, bySequence)
	for _, m := range held {
		if !m.released {
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
		s.offer(first)
	}
}

// makeRoom is for when all leases are taken by messages that wait for earlier ones: it widens the bound that is allowed now, up to the
// limit. At the limit, and when all that a dead process had must have expired, the last message is handed back: the server queues it behind those.
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
	o, wait := s.order, ackWait(info.Config)
	if o.floor != info.AckFloor.Stream || now.Sub(o.returnedAt) >= wait {
		o.floor, o.returnedAt, o.returned = info.AckFloor.Stream, now, map[uint64]bool{}
	}
	if len(o.held) == 0 || now.Sub(o.since) < wait || !s.mayPublish(now) {
		return
	}
	last := slices.MaxFunc(o.held, bySequence)
	if o.returned[last.Sequence] {
		return // all that waits for redelivery was here
	}
	o.returned[last.Sequence] = true
	o.held = slices.DeleteFunc(o.held, func(m *Message) bool { return m == last })
	s.decide(last, handBack, now)
}

func bySequence(a, b *Message) int {
	switch {
	case a.Sequence < b.Sequence:
		return -1
	case a.Sequence > b.Sequence:
		return 1
	}
	return 0
}

// gatherBatch is how many messages to ask for while gathering: one at a time. After one that was not delivered before there are none waiting
// for redelivery, so the next pull comes later: new ones would take the leases that the earlier ones need.
func (s *Source) gatherBatch(free, coming int, now time.Time) int {
	o := s.order
	switch {
	case free <= 0 || coming > 0 || now.Before(o.notBefore):
		return 0
	case o.pause > 0 && free == 1 && s.width == s.limit() && len(s.leases) > 0 && now.Sub(o.since) < ackWait(s.bound.info.Config):
		return 0
	}
	return 1
}

// gatherMore is told of each message that arrives while gathering.
func (s *Source) gatherMore(m *Message) {
	o := s.order
	if m.Delivered > 1 {
		o.pause = 0
		return
	}
	o.pause = min(max(2*o.pause, gatherPause), max(ackWait(s.bound.info.Config)/6, gatherPause))
	o.notBefore = m.arrivedAt.Add(o.pause)
}
