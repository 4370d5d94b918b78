package jetstream

import (
	"context"
	"time"
)

// order keeps a source from offering a message while an earlier one may be pending elsewhere: leased by another client of the
// durable, by a process that died, or lost on its way.
//
// The server numbers all deliveries of a durable. As long as the numbers that arrive have no gap, and nothing was pending
// elsewhere at some point before them, all that is pending is leased here, and may be worked on in any way that suits its order.
// After a gap, a lease that was lost, or a start with messages pending, it is not known: then messages are gathered (gather.go).
// What arrives is leased and not offered, until the server says that nothing is pending but what is leased here. Meanwhile only
// the first message of all may be worked on, where it is known that nothing is pending before it (beneath.go).
//
// The server's own order of redelivery is not relied upon: messages of a dead process expire by when they were last kept alive,
// not by their sequence, and new ones are delivered before those that have not expired yet.
type order struct {
	next      uint64 // the number of the next delivery, if there is no gap
	gathering bool
	unsure    bool       // it is not known whom the durable is pinned to: after a change of connection or leader, or a silence
	held      []*Message // leased and not offered

	keys   map[Key]*keyed     // the leases of each
	behind map[Key][]*Message // leased and not begun, since an earlier one of their key is leased

	settled settledLeases // by the durable that is bound to

	// While it gathers.
	since  time.Time // when it began
	looked time.Time
	room   room

	returnPause  time.Duration // after what was held was handed back, as some of what is leased is settled
	noneReturned time.Time     // it is not again before then

	beneath beneath
}

// orderer is who keeps the turns of the keys: see Tell.
type orderer struct {
	key      func(*Message) Key
	released func(*Message) *Message
	unpinned func()
}

// Tell sets what the source has to know to keep order: the key of a message; and who is told of two things: that the lease of a message ended, for whatever reason, which returns the
// message that is to be offered next, if there is one that waited for it; and that the durable is another's, so that what waits for another try is to be begun now: Begin hands it back.
// None of them must call the source. It is called before Run.
func (s *Source) Tell(key func(*Message) Key, released func(*Message) *Message, unpinned func()) {
	s.orderer = orderer{key, released, unpinned}
}

// Take waits for a message, as Next does, and leaves it to Begin to begin it.
func (s *Source) Take(ctx context.Context) *Message {
	select {
	case m := <-s.ready:
		return m
	case m := <-s.retries.source.ready:
		return m
	case <-ctx.Done():
		return nil
	}
}

// Begin marks a message as worked on, on a source that keeps order. It returns false if it must not be: its lease is lost, or an earlier message may be
// pending elsewhere. Then it is offered again when it may be, if it is still leased.
func (s *Source) Begin(ctx context.Context, m *Message) bool {
	if m.source != s {
		return s.retries.beginCopy(ctx, m)
	}
	s.mu.Lock()
	asks := s.retries.asks(m) // another delivery of it may be merged with this one just now
	s.mu.Unlock()
	if asks {
		over, err := s.retries.isOver(ctx, m)
		if err != nil {
			s.hold(m)
			return false
		}
		if over {
			s.settle(m, "+ACK")
			return false
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.beginInOrder(m)
}

func (s *Source) beginInOrder(m *Message) bool {
	if m.released.Load() {
		return false
	}
	s.heedSilence(time.Now())
	if s.expired(m, time.Now()) || m.settled || m.forgotten {
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
	if s.overtakes(m) {
		s.order.behind[m.keyed.key] = append(s.order.behind[m.keyed.key], m)
		return false
	}
	m.started = true
	if s.pin.begun.IsZero() {
		s.pin.begun = time.Now()
	}
	s.refill()
	return true
}

// hold puts a message off until the next look at the durable, and so all that are not begun: they must not overtake it.
func (s *Source) hold(m *Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !m.released.Load() {
		s.scattered()
		s.order.held = append(s.order.held, m)
	}
}

// passTurn is told that the lease of a message ended, and offers the one that waited for it.
func (s *Source) passTurn(m *Message) {
	o := &s.orderer
	if s.due != nil {
		o = &s.due.main.orderer
	}
	if o.released == nil {
		return
	}
	next := o.released(m)
	for next != nil && next.released.Load() { // its lease was lost while it waited: the turn is not its
		next = o.released(next)
	}
	if next != nil {
		s.offerNext(next)
	}
	for _, m := range s.unfile(m) {
		s.offerNext(m)
	}
}

// offerNext offers a message that waited for another, whose lease ended. That one may be of the retry stream, or this one: then it is
// seen when it is begun whether it is leased still.
func (s *Source) offerNext(m *Message) {
	ours := m.source == s
	if ours && (s.bound == nil || m.released.Load()) {
		return
	}
	if !m.source.put(m) && ours { // cannot happen: there are never more leases than room
		s.release(m)
		s.scattered()
	}
}

// Survived says that this process outlived a try of a message that stays leased: more may be leased now. It is for who works on the
// message, before anybody else does.
func (s *Source) Survived(m *Message) {
	m.source.mu.Lock()
	m.kept = true
	m.source.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.widen()
	s.refill()
}

// takeHeld returns a message that is held back, or nil if there is none.
func (s *Source) takeHeld() *Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.takeDoubted(); m != nil || s.order == nil {
		return m
	}
	held := s.order.held
	for _, behind := range s.order.behind {
		held = append(held, behind...)
	}
	s.order.held = nil
	clear(s.order.behind)
	if len(held) == 0 {
		return nil
	}
	s.order.held = held[1:]
	return held[0]
}
