package dlq

import (
	"context"
	"errors"
	"fmt"
)

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
		if err := r.removable(context.WithoutCancel(ctx), one.stream); err != nil {
			return false, err
		}
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
	if o == nil {
		return false, err
	}
	o.Entry = &l.Entry
	if o.Result == Kept {
		r.note(*o)
		return false, err
	}
	r.newer.answered(&one)
	return true, r.settled(one, also, o, func() { r.note(*o) })
}

// settled removes a claimed entry that needs no call any more, and counts it. One that could not be removed is kept, and it is said why: o is
// what it was answered with, nil if that was before.
func (r *replay) settled(one ref, also uint64, o *Outcome, count func()) error {
	noted, removed, err := r.finish(r.claims[one.stream], one.stream, one.stored(), also)
	if err == nil || removed {
		count()
		return err
	}
	kept := Outcome{Entry: one.entry(), Result: Kept}
	if o != nil {
		kept.Entry, kept.Status = o.Entry, o.Status
	}
	proved := noted || o == nil && !r.newer.twin(&one)
	err = fmt.Errorf("%s: %w", unremoved(o, proved), err)
	kept.Why = "it " + err.Error()
	r.note(kept)
	return fmt.Errorf("entry %d of stream %s %w", one.seq(), one.stream, err)
}

// unremoved says what an entry is that could not be removed, and what the next replay does with it: it removes one that is proved to be handled, by
// a note of that or by a newer one that is there.
func unremoved(o *Outcome, proved bool) string {
	was, call := "was replayed before", "replay it again"
	if o != nil {
		switch was = "was " + string(o.Result); o.Result {
		case Failed:
			was, proved = "failed again, is there anew", true
		case Published:
			call = "publish it again"
		default:
			call = "call the app again"
		}
	}
	if proved {
		return was + ", and could not be removed, which is all that the next replay does with it"
	}
	return was + ", and could neither be removed nor noted as done: the next replay may " + call
}

// superseded removes a claimed entry that was answered already: a newer one of its message is there, or was when this run began, or this run had
// another one of it answered. Whoever had it in work may have stored a newer one at any time before the claim.
func (r *replay) superseded(ctx context.Context, one ref, also uint64) (handled bool, err error) {
	if err := r.newer.again(context.WithoutCancel(ctx), &one, r.claims[one.stream]); err != nil {
		return false, err
	}
	if superseded, _ := r.newer.than(&one); !superseded {
		return false, nil
	}
	return true, r.settled(one, also, nil, func() { r.absent(one) })
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
