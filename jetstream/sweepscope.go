package jetstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// sweptKey is the metadata of the durable that the advisories are leased from, which says what a sweep is over of.
const sweptKey = "sidecar-swept"

// sweepScope is what the server may have given up on with no advisory to tell of it: what was delivered before the advisories were
// kept. A durable that is edited later to take more delivers nothing of what it has passed, and that is not given up on.
type sweepScope struct {
	of       incarnation
	upTo     uint64   // what was delivered when the sweep began
	subjects []string // what the durable took then
	before   time.Time
	mark     string // what says that this was swept; empty: nothing can
	nothing  bool   // it was swept before, or all that the durable did is in the record
}

// scopeOf is what a sweep that begins now may find.
func (s *Source) scopeOf(ctx context.Context, of incarnation, info *natsjs.ConsumerInfo) (sweepScope, error) {
	c := sweepScope{of: of, upTo: info.Delivered.Stream, subjects: filters(info.Config)}
	if len(c.subjects) == 0 {
		c.subjects = []string{">"}
	}
	if s.due != nil {
		return c, nil
	}
	record, since, err := s.recorded(ctx)
	if err != nil || since.IsZero() {
		return c, err
	}
	c.before, c.nothing = since, !of.consumer.Before(since)
	if c.nothing || s.cfg.Manage == ManageNone || !since.Equal(record.Created) {
		return c, nil
	}
	mark := fmt.Sprintf("%d.%d.%d", record.Created.UnixNano(), of.stream.UnixNano(), of.consumer.UnixNano())
	reader, err := s.advisoryDurable(ctx)
	switch {
	case errors.Is(err, ErrDenied):
		return c, nil
	case err == nil:
		c.nothing = reader.Config.Metadata[sweptKey] == mark
	case !errors.Is(err, ErrConsumerNotFound):
		return c, err
	}
	c.mark = mark
	return c, nil
}

func (s *Source) advisoryDurable(ctx context.Context) (info *natsjs.ConsumerInfo, err error) {
	durable := s.advisoryConsumer().Durable
	err = s.conn.permitted(ctx, func(ctx context.Context) error {
		info, err = s.conn.consumerInfo(ctx, AdvisoryStream, durable)
		return err
	}, s.conn.prefix+"CONSUMER.INFO."+AdvisoryStream+"."+durable)
	return info, err
}

// Keep stores that the sweep is over, for the sweeps of later starts. It does nothing where that cannot be kept.
func (w *Sweep) Keep(ctx context.Context) error {
	s := w.source
	if w.scope.mark == "" || w.scope.nothing {
		return nil
	}
	reader, err := s.advisoryDurable(ctx)
	if err != nil {
		return err
	}
	c := reader.Config
	c.Metadata = maps.Clone(c.Metadata)
	if c.Metadata == nil {
		c.Metadata = map[string]string{}
	}
	c.Metadata[sweptKey] = w.scope.mark
	ctx, cancel := s.conn.bounded(ctx, apiTimeout)
	defer cancel()
	if _, err := s.conn.js().UpdateConsumer(ctx, AdvisoryStream, c); err != nil {
		return fmt.Errorf("keeping that a sweep is over: %w", err)
	}
	return nil
}

// atWorkElsewhere reports for each message whether it may be at work at another durable of the stream, which was edited since not to take it.
func (s *Source) atWorkElsewhere(ctx context.Context) (func(sequence uint64) bool, error) {
	var busy []*natsjs.ConsumerInfo
	for seen := 0; ; {
		var page struct {
			Total     int                    `json:"total"`
			Consumers []*natsjs.ConsumerInfo `json:"consumers"`
		}
		subject, request := "CONSUMER.LIST."+s.cfg.Stream, fmt.Appendf(nil, `{"offset":%d}`, seen)
		err := s.conn.permitted(ctx, func(ctx context.Context) error { return s.conn.api(ctx, subject, request, &page) }, s.conn.prefix+subject)
		if err != nil {
			return nil, fmt.Errorf("looking up the durables of stream %s: %w", s.cfg.Stream, err)
		}
		for _, c := range page.Consumers {
			if c.Name != s.cfg.Durable && c.NumAckPending > 0 {
				busy = append(busy, c)
			}
		}
		if seen += len(page.Consumers); len(page.Consumers) == 0 || seen >= page.Total {
			break
		}
	}
	return func(n uint64) bool {
		return slices.ContainsFunc(busy, func(c *natsjs.ConsumerInfo) bool { return c.AckFloor.Stream < n && n <= c.Delivered.Stream })
	}, nil
}

// recorded is the stream of the advisories, and since when it has all of them that are not handled; zero if that is not known.
func (s *Source) recorded(ctx context.Context) (record *natsjs.StreamInfo, since time.Time, err error) {
	subject := s.conn.prefix + "STREAM.INFO." + AdvisoryStream
	err = s.conn.permitted(ctx, func(ctx context.Context) error {
		record, err = s.conn.streamInfo(ctx, AdvisoryStream)
		return err
	}, subject)
	switch {
	case errors.Is(err, ErrStreamNotFound), errors.Is(err, ErrDenied):
		return nil, time.Time{}, nil
	case err != nil:
		return nil, time.Time{}, err
	}
	return record, recordedSince(record, s.advisories(), time.Now()), nil
}

// recordedSince is since when a stream has all advisories of a subject that are not handled; zero if it may lack any.
func recordedSince(record *natsjs.StreamInfo, subject string, now time.Time) time.Time {
	c, st := record.Config, record.State
	full := c.MaxBytes > 0 && st.Bytes > uint64(c.MaxBytes)*9/10 || c.MaxMsgs > 0 && st.Msgs >= uint64(c.MaxMsgs)
	if full || unfitAdvisories(c, subject, 0) != "" {
		return time.Time{}
	}
	if !record.TimeStamp.IsZero() {
		now = record.TimeStamp
	}
	if c.MaxAge > 0 {
		return later(record.Created, now.Add(-c.MaxAge))
	}
	return record.Created
}
