package jetstream

import (
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// togetherAcked is how many acks share a subject for their confirmations.
	togetherAcked = 128
	// groupFor is how long the confirmations of a group are counted. Acks that are not confirmed long before are sent again one by one.
	groupFor = time.Minute
	// groupPrefix begins the last part of a group's subject.
	groupPrefix = "g."
)

// ackGroup is acks that were sent together, with one subject for all their confirmations. The server confirms each ack that it has done once, so
// when as many have come as were sent, all are done. That costs the server and the client less than a subject for each: those are
// found in no cache. If one of them is lost the group is never whole, and what it was to confirm is sent again like any other.
type ackGroup struct {
	messages []*Message
	missing  int
	sentAt   time.Time
}

// AckAll acks messages, as Ack does each.
func (s *Source) AckAll(batch []*Message) {
	for len(batch) > 0 {
		n := min(len(batch), togetherAcked)
		s.ackSome(batch[:n])
		batch = batch[n:]
	}
}

func (s *Source) ackSome(batch []*Message) {
	now := time.Now()
	s.mu.Lock()
	noted := make([]*Message, 0, len(batch))
	for _, m := range batch {
		if m.source == s && m.verdict == "" && !m.released.Load() {
			s.note(m, ack)
			noted = append(noted, m)
		}
	}
	if s.cfg.AckAsync || len(noted) < 2 || !s.mayPublish(now) || !s.sendGroup(noted, now) {
		s.sendOutbox(now)
	} else {
		left := len(s.outbox) - len(noted)
		clear(s.outbox[left:])
		s.outbox = s.outbox[:left]
	}
	s.refill()
	s.mu.Unlock()
	for _, m := range batch {
		if m.source != s {
			m.Ack()
		}
	}
}

// sendGroup sends acks. It reports whether it could.
func (s *Source) sendGroup(messages []*Message, now time.Time) bool {
	s.dropGroups(now)
	s.grouped++
	reply := s.ackInbox + groupPrefix + strconv.FormatUint(s.grouped, 10)
	for i, m := range messages {
		if s.conn.nc().PublishRequest(m.reply, reply, ackWire) != nil {
			for _, sent := range messages[:i] {
				sent.sentAt = time.Time{} // the group is never whole
			}
			return false
		}
		m.firstSent, m.sentAt, m.wasSent = now, now, true
	}
	s.groups[s.grouped] = &ackGroup{messages: messages, missing: len(messages), sentAt: now}
	return true
}

// groupWaiting sends acks together that waited for the durable to be known. The caller may publish.
func (s *Source) groupWaiting(now time.Time) {
	if s.grouped == 0 || len(s.settling) < togetherAcked || !s.mayPublish(now) {
		return // there are no batches, or few messages: each for itself
	}
	var waiting []*Message
	for m := range s.settling {
		if m.verdict != ack || m.wasSent {
			continue
		}
		if waiting = append(waiting, m); len(waiting) == togetherAcked {
			if !s.sendGroup(waiting, now) {
				return
			}
			waiting = nil
		}
	}
}

// dropGroups forgets groups that did not become whole.
func (s *Source) dropGroups(now time.Time) {
	for ; s.oldestGroup <= s.grouped; s.oldestGroup++ {
		if g := s.groups[s.oldestGroup]; g != nil && now.Sub(g.sentAt) < groupFor {
			return
		}
		delete(s.groups, s.oldestGroup)
	}
}

// confirmedOfGroup handles the server's answer to one ack of a group.
func (s *Source) confirmedOfGroup(number string, msg *nats.Msg) {
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[n]
	switch {
	case g == nil:
		return
	case msg.Header.Get("Status") == noResponders:
		// Nobody was there to hear one of them: all are sent again, each for itself.
		delete(s.groups, n)
		for _, m := range g.messages {
			m.sentAt = time.Time{}
		}
		s.suspect = true
		s.wake()
		return
	}
	if g.missing--; g.missing > 0 {
		return // what was heard is told with the last: they come together
	}
	now := time.Now()
	s.hears(now)
	s.confirmedAt = now
	delete(s.groups, n)
	for _, m := range g.messages {
		s.finish(m)
	}
	s.refill()
}

// groupOf is the number of the group that a confirmation is for.
func groupOf(rest string) (number string, ok bool) { return strings.CutPrefix(rest, groupPrefix) }
