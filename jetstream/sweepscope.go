package jetstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Metadata of the durable that the advisories are leased from: what a sweep is over of, and what the source's durable has taken so far.
const (
	sweptKey = "sidecar-swept"
	tookKey  = "sidecar-took"
	mostTook = 4096 // bytes of subjects; of more it is said that they are all
)

// sweepScope is what the server may have given up on with no advisory to tell of it. What was delivered before the advisories were kept
// is told once. Of what came since, an advisory may be lost: that is told where the durable's books count all of it. A durable that is
// edited to take more delivers nothing of what it has passed, and that is not given up on.
type sweepScope struct {
	of       incarnation
	upTo     uint64   // what was delivered when the sweep began
	subjects []string // what the durable took then
	took     []string // what it is known to have taken ever, so that its books may count messages of it
	before   time.Time
	swept    bool   // what was stored before was told, or is in the record too
	mark     string // what says that it was told; empty: nothing can
	keeps    bool   // what it took can be kept
}

// scopeOf is what a sweep that begins now may find.
func (s *Source) scopeOf(ctx context.Context, of incarnation, info *natsjs.ConsumerInfo) (sweepScope, error) {
	c := sweepScope{of: of, upTo: info.Delivered.Stream, subjects: filters(info.Config)}
	if len(c.subjects) == 0 {
		c.subjects = []string{">"}
	}
	c.took = c.subjects
	if s.due != nil {
		return c, nil
	}
	record, since, err := s.recorded(ctx)
	if err != nil || since.IsZero() {
		return c, err
	}
	c.before, c.swept = since, !of.consumer.Before(since)
	if s.cfg.Manage == ManageNone {
		return c, nil
	}
	reader, err := s.advisoryDurable(ctx)
	switch {
	case errors.Is(err, ErrDenied):
		return c, nil
	case err != nil && !errors.Is(err, ErrConsumerNotFound):
		return c, err
	}
	c.keeps = true
	if !c.swept && since.Equal(record.Created) {
		c.mark = fmt.Sprintf("%d.%s", record.Created.UnixNano(), of.key())
	}
	if err == nil {
		c.swept = c.swept || c.mark != "" && reader.Config.Metadata[sweptKey] == c.mark
		c.took = tookToo(reader.Config.Metadata[tookKey], of, c.subjects)
	}
	return c, nil
}

// early reports whether a message was stored before its advisory would have been kept, on a subject that the durable took when the sweep began.
func (c *sweepScope) early(m *Message) bool {
	return !c.swept && (c.before.IsZero() || m.Stored.Before(c.before)) && listens(c.subjects, m.Subject)
}

// tookToo adds subjects to those that are kept of a durable.
func tookToo(kept string, of incarnation, subjects []string) []string {
	took := slices.Clone(subjects)
	if known := strings.Fields(kept); len(known) > 0 && known[0] == of.key() {
		took = append(took, known[1:]...)
	}
	slices.Sort(took)
	if took = slices.Compact(took); len(strings.Join(took, " ")) > mostTook {
		return []string{">"}
	}
	return took
}

func (s *Source) advisoryDurable(ctx context.Context) (info *natsjs.ConsumerInfo, err error) {
	durable := s.advisoryConsumer().Durable
	err = s.conn.permitted(ctx, func(ctx context.Context) error {
		info, err = s.conn.consumerInfo(ctx, AdvisoryStream, durable)
		return err
	}, s.conn.prefix+"CONSUMER.INFO."+AdvisoryStream+"."+durable)
	return info, err
}

// Keep stores that the sweep is over, and what the durable took, for the sweeps of later starts. It does nothing where that cannot be kept.
func (w *Sweep) Keep(ctx context.Context) error {
	s := w.source
	if !w.scope.keeps {
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
	if w.scope.mark != "" {
		c.Metadata[sweptKey] = w.scope.mark
	}
	c.Metadata[tookKey] = w.scope.of.key() + " " + strings.Join(w.scope.took, " ")
	if maps.Equal(c.Metadata, reader.Config.Metadata) {
		return nil
	}
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
