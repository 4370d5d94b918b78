package dlq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

const (
	// finishFor is how long it is tried on to remove an entry that is handled, while NATS is away.
	finishFor = 15 * time.Second
	// removeFor is how long that is tried if the bucket of the claims did not answer for so long.
	removeFor = 5 * time.Second
	// finishPause is between two tries.
	finishPause = 250 * time.Millisecond
)

// run is a removal or a replay under way.
type run struct {
	s          *Service
	onProgress func(Progress)
	of         []Cursor // the DLQ streams of the selection

	mu       sync.Mutex
	report   Report
	failures Failures
	vanished []*vanished // of those in report.Gone
	held     held
}

func (s *Service) newRun(selected int, of []Cursor, onProgress func(Progress)) *run {
	return &run{s: s, of: of, onProgress: onProgress, report: Report{Progress: Progress{Selected: selected}}}
}

// note counts what became of an entry.
func (r *run) note(o Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.report.Progress
	p.Waiting = nil // said anew if it goes on
	switch o.Result {
	case Failed:
		p.Failed++
	case Kept:
		p.Kept++
	case Gone:
		p.Gone++
		p.Done++
	default:
		p.Done++
	}
	r.failures.Add(o)
	p.Last = &o
	if r.onProgress != nil {
		r.onProgress(*p)
	}
}

// end makes the report.
func (r *run) end(interrupted bool) *Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	rep := r.report
	rep.Last, rep.Waiting, rep.Failures = nil, nil, r.failures.List()
	rep.Interrupted = interrupted && rep.Done+rep.Failed+rep.Kept < rep.Selected
	return &rep
}

// removable reports an error if nothing can be removed from a DLQ stream: ErrAnew if it is not the one of the selection.
func (r *run) removable(ctx context.Context, stream string) error {
	state, err := r.s.conn.StreamState(ctx, stream)
	switch {
	case err != nil:
		return err
	case slices.ContainsFunc(r.of, func(c Cursor) bool { return c.Stream == stream && c.Made != state.Created.UnixNano() }):
		return anew(stream)
	case state.Keeps:
		return fmt.Errorf("nothing can be removed from stream %s: it is sealed, or has deny_delete", stream)
	}
	return nil
}

func anew(stream string) error { return fmt.Errorf("stream %s: %w", stream, ErrAnew) }

// isGone reports whether an error means that the DLQ stream of the selection is not there any more, and with it all its entries.
func isGone(err error) bool {
	return errors.Is(err, ErrAnew) || errors.Is(err, jetstream.ErrStreamNotFound)
}

// keepAlive renews the claims until the returned func is called, which waits for its end.
func (r *run) keepAlive(claims *jetstream.Claims) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var renewing sync.WaitGroup
	renewing.Go(func() {
		tick := time.NewTicker(jetstream.ClaimLease / 3)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			_ = claims.Renew(ctx) // tried again long before the claims end
		}
	})
	return func() { cancel(); renewing.Wait() }
}

// adopt removes what runs that died were done with.
func (r *run) adopt(ctx context.Context, claims *jetstream.Claims, stream string, dead [][]uint64) error {
	if len(dead) == 0 {
		return nil
	}
	if err := r.removable(ctx, stream); err != nil {
		return err
	}
	for _, parts := range dead {
		if _, err := r.s.remove(ctx, stream, parts); err != nil {
			return err
		}
	}
	return claims.Adopted(ctx)
}

// remove removes the parts of an entry, in order, and reports whether the first was there. The first of two goes first: a second part
// alone is what is left of an entry, never what is still to come.
func (s *Service) remove(ctx context.Context, stream string, parts []uint64) (was bool, err error) {
	for i, seq := range parts {
		there, err := s.conn.RemoveStored(ctx, stream, seq)
		if err != nil {
			return false, err
		}
		if i == 0 {
			was = there
		}
	}
	return was, nil
}

// finish removes an entry that is handled, and reports whether it did. That it is, is noted first, so that whoever comes after a kill
// removes it too and does not handle it again; where it cannot be noted it is removed all the same. The DLQ stream can be another one since the
// entry was read. While NATS is away it tries on for a while. also is what else is claimed with it.
func (r *run) finish(claims *jetstream.Claims, stream string, parts []uint64, also uint64) (noted, removed bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), r.s.finishFor)
	defer cancel()
	unnoted := persist(ctx, func(ctx context.Context) error { return claims.Done(ctx, parts) })
	noted = unnoted == nil
	if ctx.Err() != nil && r.s.conn.Connected() { // only the bucket does not answer
		last, end := context.WithTimeout(context.Background(), removeFor)
		defer end()
		ctx = last
	}
	err = persist(ctx, func(ctx context.Context) error {
		if err := r.removable(ctx, stream); err != nil {
			return err
		}
		_, err := r.s.remove(ctx, stream, parts)
		return err
	})
	removed = err == nil || isGone(err)
	switch {
	case err != nil:
		return noted, removed, err
	case unnoted != nil:
		return noted, removed, unnoted
	}
	return noted, removed, persist(ctx, func(ctx context.Context) error { return claims.Release(ctx, parts[0], also) })
}

// persist tries until it succeeds, cannot, or ctx ends.
func persist(ctx context.Context, try func(context.Context) error) error {
	for {
		err := try(ctx)
		if err == nil || !lost(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(finishPause):
		}
	}
}

// lost reports whether an error means that nothing can be done now, rather than that one entry cannot.
func lost(err error) bool {
	return errors.Is(err, jetstream.ErrNotConnected) || errors.Is(err, context.DeadlineExceeded)
}

// denied reports whether an error means that the user may not do that, with any entry.
func denied(err error) bool { return errors.Is(err, jetstream.ErrDenied) }

// stopped reports whether the run was asked to stop.
func stopped(ctx context.Context) bool { return ctx.Err() != nil }

// unlessStopped is an error that counts only if it does not come of the stop.
func unlessStopped(ctx context.Context, err error) error {
	if stopped(ctx) {
		return nil
	}
	return err
}

// left is an entry that stays for an error.
func left(status int, err error) *Outcome {
	return &Outcome{Result: Kept, Status: status, Why: err.Error()}
}
