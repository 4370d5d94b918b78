package jetstream

import (
	"context"
	"slices"
	"strconv"
	"strings"
)

// untilRefused is a context that also ends, with ErrDenied as its cause, when the server refuses the publish to the subject for which it is made: an
// answer never comes then. Of several publishes to one subject a refusal ends the one that has waited longest: they are refused in the order
// in which they are sent, each by itself. The returned func is to be called when the publish is over.
func (c *Conn) untilRefused(ctx context.Context, subject string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	own := &cancel
	c.mu.Lock()
	defer c.mu.Unlock()
	c.awaiting[subject] = append(c.awaiting[subject], own)
	return ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.notAwaiting(subject, own)
		cancel(nil)
	}
}

// notAwaiting takes out a publish. The caller holds c.mu.
func (c *Conn) notAwaiting(subject string, own *context.CancelCauseFunc) {
	left := slices.DeleteFunc(c.awaiting[subject], func(other *context.CancelCauseFunc) bool { return other == own })
	if c.awaiting[subject] = left; len(left) == 0 {
		delete(c.awaiting, subject)
	}
}

// endRefused ends the publish that the server's words are about, if one waits.
func (c *Conn) endRefused(text string) {
	subject, ok := refusedPublish(text)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if waiting := c.awaiting[subject]; len(waiting) > 0 {
		first := waiting[0]
		c.notAwaiting(subject, first)
		(*first)(deniedSubject(subject))
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
