package jetstream

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
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
	// advisoryMost is the size in bytes that an advisory has at most: names have up to 255 bytes each.
	advisoryMost = 2 << 10
	// advisoryPause is how long an advisory waits that cannot be handled now.
	advisoryPause = 5 * time.Second
)

// ensureAdvisories makes the stream that keeps the advisories about the durables of a stream, or says what one that is there lacks.
// With manage: none it is only used, with manage: update it gets as many replicas as that stream has.
func (s *Source) ensureAdvisories(ctx context.Context, source natsjs.StreamConfig) error {
	info, err := s.conn.streamInfo(ctx, AdvisoryStream)
	if errors.Is(err, ErrStreamNotFound) && s.cfg.Manage != ManageNone {
		return s.createAdvisories(ctx, source.Replicas)
	}
	if err != nil {
		return err
	}
	have := info.Config
	if have.Replicas < source.Replicas && s.cfg.Manage == ManageUpdate {
		have.Replicas = source.Replicas
		if err := s.updateAdvisories(ctx, have); err != nil {
			return err
		}
	}
	if why := unfitAdvisories(have, s.advisories(), source.Replicas); why != "" {
		return fmt.Errorf("stream %s: %s", AdvisoryStream, why)
	}
	return nil
}

func (s *Source) createAdvisories(ctx context.Context, replicas int) error {
	_, err := s.conn.createStream(ctx, natsjs.StreamConfig{
		Name:        AdvisoryStream,
		Description: "messages that the server gave up on, for sidecars to dead-letter",
		Subjects:    []string{advisorySubject + ">"},
		Retention:   natsjs.WorkQueuePolicy,
		Storage:     natsjs.FileStorage,
		MaxBytes:    advisoryBytes,
		Discard:     natsjs.DiscardOld,
		Replicas:    max(replicas, 1),
	})
	if errors.Is(err, natsjs.ErrStreamNameAlreadyInUse) {
		return nil // another sidecar made it just now
	}
	if err != nil {
		return fmt.Errorf("creating stream %s: %w", AdvisoryStream, err)
	}
	return nil
}

func (s *Source) updateAdvisories(ctx context.Context, c natsjs.StreamConfig) error {
	ctx, cancel := s.conn.bounded(ctx, apiTimeout)
	defer cancel()
	if _, err := s.conn.js().UpdateStream(ctx, c); err != nil {
		return fmt.Errorf("changing stream %s to %d replicas: %w", AdvisoryStream, c.Replicas, err)
	}
	return nil
}

// unfitAdvisories says why a stream may not have all advisories of a subject, or nothing.
func unfitAdvisories(c natsjs.StreamConfig, subject string, replicas int) string {
	switch {
	case !slices.ContainsFunc(c.Subjects, func(s string) bool { return includes(s, subject) }):
		return "it does not listen on " + subject
	case c.Retention == natsjs.InterestPolicy:
		return "by its retention (interest) it keeps only what a durable waits for"
	case c.Sealed:
		return "it is sealed"
	case c.SubjectTransform != nil:
		return "it has a subject transform: what it keeps would not be found"
	case c.MaxMsgSize > 0 && c.MaxMsgSize < advisoryMost:
		return fmt.Sprintf("it refuses messages of more than %d bytes (max_msg_size)", c.MaxMsgSize)
	case c.MaxMsgsPerSubject > 0:
		return fmt.Sprintf("it keeps %d messages of a subject (max_msgs_per_subject)", c.MaxMsgsPerSubject)
	case c.Replicas < replicas:
		return fmt.Sprintf("it has replicas: %d and the stream %d", c.Replicas, replicas)
	}
	return ""
}

// advisories is the subject of the advisories about this durable.
func (s *Source) advisories() string { return advisorySubject + s.cfg.Stream + "." + s.cfg.Durable }

// EachAdvisory hands the advisories about this durable to handle, one by one, until ctx ends. One that handle says is not done is
// handed to it again some seconds later, by this sidecar or another of the durable.
func (s *Source) EachAdvisory(ctx context.Context, log *slog.Logger, handle func(context.Context, []byte) (done bool)) error {
	if s.cfg.Manage == ManageNone {
		(&advisoryReader{source: s, log: log, handle: handle}).run(ctx)
		return nil
	}
	return s.leaseAdvisories(ctx, log, handle)
}

// leaseAdvisories leases them from a durable, as messages are leased.
func (s *Source) leaseAdvisories(ctx context.Context, log *slog.Logger, handle func(context.Context, []byte) (done bool)) (err error) {
	leases := NewSource(s.conn, s.advisoryConsumer(), log)
	leases.Pull(PullAll)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() {
		defer cancel()
		err = leases.Run(ctx)
	})
	for m := leases.Next(ctx); m != nil; m = leases.Next(ctx) {
		switch {
		case handle(ctx, m.Body):
			m.Ack()
		case ctx.Err() != nil:
			m.HandBack()
		default:
			m.Nak(halfRandom(advisoryPause))
		}
	}
	running.Wait()
	return err
}

func (s *Source) advisoryConsumer() ConsumerConfig {
	sum := fnv.New128a()
	sum.Write([]byte(s.cfg.Stream + " " + s.cfg.Durable))
	return ConsumerConfig{
		Stream: AdvisoryStream, Durable: "sidecar-" + hex.EncodeToString(sum.Sum(nil)), FilterSubjects: []string{s.advisories()},
		Manage: s.cfg.Manage, Start: Start{Policy: natsjs.DeliverAllPolicy},
		AckWait: 30 * time.Second, MaxAckPending: 1000, Concurrency: 1, Prefetch: 15, MaxBytes: 1 << 20,
	}
}

// halfRandom is between half of d and all of it.
func halfRandom(d time.Duration) time.Duration { return d/2 + rand.N(d/2) }
