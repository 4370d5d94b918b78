package pipeline

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"

	"github.com/jetsidecar/jetsidecar/jetstream"
	"github.com/jetsidecar/jetsidecar/policy"
)

const (
	// crashMarks is how many tries that ended without a verdict are a crash loop.
	crashMarks = 2
	// unmarkFor bounds the removal of a mark; a stop waits for it.
	unmarkFor = stopGrace
)

// Marks keeps the evidence that processes died with a message, see jetstream.Marks.
type Marks interface {
	Count(ctx context.Context, key string) (int, error)
	Set(ctx context.Context, key string, n int) error
	Remove(ctx context.Context, key string) error
}

// limits is the policy for a message: of the sidecar's limit and the server's, the smaller one.
func (p *Pipeline) limits(a *attempt) policy.Policy {
	limits := p.Policy
	limits.MaxDeliver = smaller(limits.MaxDeliver, a.message.MaxDeliver)
	return limits
}

// pastLimit reports whether a message was delivered more often than it may be tried: deliveries ended without a verdict, by a
// crash or a hand-back. It is tried alone then, so that it takes no neighbour along if it kills its process.
func (p *Pipeline) pastLimit(a *attempt) bool {
	limit := p.limits(a).MaxDeliver
	return limit > 0 && a.message.Delivered > uint64(limit)
}

// mark leaves a mark of a try alone. It returns false if the message is not to be sent: there are so many marks that it is the cause,
// or the sidecar stops before the mark is known to be there. Without marks, when they cannot be kept, nothing is dead-lettered: there is
// no evidence.
func (p *Pipeline) mark(ctx context.Context, a *attempt) bool {
	key := p.markKey(a)
	void := p.void.of(key) // before they are counted: they may be removed meanwhile, and then say nothing either
	there, err := p.Marks.Count(ctx, key)
	if a.marks = there; err != nil && !noMarks(err) {
		a.marks = crashMarks // for all that is known
	}
	n := max(there-void, 0)
	if err == nil && n >= crashMarks {
		a.result.Error = "its processes died while it was tried alone"
		a.decision = policy.Decision{Verdict: policy.DLQ, Reason: policy.ReasonCrashLoop}
		return false
	}
	set := err == nil
	if set {
		p.void.writeOver(ctx, key)
		err = p.Marks.Set(ctx, key, n+1)
	}
	if set && !errors.Is(err, jetstream.ErrDenied) {
		a.marks = max(there, n+1) // as far as is known
	}
	switch {
	case err == nil:
		return true
	case ctx.Err() == nil:
		if p.unmarked.now() {
			p.Log.Warn("a message past its limit is tried without a mark", slog.Uint64("sequence", a.message.Sequence), slog.String("error", err.Error()))
		}
		return true
	case set:
		p.unmark(a) // it may be there all the same
	}
	a.result.Kind = policy.HandedBack
	return false
}

// noMarks reports whether marks could not be counted because there are none, or the user has no business with them.
func noMarks(err error) bool { return errors.Is(err, jetstream.ErrDenied) || jetstream.IsNoBucket(err) }

// unmark removes the marks, if there may be any: there is a verdict, or the message is handed back. If it cannot now, they are void.
func (p *Pipeline) unmark(a *attempt) {
	if a.marks == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), unmarkFor)
	defer cancel()
	key := p.markKey(a)
	err := p.Marks.Remove(ctx, key)
	switch {
	case err == nil:
		p.void.gone(key)
	case p.void.add(key, a.marks):
		if p.marksLeft.now() {
			p.Log.Warn("the mark of a message is not removed yet", slog.Uint64("sequence", a.message.Sequence), slog.String("error", err.Error()))
		}
	default:
		if p.marksLeft.now() {
			p.Log.Warn("the mark of a message stays", slog.Uint64("sequence", a.message.Sequence), slog.String("error", err.Error()))
		}
	}
}

// markKey is the key of a message's marks: a message of a stream made anew has none.
func (p *Pipeline) markKey(a *attempt) string {
	key := a.scope.Message(a.message.Sequence, a.message.Stored)
	return hex.EncodeToString(key[:])
}
