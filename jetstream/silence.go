package jetstream

import "time"

// hearing is what a source knows of how old may be what comes from the server. A connection that stalls, or a process that is paused, is
// not noticed by itself: what was sent meanwhile comes later as if it were new, and may have been given to another since.
type hearing struct {
	last    time.Time // when something last came
	quiet   time.Time // after a silence: what comes was sent after this, and nothing more is known; zero: it is new
	noticed time.Time // when the silence was
}

// silent reports whether nothing came from the server for so long that the durable may be another's: half the time until it pins it to another, or
// until it delivers again what is leased here. A process that was paused finds so too, by the clock.
func (s *Source) silent(now time.Time) bool {
	return s.bound != nil && now.Sub(s.hearing.last) > s.patience()
}

func (s *Source) patience() time.Duration {
	c := s.bound.info.Config
	if pinned(c) == "" {
		return ackWait(c) / 2
	}
	return min(ackWait(c), max(c.PinnedTTL, time.Second)) / 2
}

// beat is how often the server is to say that a pull request is still waiting: often enough that a silence is one.
func (s *Source) beat(expires time.Duration) time.Duration {
	return min(heartbeat, expires/2, s.patience()/2)
}

// inTouch is told that something came from the server just now. After a silence it may be old, and what follows it too.
func (s *Source) inTouch(now time.Time) {
	if s.bound == nil {
		return
	}
	s.heedSilence(now)
	s.hearing.last = now
}

// heedSilence notices a silence. What was sent to keep leases alive meanwhile may not have arrived.
func (s *Source) heedSilence(now time.Time) {
	if !s.silent(now) {
		return
	}
	h := &s.hearing
	if h.quiet.IsZero() {
		h.quiet = h.last
	}
	h.noticed = now
	for m := range s.touched.all {
		if m.touchedAt.After(h.quiet) {
			m.touchedAt = h.quiet
		}
	}
	s.unsettled()
	s.suspect = true
	s.wake()
}

// heardAnswer is told that the durable was looked at. It reports whether that ends a silence: what comes after the answer was sent after the question.
func (s *Source) heardAnswer(asked, now time.Time) bool {
	s.inTouch(now)
	if h := &s.hearing; !h.quiet.IsZero() {
		if asked.Before(h.noticed) || now.Sub(asked) > s.patience() {
			s.suspect = true
			s.wake()
			return false
		}
		for _, l := range s.lanes {
			l.oldUpTo, l.oldAfter = l.taken.Load()+l.sub.waiting(), h.quiet // it came before the answer, but each inbox is taken from by itself
		}
		h.quiet = time.Time{}
	}
	return true
}

// sentAfter is a time after which the server sent what arrives now on a lane: what comes after a silence may have waited on its way, but was asked
// for by the lane's request.
func (s *Source) sentAfter(l *lane, now time.Time) time.Time {
	quiet := s.hearing.quiet
	if l.taken.Load() < l.oldUpTo {
		quiet = later(quiet, l.oldAfter)
	}
	if quiet.IsZero() {
		return now
	}
	return later(quiet, l.sentAt)
}
