package jetstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// OriginalHeader is the header of an entry, or of a message, as far as it may be published again: without Dlq headers, without those
// that command the server, and without names that cannot be published.
func OriginalHeader(h map[string][]string) map[string][]string {
	original := make(map[string][]string, len(h))
	for name, values := range h {
		if isCommand(name) || isDeadLetterHeader(name) || !validName(name) {
			continue
		}
		original[name] = slices.Clone(values)
	}
	return original
}

func isDeadLetterHeader(name string) bool {
	return len(name) >= 4 && strings.EqualFold(name[:4], "Dlq-")
}

// Errors of Republish.
var (
	// ErrNotTaken means that the stream does not listen on the subject, so that nothing was published.
	ErrNotTaken = errors.New("the stream does not listen on the subject")
	// ErrNotVerified means that the server takes a publish for a duplicate, and the stream does not have the message.
	ErrNotVerified = errors.New("the server says that the stream has it, and it is not there")
)

// Republish publishes a message to the stream that it came from, under an id of its own, and returns once the stream confirmed it.
// An id that the stream knows means that an earlier call stored it; that is held against what the stream has there.
func (c *Conn) Republish(ctx context.Context, stream, subject, id string, header map[string][]string, body []byte) error {
	state, err := c.StreamState(ctx, stream)
	if err != nil {
		return err
	}
	if !state.takes(subject) {
		return fmt.Errorf("%w: stream %s, subject %s", ErrNotTaken, stream, oneLine(subject, 200))
	}
	msg := &nats.Msg{Subject: subject, Header: make(nats.Header, len(header)+1), Data: body}
	for name, values := range header {
		msg.Header[name] = values
	}
	msg.Header[natsjs.MsgIDHeader] = []string{id}
	within, cancel := c.bounded(ctx, putTimeout)
	defer cancel()
	var ack *natsjs.PubAck
	err = c.permitted(within, func(ctx context.Context) (err error) {
		ack, err = c.publish(ctx, msg)
		return err
	}, subject)
	switch {
	case errors.Is(err, ErrUnpublishable):
		return fmt.Errorf("publishing to stream %s: %w", stream, err)
	case err != nil && (isAway(err) || errors.Is(context.Cause(within), ErrNotConnected)):
		return ErrNotConnected
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("publishing to stream %s: not confirmed within %s", stream, putTimeout)
	case err != nil:
		return fmt.Errorf("publishing to stream %s: %w", stream, err)
	case ack.Stream != stream:
		return fmt.Errorf("publishing to stream %s: stream %s took it", stream, ack.Stream)
	case ack.Duplicate:
		return c.verify(ctx, stream, ack.Sequence, subject, id, state)
	}
	return nil
}

// takes reports whether a stream stores what is published on a subject.
func (s *StreamState) takes(subject string) bool {
	return !s.Sealed && slices.ContainsFunc(s.Listens, func(pattern string) bool { return includes(pattern, subject) })
}

// RepublishHead is the size of the headers of a message that is published again under an id.
func RepublishHead(id string, header map[string][]string) int64 {
	h := nats.Header(maps.Clone(header))
	h[natsjs.MsgIDHeader] = []string{id}
	return int64(headerSize(h))
}

// Refusal says why Republish of a message of this size, with headers, would be refused for certain; empty if it need not be. It goes by what the
// stream is now and by what the server tells of itself.
func (c *Conn) Refusal(stream string, state *StreamState, subject string, size int64) string {
	switch most := c.mostPayload(); {
	case state.Sealed:
		return fmt.Sprintf("stream %s is sealed", stream)
	case !state.takes(subject):
		return fmt.Sprintf("stream %s does not listen on its subject", stream)
	case strings.ContainsAny(subject, " \t\r\n") || slices.Contains(strings.Split(subject, "."), ""):
		return "its subject is invalid"
	case most > 0 && size > most:
		return fmt.Sprintf("it is larger than the %d bytes that the server takes (max_payload)", most)
	case state.MostBytes > 0 && size > state.MostBytes:
		return fmt.Sprintf("it is larger than the %d bytes that stream %s takes (max_msg_size)", state.MostBytes, stream)
	}
	return ""
}

// verify looks whether a stream has a message where the server says that it is. A stream that drops what was consumed need not
// have it any more, and one that gives messages other subjects has it under another.
func (c *Conn) verify(ctx context.Context, stream string, seq uint64, subject, id string, state StreamState) error {
	m, err := c.Stored(ctx, stream, seq)
	switch {
	case err != nil:
		return err
	case m == nil && state.Consumes:
		return nil
	case m == nil, len(state.Subjects) > 0 && m.Subject != subject, !slices.Equal(m.Header[natsjs.MsgIDHeader], []string{id}):
		return fmt.Errorf("%w: stream %s, sequence %d", ErrNotVerified, stream, seq)
	}
	return nil
}

// RepublishID is the id under which an entry is published again: no other message has it.
func RepublishID(dlqStream string, seq uint64, stored time.Time) string {
	return fmt.Sprintf("%s:%d:%d", dlqStream, seq, stored.UnixNano())
}
