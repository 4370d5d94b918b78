package jetstream

import "time"

// onceExpires is how long a pull request waits at a durable that delivers each message once: a stop waits for its end.
const onceExpires = 500 * time.Millisecond

// retireLanes ends the waiting requests: with the inbox gone the server keeps the messages. It returns the lanes that are
// not closed yet.
func (s *Source) retireLanes() []*lane {
	var open []*lane
	for _, l := range s.lanes {
		switch {
		case !l.retired:
			s.retire(l)
		case l.ending && s.bound == nil:
			l.ending = false
			_ = l.sub.Unsubscribe() // nothing tells of its end any more
		}
		l.gone = l.gone || s.bound == nil
		open = append(open, l)
	}
	return open
}

// retire ends the request of a lane, or those that came with acks. What the server sent for them still arrives.
func (s *Source) retire(l *lane) {
	l.retired, l.life = true, s.conn.connections()
	s.uncoverAll(l)
	switch {
	case !s.conn.Connected() || s.bound == nil:
		_ = l.sub.Unsubscribe()
	case l.open > 0 && s.deliversOnce():
		l.ending = true
	default:
		_ = l.sub.Drain() // fails only on a connection that is closed
	}
}

// deliversOnce reports whether the server gives up on a message that it sends to an inbox that is gone, at once: so it does where a first
// delivery is the last one (nats-server consumer.go, didNotDeliver: a delivery that failed is counted all the same). Requests are short there, and
// end by themselves.
func (s *Source) deliversOnce() bool { return s.bound != nil && s.bound.info.Config.MaxDeliver == 1 }

// ended is told that the request of a lane is over, or should be.
func (s *Source) ended(l *lane) {
	if l.ending {
		l.ending = false
		_ = l.sub.Drain() // fails only if it is gone already
	}
}

// laneClosed is called when nothing more can arrive on a lane.
func (s *Source) laneClosed(l *lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(l.closed)
	s.lanes = without(s.lanes, l)
	cut := l.retired && (!s.conn.Connected() || s.conn.connections() != l.life) // which is told later
	if (l.doubted || cut) && !l.gone && l.open > 0 && s.bound != nil {
		l.lost, l.unjudged = l.open, time.Now()
		l.until = l.unjudged.Add(takenBackAfter(s.bound.info.Config))
		s.ghosts = append(s.ghosts, l)
		s.suspect = true
	}
	s.uncoverAll(l)
	s.setOpen(l, 0)
	s.setBytes(l, 0)
	s.wake()
}

func without(lanes []*lane, gone *lane) []*lane {
	kept := lanes[:0]
	for _, l := range lanes {
		if l != gone {
			kept = append(kept, l)
		}
	}
	return kept
}
