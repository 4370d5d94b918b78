package dlq

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

const (
	removeBatch   = 128 // entries that are claimed together
	removeWorkers = 8
	// halfMayGrow is how young a first part alone must be for its second to be on its way.
	halfMayGrow = time.Minute
)

// Remove removes the entries that the filter selects and that are there when it begins. Between two entries it stops when
// ctx ends, and says so in the report. An error means that it could not go on; the report then says what was done.
func (s *Service) Remove(ctx context.Context, f Filter, o RemoveOptions) (*Report, error) {
	refs, upTo, err := s.selection(ctx, f, false, nil)
	if err != nil {
		return s.unselected(ctx, err)
	}
	r := s.newRun(len(refs), upTo, o.OnProgress)
	if o.DryRun {
		return r.dry(refs, upTo, f.explicit()), nil
	}
	if o.Confirm != nil {
		if err := o.Confirm(len(refs)); err != nil {
			return r.end(false), err
		}
	}
	for _, some := range byStream(refs) {
		if err := r.removeFrom(ctx, some, f.explicit()); err != nil {
			return r.end(ctx.Err() != nil), err
		}
	}
	err = r.settle(ctx)
	return r.end(ctx.Err() != nil), err
}

// removeFrom removes entries of one DLQ stream. Those in replay are tried again for as long as a run that died can hold them. Without the bucket of claims nobody can be replaying.
func (r *run) removeFrom(ctx context.Context, refs []ref, explicit bool) error {
	stream := refs[0].stream
	if err := r.removable(ctx, stream); err != nil {
		return unlessStopped(ctx, err)
	}
	claims, dead, err := r.s.conn.OpenClaims(ctx, stream, "", jetstream.ManageNone, newID(), owner())
	switch {
	case err == nil:
		defer r.close(claims)
		defer r.keepAlive(claims)()
		if err := r.adopt(ctx, claims, stream, dead); err != nil {
			return err
		}
	case lost(err) || stopped(ctx):
		return unlessStopped(ctx, err)
	case !jetstream.IsNoBucket(err):
		r.s.log.Warn("dead letters are removed without looking whether they are in replay", slog.String("error", err.Error()))
	}
	if err := r.removeThese(ctx, claims, refs, explicit); err != nil {
		return err
	}
	for end := time.Now().Add(r.s.leaseEnds); len(r.held.refs) > 0 && !stopped(ctx) && time.Now().Before(end); {
		again, err := r.waited(ctx, map[string]*jetstream.Claims{stream: claims})
		if err == nil {
			err = r.removeThese(ctx, claims, again, explicit)
		}
		if err != nil {
			return err
		}
	}
	r.leaveHeld(ctx)
	return nil
}

// leaveHeld leaves the entries that somebody else still has in work, unless it was stopped before that was known.
func (r *run) leaveHeld(ctx context.Context) {
	for _, one := range r.held.refs {
		if stopped(ctx) {
			break
		}
		r.note(Outcome{Entry: one.entry(), Result: Kept, Why: "it is in work by " + r.held.owner})
	}
	r.held.refs = nil
}

// removeThese removes entries, a batch after the other, until ctx ends.
func (r *run) removeThese(ctx context.Context, claims *jetstream.Claims, refs []ref, explicit bool) error {
	for batch := range slices.Chunk(refs, removeBatch) {
		if ctx.Err() != nil {
			return nil
		}
		if err := r.removeBatch(ctx, claims, batch, explicit); err != nil {
			return err
		}
	}
	return nil
}

// close ends the claims; those of a run that cannot say so end by themselves.
func (r *run) close(claims *jetstream.Claims) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := claims.Close(ctx); err != nil {
		r.s.log.Debug("claims on dead letters end by themselves", slog.String("error", err.Error()))
	}
}

// removeBatch removes entries that it claims; without claims (nil) all.
func (r *run) removeBatch(ctx context.Context, claims *jetstream.Claims, batch []ref, explicit bool) error {
	work := context.WithoutCancel(ctx)
	if err := r.removable(work, batch[0].stream); err != nil {
		return err
	}
	got, seqs := batch, make([]uint64, len(batch))
	for i := range batch {
		seqs[i] = batch[i].seq()
	}
	if claims != nil {
		taken, by, err := claims.Take(work, seqs...)
		if err != nil {
			return err
		}
		got = nil
		for i := range batch {
			if slices.Contains(taken, batch[i].seq()) {
				got = append(got, batch[i])
			} else {
				r.hold(batch[i], by)
			}
		}
	}
	err := r.removeAll(ctx, got, explicit)
	if claims != nil {
		err = errors.Join(err, claims.Release(work, seqs...))
	}
	return err
}

// removeAll removes entries, several at a time. It returns the first error that means that the rest need not be tried.
func (r *run) removeAll(ctx context.Context, refs []ref, explicit bool) error {
	return each(ctx, min(removeWorkers, len(refs)), refs, func(ctx context.Context, one ref) error {
		return r.removeOne(context.WithoutCancel(ctx), one, explicit)
	})
}

func (r *run) removeOne(ctx context.Context, one ref, explicit bool) error {
	if why := unripe(&one, explicit); why != "" {
		r.note(Outcome{Entry: one.entry(), Result: Kept, Why: why})
		return nil
	}
	was, err := r.s.remove(ctx, one.stream, one.stored())
	switch {
	case err != nil && (lost(err) || denied(err)):
		return err
	case err != nil:
		r.note(Outcome{Entry: one.entry(), Result: Kept, Why: err.Error()})
	case was:
		r.note(Outcome{Entry: one.entry(), Result: Removed})
	default:
		r.vanish(one)
	}
	return nil
}

// unripe is why an entry is not removed yet, among others; empty if it is.
func unripe(one *ref, explicit bool) string {
	if one.half != firstPart || explicit || time.Since(one.time) >= halfMayGrow {
		return ""
	}
	return "its second part may be on its way: remove it by its sequence alone, or in a minute"
}
