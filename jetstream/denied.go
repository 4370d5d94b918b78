package jetstream

import (
	"context"
	"errors"
	"strings"
	"time"
)

// deniedSubject is ErrDenied for a subject that the user may not publish to.
type deniedSubject string

func (d deniedSubject) Error() string        { return "the user may not publish to " + string(d) }
func (d deniedSubject) Is(target error) bool { return target == ErrDenied }

// permitted has a request made that is published to one of these subjects. It ends as soon as the server refuses that, which it does not answer,
// and the error then is ErrDenied and names the subject.
func (c *Conn) permitted(ctx context.Context, request func(context.Context) error, subjects ...string) error {
	var err error
	for _, subject := range subjects {
		var answered func(error)
		ctx, answered = c.untilRefused(ctx, subject)
		defer func() { answered(err) }()
	}
	err = request(ctx)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, ErrDenied) {
		return cause
	}
	return err
}

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

// ackSubject is what the subjects begin with that verdicts go to: as those of the last message did, which have domain and account in them on some
// servers.
func (s *Source) ackSubject() string {
	if s.acks != "" {
		return s.acks
	}
	return "$JS.ACK." + s.cfg.Stream + "." + s.cfg.Durable + "."
}

// noteReply is told where the verdict over a message goes to.
func (s *Source) noteReply(reply string) {
	if s.acks != "" && strings.HasPrefix(reply, s.acks) {
		return
	}
	names := "." + s.cfg.Stream + "." + s.cfg.Durable + "."
	if i := strings.Index(reply, names); i >= 0 {
		s.acks = reply[:i+len(names)]
	}
}

// acksDenied reports whether the server refused verdicts for lack of permission, and confirmed none since.
func (s *Source) acksDenied() bool {
	at, denied := s.conn.deniedUnder(s.ackSubject())
	return denied && at.After(s.confirmedAt)
}
