package jetstream

import (
	"strings"
	"time"
)

// deniedUnder is when the server last refused a subject that begins so, within the last minute, for lack of permission.
func (c *Conn) deniedUnder(prefix string) (at time.Time, yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for text, when := range c.denials {
		if time.Since(when) < time.Minute && strings.Contains(text, `"`+prefix) {
			at, yes = later(at, when), true
		}
	}
	return at, yes
}

// ackSubject is what the subjects begin with that verdicts go to.
func (s *Source) ackSubject() string { return "$JS.ACK." + s.cfg.Stream + "." + s.cfg.Durable + "." }

// acksDenied reports whether the server refused verdicts for lack of permission, and confirmed none since.
func (s *Source) acksDenied() bool {
	at, denied := s.conn.deniedUnder(s.ackSubject())
	return denied && at.After(s.confirmedAt)
}
