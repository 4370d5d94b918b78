package jetstream

import (
	"errors"
	"slices"
	"time"
)

// turn lends leases to the retry stream while there may be something to lease.
func (r *retries) turn() {
	now := time.Now()
	st := r.source.Status()
	held := r.source.outstanding()
	r.mu.Lock()
	if st.Bound && st.Pending+st.AckPending > 0 {
		keep := lendFor
		if !r.used {
			keep = lendRest
		}
		r.active = later(r.active, now.Add(keep))
	}
	active := now.Before(r.active) && !r.stopping
	r.mu.Unlock()
	switch {
	case active:
		r.main.lend(r.source.cfg.Concurrency, r.source.cfg.MaxBytes)
	case held == 0 && r.pulls() == PullNothing:
		r.main.lend(0, 0)
	}
	r.follow(active && r.main.within() && r.mayServe())
}

// follow lets the retry stream be pulled from as the stream is.
func (r *retries) follow(may bool) {
	want := PullNothing
	if may {
		want = r.main.pullsNow()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if want != r.pulling {
		r.pulling = want
		r.source.Pull(want)
	}
}

// pullChanged is told that the stream is pulled from in another way.
func (r *retries) pullChanged(much Pulling) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if much < r.pulling {
		r.pulling = much
		r.source.Pull(much)
		return
	}
	r.nudge()
}

func (r *retries) pulls() Pulling {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pulling
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// lend gives so many of the leases, and of their bytes, to the retry stream. What is leased now stays: see within.
func (s *Source) lend(leases int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lent == leases {
		return
	}
	s.lent, s.lentBytes = leases, bytes
	s.width = min(max(s.width, 1), s.limit())
	s.refill()
}

// within reports whether no more is leased, or may come, than is left after lending.
func (s *Source) within() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	coming, lost := s.expected()
	return s.leased()+coming+lost <= s.limit()
}

// outstanding is how many messages are leased or may come.
func (s *Source) outstanding() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	coming, lost := s.expected()
	return s.leased() + coming + lost
}

// pullsNow is how much may be pulled.
func (s *Source) pullsNow() Pulling {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pulling
}

// crowded reports whether the messages that wait for a retry hold so much of max_ack_pending that no more should wait there.
func (s *Source) crowded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bound == nil {
		return false
	}
	most := s.bound.info.Config.MaxAckPending
	return most >= keepsOrder && holdsShare(s.parked+s.naks, most, parkedMost)
}

var errLeaseLost = errors.New("the lease is lost")

// stillLeased returns an error if a message may be in work elsewhere.
func (s *Source) stillLeased(m *Message) error {
	if s.lostAny([]*Message{m}, time.Now()) {
		return errLeaseLost
	}
	return nil
}

// lostAny reports whether one of its messages may be in work elsewhere.
func (s *Source) lostAny(messages []*Message, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(messages, func(m *Message) bool { return m.released.Load() || s.expired(m, now) })
}

// seenBefore reports whether a first delivery may be of a message that was delivered before all the same, by a durable that was
// made anew since, or that lost state in a crash. Lanes overtake each other: what comes late by the count of the durable is no
// sign of that by itself.
func (s *Source) seenBefore(stream, consumer uint64) bool {
	return stream <= s.before || stream <= s.most && consumer > s.highest
}

// again reports whether a message was delivered before, to whomever, as far as can be known: a durable that was made anew
// counts from one again.
func (s *Source) again(m *Message) bool { return m.Delivered > 1 || m.seenBefore }
