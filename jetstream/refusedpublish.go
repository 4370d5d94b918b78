package jetstream

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// awaited are the publishes to one subject that were not answered yet. A refusal does not say of which publish it is: all of them are refused once there
// are as many refusals. Until then, since some may be confirmed, none counts as refused, and no other publish to the subject begins, so that it is
// known soon.
type awaited struct {
	waiting []*publish
	refused int           // refusals that came
	over    chan struct{} // closed when it is known of which publishes they were

	left   int       // publishes that were given up early: the refusal may come yet
	leftAt time.Time // when the last one was
}

// publish is one that waits for its answer.
type publish struct {
	end   context.CancelCauseFunc
	began time.Time
}

// lateRefusal is how long a refusal may take to come.
const lateRefusal = 2 * time.Second

// maxAwaited bounds of how many subjects publishes are remembered that were given up.
const maxAwaited = 1000

// untilRefused is a context that also ends, with ErrDenied as its cause, when the server refuses the publish to the subject for which it is made: an
// answer never comes then. The returned func is to be called with what became of the publish.
func (c *Conn) untilRefused(ctx context.Context, subject string) (context.Context, func(error)) {
	ctx, cancel := context.WithCancelCause(ctx)
	for {
		own := &publish{cancel, time.Now()}
		a, over := c.await(subject, own)
		if over == nil {
			return ctx, func(err error) {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.answered(subject, a, own, err == nil || ctx.Err() == nil)
				cancel(nil)
			}
		}
		select {
		case <-over:
		case <-ctx.Done():
			return ctx, func(error) { cancel(nil) } // it is not made
		}
	}
}

// await adds a publish, or returns what to wait for before.
func (c *Conn) await(subject string, own *publish) (a *awaited, over <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a = c.awaiting[subject]
	if a != nil && len(a.waiting) == 0 && time.Since(a.leftAt) >= lateRefusal {
		c.settleRefused(subject, a)
		a = nil
	}
	switch {
	case a == nil:
		a = &awaited{over: make(chan struct{})}
		c.forgetLeft()
		c.awaiting[subject] = a
	case a.refused > 0 && len(a.waiting) > 0:
		return nil, a.over
	}
	a.waiting = append(a.waiting, own)
	return a, nil
}

// answered takes out a publish of which it is known what became, or that was given up. The caller holds c.mu.
func (c *Conn) answered(subject string, a *awaited, own *publish, known bool) {
	before := len(a.waiting)
	a.waiting = slices.DeleteFunc(a.waiting, func(other *publish) bool { return other == own })
	if len(a.waiting) == before || c.awaiting[subject] != a {
		return // it was refused, or the connection is another one
	}
	if !known && time.Since(own.began) < lateRefusal {
		a.left++
		a.leftAt = time.Now()
	}
	c.judgeRefused(subject, a)
}

// judgeRefused ends the publishes to a subject if there is a refusal for each. The caller holds c.mu.
func (c *Conn) judgeRefused(subject string, a *awaited) {
	if a.refused < len(a.waiting)+a.left {
		if len(a.waiting) == 0 {
			close(a.over) // nobody waits for what is left
			a.over = make(chan struct{})
		}
		return
	}
	for _, p := range a.waiting {
		p.end(deniedSubject(subject))
	}
	c.settleRefused(subject, a)
}

func (c *Conn) settleRefused(subject string, a *awaited) {
	a.waiting = nil
	close(a.over)
	delete(c.awaiting, subject)
}

// forgetLeft forgets publishes that were given up, where there are many. The caller holds c.mu.
func (c *Conn) forgetLeft() {
	if len(c.awaiting) < maxAwaited {
		return
	}
	for subject, a := range c.awaiting {
		if len(a.waiting) == 0 {
			c.settleRefused(subject, a)
		}
	}
}

// forgetAwaited is told that the connection broke: what was published over it is not answered any more. The caller holds c.mu.
func (c *Conn) forgetAwaited() {
	for subject, a := range c.awaiting {
		c.settleRefused(subject, a)
	}
}

// endRefused is told of a refusal, in the server's words.
func (c *Conn) endRefused(text string) {
	subject, ok := refusedPublish(text)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.awaiting[subject]; a != nil {
		a.refused++
		c.judgeRefused(subject, a)
	}
}

// refusedPublish is the subject that the server did not permit to be published to. It is quoted as Go does (nats-server client.go,
// pubPermissionViolation).
func refusedPublish(text string) (subject string, ok bool) {
	_, rest, ok := strings.Cut(text, "Permissions Violation for Publish to ")
	if !ok {
		return "", false
	}
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return "", false
	}
	subject, err = strconv.Unquote(quoted)
	return subject, err == nil
}
