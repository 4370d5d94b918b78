package jetstream

import (
	"context"
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
	// limitsLast is how long it counts what was learnt of the server's limits.
	limitsLast = time.Hour
)

// limits are the server's limits on what is published, as far as it closed the connection over it. What it says of them when it is connected to may
// be of before a reload, or of another account.
type limits struct {
	mu      sync.Mutex
	line    int   // bytes at most; 0: nothing was learnt
	payload int64 // header block and body at most, in bytes; 0: nothing was learnt
	until   time.Time
	sent    map[*sending]struct{}
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
	l.line, l.payload = 0, 0
}

func (l *limits) fresh() {
	if time.Now().After(l.until) {
		l.line, l.payload = 0, 0
	}
}

// longest is the longest line that may be sent.
func (l *limits) longest() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.longestNow()
}

func (l *limits) longestNow() int {
	if l.fresh(); l.line > 0 {
		return l.line
	}
	return maxLine
}

// largest is the most bytes that may be sent, where the server says so many.
func (l *limits) largest(told int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fresh(); l.payload > 0 {
		return min(told, l.payload)
	}
	return told
}

// begin notes that a message is about to be published, or says why it must not be. Told is the most that the server says it takes; 0: that is not
// known.
func (l *limits) begin(msg *nats.Msg, told int64) (*sending, error) {
	s := measure(msg)
	largest := l.largest(told)
	l.mu.Lock()
	defer l.mu.Unlock()
	if longest := l.longestNow(); s.line > longest {
		return nil, fmt.Errorf("%w: its subject is too long: %d bytes in a line, of %d at most", ErrUnpublishable, s.line, longest)
	}
	if told > 0 && s.size > largest {
		return nil, fmt.Errorf("%w: %d bytes, of %d at most: %w", ErrUnpublishable, s.size, largest, nats.ErrMaxPayload)
	}
	l.sent[s] = struct{}{}
	return s, nil
}

func (l *limits) end(s *sending) (over string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sent, s)
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

// closed is told why the server closed the connection. Of what was not confirmed by then the longest, or the largest, certainly is too long for it.
func (l *limits) closed(why string) {
	why = strings.ToLower(why)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case strings.Contains(why, "maximum control line exceeded"):
		if s := most(l.sent, func(s *sending) int64 { return int64(s.line) }); s != nil {
			l.fresh()
			l.line, l.until = s.line-1, time.Now().Add(limitsLast)
			s.over = fmt.Sprintf("its subject makes a line of %d bytes, which is more than the server's max_control_line", s.line)
		}
	case strings.Contains(why, "maximum payload violation"):
		if s := most(l.sent, func(s *sending) int64 { return s.size }); s != nil {
			// By a good part less: of an entry that is a little smaller each time every single one would cost a connection.
			l.fresh()
			l.payload, l.until = s.size-s.size/4, time.Now().Add(limitsLast)
			s.over = fmt.Sprintf("its %d bytes are more than the max_payload of the server or the account", s.size)
		}
	}
}

// most is the one of which there is most.
func most(sent map[*sending]struct{}, of func(*sending) int64) *sending {
	var found *sending
	for s := range sent {
		if found == nil || of(s) > of(found) {
			found = s
		}
	}
	return found
}

// maxPayload is the most bytes, header block and body, that may be published in a message.
func (c *Conn) maxPayload() int64 { return c.limits.largest(c.mostPayload()) }

// maxSubjectNow is the longest subject of a message that may be published.
func (c *Conn) maxSubjectNow() int { return min(maxSubject, c.limits.longest()-lineRest) }

// publish stores a message in the stream that listens on its subject, and waits until that confirms it. It is ErrUnpublishable if the server would
// close the connection over it, or did: it is not stored then.
func (c *Conn) publish(ctx context.Context, msg *nats.Msg) (*natsjs.PubAck, error) {
	cl := c.client.Load()
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
	if over := c.limits.end(s); err != nil && over != "" {
		return nil, fmt.Errorf("%w: %s", ErrUnpublishable, over)
	}
	return ack, err
}
