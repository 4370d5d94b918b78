package jetstream

import (
	"context"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// resubscribeFirst is how long a refused inbox waits until it is asked for again. That doubles to resubscribeMax while it is refused.
	resubscribeFirst = 5 * time.Second
	resubscribeMax   = time.Minute
)

// refusedSubject finds what the server did not permit.
var refusedSubject = regexp.MustCompile(`(?i)permissions violation for (publish|subscription) to "([^"]*)"`)

// parseRefusal takes the subject out of the server's words.
func parseRefusal(text string) (subject string, subscription, ok bool) {
	m := refusedSubject.FindStringSubmatch(text)
	if m == nil {
		return "", false, false
	}
	return m[2], strings.EqualFold(m[1], "subscription"), true
}

// refusedKind is what a refused subject has in common with all others of its kind: what follows differs with each message.
func (c *Conn) refusedKind(subject string) string {
	api, isAPI := strings.CutPrefix(subject, c.prefix)
	switch {
	case strings.HasPrefix(subject, "$JS.EVENT."):
		return subject
	case strings.HasPrefix(subject, "$JS.ACK."):
		return firstTokens(subject, 4) // stream and durable, or domain and account
	case strings.HasPrefix(api, "DIRECT.GET."):
		return firstTokens(api, 3)
	case isAPI && !strings.HasPrefix(api, "$KV."):
		return firstTokens(api, 5)
	case strings.HasPrefix(subject, nats.InboxPrefix):
		return nats.InboxPrefix
	}
	return firstTokens(api, 2)
}

// firstTokens are the first n tokens of a subject.
func firstTokens(subject string, n int) string {
	tokens := strings.SplitN(subject, ".", n+1)
	return strings.Join(tokens[:min(n, len(tokens))], ".")
}

// resubscribing is how the inboxes get back what the server refused them. It drops a subscription that the user may not have, also when a
// permission is taken under way, and the client sends it again over another connection only.
type resubscribing struct {
	wait    time.Duration   // before the next connection
	refused time.Time       // when an inbox was refused last
	over    context.Context // the life of the connection over which that was
	timer   *time.Timer
}

// resubscribe is told that an inbox was refused: some time later another connection is made, if the present one is still there.
func (c *Conn) resubscribe(subject string) {
	c.mu.Lock()
	wait, first := c.scheduleResubscribing(func() bool { return len(c.watchers) > 0 })
	c.mu.Unlock()
	if first {
		c.complain("resubscribe", "the user may not subscribe to an inbox: nothing comes until it may, connecting anew to ask again",
			slog.String("subject", subject), slog.Duration("in", wait))
	}
}

// scheduleResubscribing has another connection made in a while, if that is wanted by then. It reports false if one is to be made anyhow. The caller
// holds c.mu, and so does who calls wanted.
func (c *Conn) scheduleResubscribing(wanted func() bool) (wait time.Duration, first bool) {
	r, now := &c.resubscribing, time.Now()
	again := now.Sub(r.refused) < 2*resubscribeMax
	r.refused = now
	if r.over == c.life {
		return 0, false
	}
	if r.over = c.life; again {
		r.wait = min(2*r.wait, resubscribeMax)
	} else {
		r.wait = resubscribeFirst
	}
	life := c.life
	r.timer = time.AfterFunc(r.wait, func() { c.reconnect(life, wanted) })
	return r.wait, true
}

// reconnect makes another connection in place of one, if that is still there. Nobody's is cut for nothing: of a client that serves no source, or all of
// whose sources have what they need.
func (c *Conn) reconnect(life context.Context, wanted func() bool) {
	c.mu.Lock()
	if r := &c.resubscribing; life.Err() == nil && !wanted() {
		r.timer.Reset(r.wait)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	if life.Err() == nil {
		_ = c.nc().ForceReconnect() // fails only if it is closed
	}
}
