package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

const errMessageNotFound natsjs.ErrorCode = 10037

// GivenUp is a message that the server will not deliver any more: it reached the durable's MaxDeliver.
type GivenUp struct {
	Sequence   uint64    `json:"stream_seq"`
	Deliveries uint64    `json:"deliveries"`
	Time       time.Time `json:"timestamp"` // by the clock of the durable's leader
	Swept      bool      `json:"-"`         // no advisory told it: a sweep found it
}

// clocks is how far the clocks of two servers may be apart.
const clocks = time.Minute

// ParseAdvisory reads an advisory of the advisory stream.
func ParseAdvisory(body []byte) (GivenUp, error) {
	var g GivenUp
	if err := json.Unmarshal(body, &g); err != nil {
		return g, fmt.Errorf("reading an advisory: %w", err)
	}
	if g.Sequence == 0 {
		return g, errors.New("reading an advisory: it names no message")
	}
	return g, nil
}

// Limit is the durable's own limit on deliveries; 0 if it has none, or is not served now.
func (s *Source) Limit() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bound == nil {
		return 0
	}
	return max(s.bound.info.Config.MaxDeliver, 0)
}

// Holds reports whether a message is leased here now.
func (s *Source) Holds(sequence uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[sequence] != nil
}

// Stored reads a message of the stream by its sequence, as the stream has it; nil if it has none there. It is read from the
// stream's leader and not by direct get, which a publisher's headers can deceive and a replica that lags behind too.
func (s *Source) Stored(ctx context.Context, sequence uint64) (*Message, error) {
	return s.stored(ctx, map[string]any{"seq": sequence})
}

// storedNext reads the first message from a sequence on that matches the subject.
func (s *Source) storedNext(ctx context.Context, from uint64, subject string) (*Message, error) {
	return s.stored(ctx, map[string]any{"seq": from, "next_by_subj": subject})
}

func (s *Source) stored(ctx context.Context, request map[string]any) (*Message, error) {
	s.mu.Lock()
	b := s.bound
	s.mu.Unlock()
	if b == nil {
		return nil, ErrNotConnected
	}
	stored, err := s.conn.stored(ctx, s.cfg.Stream, request)
	if stored == nil || err != nil {
		return nil, err
	}
	return &Message{
		Subject: stored.Subject, Sequence: stored.Seq, Body: stored.Body, Stored: stored.Time,
		StreamCreated: b.incarnation.stream, Header: stored.Header, HeaderLost: stored.HeaderLost, size: stored.Size,
	}, nil
}

// Stale reports whether an advisory is of a message that had the sequence before the stream was made anew, and not of this one. The stream
// and the message have their times from one server, and the advisory from another: once the stream is older than their clocks may be apart,
// it is of this one, since a stream gives no sequence twice. Before, the durable's books count what it gave up on, if it is of this one.
func (s *Source) Stale(ctx context.Context, g GivenUp, m *Message) (bool, error) {
	switch {
	case g.Swept:
		return false, nil
	case g.Time.Before(m.StreamCreated):
		return true, nil
	case !m.Stored.After(g.Time), g.Time.After(m.StreamCreated.Add(clocks)):
		return false, nil
	}
	info, err := s.conn.consumerInfo(ctx, s.cfg.Stream, s.cfg.Durable)
	if err != nil {
		return false, err
	}
	counts := info.Config.MaxDeliver != 1 // a server counts none of a durable that delivers nothing again (consumer.go, infoWithSnapAndReply)
	return counts && info.NumRedelivered == 0 || m.Sequence > info.Delivered.Stream, nil
}

// SettleGivenUp takes a message that the server gave up on out of the durable's books, and out of a work queue or interest
// stream. It returns once the server confirmed that. It does nothing to a durable made anew, and is ErrNotConnected while none is served.
func (s *Source) SettleGivenUp(ctx context.Context, m *Message, reason string) error {
	info, err := s.conn.consumerInfo(ctx, s.cfg.Stream, s.cfg.Durable)
	if err != nil {
		return err
	}
	s.mu.Lock()
	b := s.bound
	s.mu.Unlock()
	switch {
	case b == nil:
		return ErrNotConnected
	case !b.same(incarnation{m.StreamCreated, info.Created}):
		return nil
	}
	ctx, cancel := s.conn.bounded(ctx, apiTimeout)
	defer cancel()
	subject := "$JS.ACK." + s.cfg.Stream + "." + s.cfg.Durable + ".1." + strconv.FormatUint(m.Sequence, 10) + ".0.0.0"
	if _, err = s.conn.nc().RequestWithContext(ctx, subject, []byte("+TERM "+reason)); err != nil {
		return fmt.Errorf("settling message %d that the server gave up on: %w", m.Sequence, err)
	}
	return nil
}
