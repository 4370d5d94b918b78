package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

const (
	// maxLine is the longest line of a publish, its subjects and sizes, that a server takes which was not configured otherwise (nats-server,
	// max_control_line). It closes the connection over a longer one, and never tells the limit.
	maxLine = 4096
	// replySubject is the length of the subject that a request is answered on.
	replySubject = len(nats.InboxPrefix) + 22 + 1 + 8
	// lineRest is the most that a line has besides the subject.
	lineRest = replySubject + 24
	// limitsLast is how long it counts what was learnt of max_control_line.
	limitsLast = time.Hour
)

// limits is what is known of the server's limits on what is published.
//
// It closes a connection over a message that is beyond its max_payload, or over a line beyond its max_control_line. The first it tells, of the account
// too, in the INFOs before and after each handshake (nats-server client.go, processPing). That is wrong only once it was changed by a reload, and
// closing over that makes another connection: so nobody is blamed for that, and what is too large is refused over the next connection. The second it
// never tells. It is less than the longest line of all that it may have read: what failed, or was given up, is among that.
type limits struct {
	mu    sync.Mutex
	line  int // bytes at most; 0: nothing was learnt
	until time.Time
	sent  map[*sending]struct{}

	number uint64 // of the connection over which that is:
	lost   int    // the longest line that was sent, got no answer and is waited for no more
	taken  int    // the longest line that was answered
}

// sending is a message that is published and not confirmed.
type sending struct {
	line int
	size int64
	over string // the server closed the connection over it: why
}

// forget is told of another connection: the server may have been configured anew.
func (l *limits) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line = 0
}

// over is told of a connection over which something was sent or answered.
func (l *limits) over(number uint64) {
	if number > l.number {
		l.number, l.lost, l.taken = number, 0, 0
	}
}

// longest is the longest line that may be sent.
func (l *limits) longest() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.longestNow()
}

func (l *limits) longestNow() int {
	if l.line > 0 && !time.Now().After(l.until) {
		return l.line
	}
	return maxLine
}

// begin notes that a message is about to be published, or says why it must not be. Told is the most that the server says it takes; 0: that is not
// known.
func (l *limits) begin(msg *nats.Msg, told int64) (*sending, error) {
	s := measure(msg)
	l.mu.Lock()
	defer l.mu.Unlock()
	if longest := l.longestNow(); s.line > longest {
		return nil, fmt.Errorf("%w: its subject is too long: %d bytes in a line, of %d at most", ErrUnpublishable, s.line, longest)
	}
	if told > 0 && s.size > told {
		return nil, fmt.Errorf("%w: %d bytes, of %d at most: %w", ErrUnpublishable, s.size, told, nats.ErrMaxPayload)
	}
	l.sent[s] = struct{}{}
	return s, nil
}

// end is told over which connection a message was answered, or was given up. It says why the server closed the connection over it; empty if it did not.
func (l *limits) end(s *sending, answered bool, number uint64) (over string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sent, s)
	l.over(number)
	switch {
	case answered:
		l.taken = max(l.taken, s.line)
	case s.over == "":
		l.lost = max(l.lost, s.line)
	}
	return s.over
}

// measure tells what the server measures of a request by which a message is published.
func measure(msg *nats.Msg) *sending {
	head := 0
	if len(msg.Header) > 0 {
		head = headerSize(msg.Header)
	}
	size := head + len(msg.Data)
	line := len(msg.Subject) + 1 + replySubject + 1 + len(fmt.Sprint(size))
	if head > 0 {
		line += len(fmt.Sprint(head)) + 1
	}
	return &sending{line: line, size: int64(size)}
}

// closed is told why the server closed a connection. It says nothing of a line where one as long was answered: it closed it over none of these then.
func (l *limits) closed(why string, number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over(number)
	longest := l.lost
	if !strings.Contains(strings.ToLower(why), "maximum control line exceeded") {
		return
	}
	for s := range l.sent {
		longest = max(longest, s.line)
	}
	if longest <= l.taken {
		return
	}
	l.line, l.until = longest-1, time.Now().Add(limitsLast)
	for s := range l.sent {
		if s.line == longest {
			s.over = fmt.Sprintf("its subject makes a line of %d bytes, which is more than the server's max_control_line", s.line)
		}
	}
}

// maxSubjectNow is the longest subject of a message that may be published.
func (c *Conn) maxSubjectNow() int { return min(maxSubject, c.limits.longest()-lineRest) }

// publish stores a message in the stream that listens on its subject, and waits until that confirms it. It is ErrUnpublishable if the server would
// close the connection over it, or is known to have done so: it is not stored then. The context has a deadline.
func (c *Conn) publish(ctx context.Context, msg *nats.Msg) (*natsjs.PubAck, error) {
	cl := c.client.Load()
	if err := c.hearLimits(ctx, cl.nc); err != nil {
		return nil, err
	}
	s, err := c.limits.begin(msg, c.mostPayload())
	if err != nil {
		return nil, err
	}
	ack, err := cl.js.PublishMsg(ctx, msg)
	if err != nil && cl.nc.IsClosed() {
		select {
		case <-cl.judged:
		case <-c.stopping.Done():
		case <-ctx.Done(): // with the connection: then it is judged, too
		}
	}
	if over := c.limits.end(s, isAnswer(err), c.dialer.tries.Load()); err != nil && over != "" {
		return nil, fmt.Errorf("%w: %s", ErrUnpublishable, over)
	}
	return ack, err
}

// isAnswer reports whether the error of a publish, or that there is none, is what was answered to it.
func isAnswer(err error) bool {
	var api *natsjs.APIError
	return err == nil || errors.As(err, &api) || errors.Is(err, natsjs.ErrInvalidJSAck) || errors.Is(err, natsjs.ErrNoStreamResponse)
}

// hearLimits waits, once over each connection, until the INFO is there that follows the handshake: it has the limits of the account.
func (c *Conn) hearLimits(ctx context.Context, nc *nats.Conn) error {
	number := c.dialer.tries.Load()
	if c.limitsOf.Load() == number {
		return nil
	}
	if !c.Connected() {
		return nats.ErrDisconnected
	}
	if err := nc.FlushWithContext(ctx); err != nil {
		return err
	}
	c.limitsOf.Store(number)
	return nil
}
