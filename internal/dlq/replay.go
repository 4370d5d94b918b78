package dlq

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/time/rate"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

// Replay replays the entries that the filter selects and that are there when it begins, in order of arrival whatever DLQ
// stream they are in, each once. An entry is gone when its replay succeeded, or when it is stored anew with the new cause. When
// ctx ends, what is in work is finished, unless it waits for a connection to the app, and the report says that it was
// interrupted. An error means that it could not go on (ErrAppAway, ErrNoClaims, NATS away); the report then says what was done.
//
// What survives a kill between any two steps of one entry:
//
//	claimed         the claim ends by itself; the entry is there
//	answered        the entry is there, and a second run calls the app again
//	stored anew     both are there; a second run removes the old one without a call, as superseded
//	noted as done   whoever comes next removes the entry
//	first of two    the same
//	removed         done
func (s *Service) Replay(ctx context.Context, f Filter, o ReplayOptions) (*Report, error) {
	if o.To == "" {
		o.To = ToApp
	}
	var look func(context.Context, *Entry)
	refused := s.newRefusals()
	if o.DryRun && o.To == ToStream {
		look = refused.look
	}
	refs, upTo, err := s.selection(ctx, f, true, look)
	if err != nil {
		return s.unselected(ctx, err)
	}
	r := &replay{
		run: s.newRun(len(refs), upTo, o.OnProgress), o: o, dead: map[*Consumer]*jetstream.DeadLetters{},
		newer: s.newerThan(f, refs), busy: map[uint64]bool{},
	}
	r.idle = sync.NewCond(&r.mu)
	if o.DryRun {
		return r.dry(ctx, refs, upTo, refused.why)
	}
	if o.Confirm != nil {
		if err := o.Confirm(len(refs)); err != nil {
			return r.end(ctx.Err() != nil), err
		}
	}
	if o.To == ToApp && len(refs) > 0 {
		if err := s.appThere(ctx); err != nil {
			return r.end(ctx.Err() != nil), err
		}
	}
	if o.Rate > 0 {
		r.limiter = rate.NewLimiter(rate.Limit(o.Rate), 1)
	}
	if err = r.pass(ctx, refs); err == nil {
		err = r.settle(ctx)
	}
	return r.end(ctx.Err() != nil), err
}

// replay is a Replay under way.
type replay struct {
	*run
	o       ReplayOptions
	limiter *rate.Limiter // nil: no limit
	dead    map[*Consumer]*jetstream.DeadLetters
	claims  map[string]*jetstream.Claims // by DLQ stream

	newer *newer

	busy map[uint64]bool // claims of messages that are in work here; guarded by run.mu
	idle *sync.Cond      // one less is
}

// pass replays entries: first all, then again those that others had in work. Nothing is replayed before all their DLQ streams are claimed.
func (r *replay) pass(ctx context.Context, refs []ref) error {
	r.claims = map[string]*jetstream.Claims{}
	for _, name := range streamsOf(refs) {
		claims, err := r.open(ctx, name)
		if claims != nil {
			defer r.close(claims)
			defer r.keepAlive(claims)()
		}
		if err != nil || stopped(ctx) {
			return unlessStopped(ctx, err)
		}
	}
	r.prepare(ctx)
	if err := r.newer.choose(ctx, refs, r.claims); err != nil {
		return unlessStopped(ctx, err)
	}
	if err := r.all(ctx, refs); err != nil {
		return err
	}
	for len(r.held.refs) > 0 && ctx.Err() == nil {
		refs, err := r.waited(ctx, r.claims)
		if err == nil {
			err = r.all(ctx, refs)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// open makes the claims on a DLQ stream, and does first what runs that died left to do. Claims that are returned are to be closed, also
// beside an error.
func (r *replay) open(ctx context.Context, stream string) (*jetstream.Claims, error) {
	if err := r.removable(ctx, stream); err != nil {
		return nil, err
	}
	source, manage := r.s.bucketOf(stream)
	claims, dead, err := r.s.conn.OpenClaims(ctx, stream, source, manage, newID(), owner())
	switch {
	case err != nil && (lost(err) || stopped(ctx)):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w, and two replays at once would deliver them twice: %w", ErrNoClaims, err)
	}
	r.claims[stream] = claims
	return claims, r.adopt(ctx, claims, stream, dead)
}

// all replays entries, as many at a time as was asked for.
func (r *replay) all(ctx context.Context, refs []ref) error {
	return each(ctx, max(r.o.Concurrency, 1), refs, r.one)
}

// load reads a selected entry again; nil if it is not there any more.
func (s *Service) load(ctx context.Context, one *ref) (*Letter, error) {
	var all *Letter
	for _, seq := range one.stored() {
		m, err := s.conn.Stored(ctx, one.stream, seq)
		if errors.Is(err, jetstream.ErrStreamNotFound) || err == nil && m == nil {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		e, ok := parse(one.stream, m)
		switch {
		case !ok, all == nil && !m.Time.Equal(one.time): // of a stream made anew
			return nil, nil
		case all == nil:
			all = letter(e, m.Header, m.Body)
		case e.letterKey() != all.letterKey():
			return nil, nil
		default:
			all.join(e.parts[0])
			all.setBody(append(all.Body, m.Body...))
		}
	}
	return all, nil
}

// bucketOf says for which stream the bucket of claims may be made.
func (s *Service) bucketOf(dlqStream string) (source string, manage jetstream.Manage) {
	manage = jetstream.ManageNone
	for _, c := range s.consumers {
		if jetstream.DeadLetterStream(c.DLQ, c.Stream, c.Durable) != dlqStream {
			continue
		}
		if source == "" || manage == jetstream.ManageNone {
			source, manage = c.Stream, c.Manage
		}
	}
	return source, manage
}
