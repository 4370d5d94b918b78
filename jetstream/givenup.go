package jetstream

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"strconv"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

const (
	// AdvisoryStream keeps the server's advisories that it gave up on a message, also those raised while no sidecar ran.
	AdvisoryStream = "sidecar-advisories"
	// advisorySubject is where the server says so, followed by the stream and the durable.
	advisorySubject = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES."
	// advisoryBytes bounds the advisory stream; the oldest make room.
	advisoryBytes = 64 << 20

	errMessageNotFound natsjs.ErrorCode = 10037
)

// GivenUp is a message that the server will not deliver any more: it reached the durable's MaxDeliver.
type GivenUp struct {
	Sequence   uint64    `json:"stream_seq"`
	Deliveries uint64    `json:"deliveries"`
	Time       time.Time `json:"timestamp"`
}

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

// ensureAdvisories makes the stream that keeps the advisories. With manage: none it is only used if it exists.
func (s *Source) ensureAdvisories(ctx context.Context) error {
	_, err := s.conn.streamInfo(ctx, AdvisoryStream)
	if !errors.Is(err, ErrStreamNotFound) || s.cfg.Manage == ManageNone {
		return err
	}
	source, err := s.conn.streamInfo(ctx, s.cfg.Stream)
	if err != nil {
		return err
	}
	ctx, cancel := s.conn.bounded(ctx, apiTimeout)
	defer cancel()
	_, err = s.conn.js.CreateStream(ctx, natsjs.StreamConfig{
		Name:        AdvisoryStream,
		Description: "messages that the server gave up on, for sidecars to dead-letter",
		Subjects:    []string{advisorySubject + ">"},
		Retention:   natsjs.WorkQueuePolicy,
		Storage:     natsjs.FileStorage,
		MaxBytes:    advisoryBytes,
		Discard:     natsjs.DiscardOld,
		Replicas:    max(source.Config.Replicas, 1),
	})
	if errors.Is(err, natsjs.ErrStreamNameAlreadyInUse) {
		return nil // another sidecar made it just now
	}
	if err != nil {
		return fmt.Errorf("creating stream %s: %w", AdvisoryStream, err)
	}
	return nil
}

// Advisories is a source of the advisories about this source's durable.
func (s *Source) Advisories(log *slog.Logger) *Source {
	sum := fnv.New128a()
	sum.Write([]byte(s.cfg.Stream + " " + s.cfg.Durable))
	return NewSource(s.conn, ConsumerConfig{
		Stream: AdvisoryStream, Durable: "sidecar-" + hex.EncodeToString(sum.Sum(nil)),
		FilterSubjects: []string{advisorySubject + s.cfg.Stream + "." + s.cfg.Durable},
		Manage:         s.cfg.Manage, Start: Start{Policy: natsjs.DeliverAllPolicy},
		AckWait: 30 * time.Second, MaxAckPending: 1000, Concurrency: 1, Prefetch: 15, MaxBytes: 1 << 20,
	}, log)
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
		StreamCreated: b.incarnation.stream, Header: stored.Header, HeaderLost: stored.HeaderLost,
	}, nil
}

// SettleGivenUp takes a message that the server gave up on out of the durable's books, and out of a work queue or interest
// stream. It returns once the server confirmed that. It does nothing to a durable made anew.
func (s *Source) SettleGivenUp(ctx context.Context, m *Message, reason string) error {
	info, err := s.conn.consumerInfo(ctx, s.cfg.Stream, s.cfg.Durable)
	if err != nil {
		return err
	}
	s.mu.Lock()
	same := s.bound != nil && s.bound.incarnation.stream.Equal(m.StreamCreated) && info.Created.Equal(s.bound.consumer)
	s.mu.Unlock()
	if !same {
		return nil
	}
	ctx, cancel := s.conn.bounded(ctx, apiTimeout)
	defer cancel()
	subject := "$JS.ACK." + s.cfg.Stream + "." + s.cfg.Durable + ".1." + strconv.FormatUint(m.Sequence, 10) + ".0.0.0"
	if _, err = s.conn.nc.RequestWithContext(ctx, subject, []byte("+TERM "+reason)); err != nil {
		return fmt.Errorf("settling message %d that the server gave up on: %w", m.Sequence, err)
	}
	return nil
}

// Stranded lists messages that the server gave up on and no advisory may tell of, in a work queue or in an interest stream of
// this one consumer: what was delivered, is still in the stream and is not pending. It is known only at a moment when all
// that is pending is leased here; else the answer is not sure, and the list empty.
func (s *Source) Stranded(ctx context.Context) (sequences []uint64, sure bool, err error) {
	stream, err := s.conn.streamInfo(ctx, s.cfg.Stream)
	if err != nil {
		return nil, false, err
	}
	c := stream.Config
	if c.Retention == natsjs.LimitsPolicy || c.Retention == natsjs.InterestPolicy && stream.State.Consumers != 1 {
		return nil, true, nil
	}
	before, err := s.conn.consumerInfo(ctx, s.cfg.Stream, s.cfg.Durable)
	if err != nil {
		return nil, false, err
	}
	subjects := filters(before.Config)
	if len(subjects) == 0 {
		subjects = []string{">"}
	}
	for _, subject := range subjects {
		found, err := s.deliveredAndThere(ctx, subject, before.Delivered.Stream)
		if err != nil {
			return nil, false, err
		}
		sequences = append(sequences, found...)
	}
	// What was pending before and is not leased here now, or was leased in between, is not known.
	s.mu.Lock()
	leased := len(s.leases)
	sequences = slices.DeleteFunc(sequences, func(n uint64) bool { return s.leases[n] != nil })
	s.mu.Unlock()
	after, err := s.conn.consumerInfo(ctx, s.cfg.Stream, s.cfg.Durable)
	if err != nil {
		return nil, false, err
	}
	quiet := after.Delivered.Consumer == before.Delivered.Consumer && after.NumAckPending == before.NumAckPending && after.NumAckPending == leased
	if !quiet && len(sequences) > 0 {
		return nil, false, nil
	}
	return sequences, true, nil
}

// maxStranded bounds one sweep.
const maxStranded = 10000

func (s *Source) deliveredAndThere(ctx context.Context, subject string, last uint64) ([]uint64, error) {
	var found []uint64
	for from := uint64(1); from <= last && len(found) < maxStranded; {
		m, err := s.storedNext(ctx, from, subject)
		if err != nil || m == nil || m.Sequence > last {
			return found, err
		}
		found = append(found, m.Sequence)
		from = m.Sequence + 1
	}
	return found, nil
}
