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
	refs, upTo, err := s.selection(ctx, f, true)
	if err != nil {
		return s.unselected(ctx, err)
	}
	r := &replay{
		run: s.newRun(len(refs), o.OnProgress), o: o, dead: map[*Consumer]*jetstream.DeadLetters{},
		newer: s.newerThan(f, refs), busy: map[uint64]bool{},
	}
	r.idle = sync.NewCond(&r.mu)
	if o.DryRun {
		return r.dry(ctx, refs, upTo)
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
	if err := r.newer.choose(ctx, refs); err != nil {
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
	if err := r.s.removable(ctx, stream); err != nil {
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

// one replays one entry. An error means that the others need not be tried. It is claimed together with its message: another entry can
// be of the same one.
func (r *replay) one(ctx context.Context, one ref) error {
	also := one.message().claim()
	defer r.alone(also)()
	if stopped(ctx) {
		return nil
	}
	work := context.WithoutCancel(ctx)
	claims := r.claims[one.stream]
	got, owner, err := claims.Take(work, one.seq(), also)
	if err != nil {
		return err
	}
	if len(got) < 2 {
		r.hold(one, owner)
		if len(got) > 0 {
			err = claims.Release(work, got...)
		}
		return err
	}
	handled, err := r.taken(ctx, one, also)
	if handled {
		return err
	}
	return errors.Join(err, claims.Release(work, got...))
}

// alone waits until nothing of a message is in work here. The caller calls end when its own is not any more.
func (r *replay) alone(message uint64) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.busy[message] {
		r.idle.Wait()
	}
	r.busy[message] = true
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.busy, message)
		r.idle.Broadcast()
	}
}

// taken replays an entry that is claimed. It returns true if the claim was given up with it.
func (r *replay) taken(ctx context.Context, one ref, also uint64) (handled bool, err error) {
	l, err := r.s.load(context.WithoutCancel(ctx), &one)
	if err != nil {
		return false, err
	}
	if l == nil {
		r.absent(one)
		return false, nil
	}
	if handled, err := r.superseded(ctx, one, also); handled || err != nil {
		return handled, err
	}
	now := refOf(&l.Entry)
	if why := r.unfit(&now); why != "" {
		r.note(Outcome{Entry: &l.Entry, Result: Kept, Why: why})
		return false, nil
	}
	if !r.turn(ctx) {
		return false, nil
	}
	var o *Outcome
	if r.o.To == ToStream {
		o, err = r.toStream(context.WithoutCancel(ctx), l)
	} else {
		o, err = r.toApp(ctx, l)
	}
	if o == nil || err != nil {
		return false, err
	}
	o.Entry = &l.Entry
	if o.Result == Kept {
		r.note(*o)
		return false, nil
	}
	if err := r.finish(r.claims[one.stream], one.stream, one.stored(), also); err != nil {
		return true, fmt.Errorf("entry %d of stream %s is %s and could not be removed, which a second run does: %w", one.seq(), one.stream, o.Result, err)
	}
	r.note(*o)
	return true, nil
}

// superseded removes a claimed entry that was answered already: a newer one of its message is there, or was when this run began.
func (r *replay) superseded(ctx context.Context, one ref, also uint64) (handled bool, err error) {
	if one.met { // who had it may have stored it anew since
		if err := r.newer.look(context.WithoutCancel(ctx), one.stream); err != nil {
			return false, err
		}
	}
	if superseded, _ := r.newer.than(&one); !superseded {
		return false, nil
	}
	if err := r.finish(r.claims[one.stream], one.stream, one.stored(), also); err != nil {
		return true, fmt.Errorf("entry %d of stream %s was replayed before and could not be removed, which a second run does: %w", one.seq(), one.stream, err)
	}
	r.absent(one)
	return true, nil
}

// absent counts an entry that is not there any more. What became of its message is told by a newer entry of it, if that is selected too.
func (r *replay) absent(one ref) {
	if _, chosen := r.newer.than(&one); chosen {
		r.note(Outcome{Entry: one.entry(), Result: Gone})
		return
	}
	r.vanish(one)
}

// turn waits as long as the rate says; false if the run stops first.
func (r *replay) turn(ctx context.Context) bool {
	return r.limiter == nil || r.limiter.Wait(ctx) == nil
}

// unfit is why an entry is not replayed at all; empty if it is.
func (r *replay) unfit(one *ref) string {
	switch {
	case one.half != "":
		return fmt.Sprintf("it is half a message: part %s alone", one.half)
	case r.o.MaxReplays > 0 && one.replays >= r.o.MaxReplays:
		return "it was replayed " + times(r.o.MaxReplays) + " already"
	case one.bare:
		return "it does not say its original subject"
	case one.at == 0:
		return "it does not say when its message was stored"
	case r.o.To == ToApp && r.s.consumer(one.source, one.consumer) == nil:
		return fmt.Sprintf("consumer %s of stream %s is not in this configuration, or has no DLQ there", one.consumer, one.source)
	}
	return ""
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
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
		case !ok:
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
