package jetstream

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

const (
	// fullLasts is how long it counts that the server refused a subscription for the number of them: longer than until it is asked again.
	fullLasts = 2 * resubscribeMax
	// unheardFor is how long a pull request may be without a heartbeat, or a verdict without a confirmation, until its inbox is taken for refused.
	unheardFor = 3 * heartbeat

	tooManySubscriptions = "the server refuses subscriptions: their limit is reached (max_subscriptions of the server, or max_subs of the account)"
)

// refusedForLimit is told that the server refused a subscription since there are too many. It does not say which one, and drops it. What has too few
// shows by its silence: see starved. While there is any, another connection is made some time later, on which all is subscribed to anew.
func (c *Conn) refusedForLimit() {
	c.mu.Lock()
	c.full = time.Now()
	wait, first := c.scheduleResubscribing(func() bool { return len(c.starving) > 0 })
	c.mu.Unlock()
	if first {
		c.complain("subscriptions", tooManySubscriptions, slog.Duration("asked_again_in", wait))
	}
}

// isFull reports whether the server refused a subscription lately, over this connection, since there are too many.
func (c *Conn) isFull() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.full.IsZero() && time.Since(c.full) < fullLasts
}

// starves notes whether a source has too few subscriptions.
func (c *Conn) starves(s *Source, yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if yes {
		c.starving[s] = struct{}{}
	} else {
		delete(c.starving, s)
	}
}

// starved reports whether the inboxes of a source seem to be among the subscriptions that the server refused: its pull requests have no heartbeat, or
// its verdicts are not confirmed.
func (s *Source) starved(now time.Time) bool {
	if !s.conn.isFull() {
		return false
	}
	coming, _ := s.expected()
	if coming > 0 && now.Sub(later(s.heard, s.boundAt)) > unheardFor {
		return true
	}
	for m := range s.settling {
		if m.wasSent && now.Sub(later(m.firstSent, s.confirmedAt)) > unheardFor {
			return true
		}
	}
	return false
}

// saysFull puts the limit on subscriptions in the place of an error that comes of it: an answer that has no inbox to arrive in. All requests of a
// client have one inbox in common.
func (s *Source) saysFull(err error) (detail string) {
	if (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errUnanswered)) && s.conn.isFull() {
		s.conn.starves(s, true)
		return tooManySubscriptions
	}
	return oneLine(err.Error(), 300)
}

// hasLane reports whether a lane is heard of: then no other is made while there is no room for all that others need.
func (s *Source) hasLane(now time.Time) bool {
	for _, l := range s.lanes {
		if !l.exchange && !l.retired && l.heard && now.Sub(l.lastHeard) < unheardFor {
			return true
		}
	}
	return false
}

// yieldLanes gives up the lanes that have no request, but for one, while the server refuses subscriptions.
func (s *Source) yieldLanes(now time.Time) {
	if !s.conn.isFull() || !s.hasLane(now) {
		return
	}
	for _, l := range append([]*lane(nil), s.lanes...) {
		if l.open == 0 && !l.retired && (l.exchange || !l.heard || now.Sub(l.lastHeard) >= unheardFor) {
			s.retire(l)
		}
	}
}
