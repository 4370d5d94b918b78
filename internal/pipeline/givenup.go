package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jetsidecar/jetsidecar/jetstream"
	"github.com/jetsidecar/jetsidecar/policy"
)

const (
	// limitEvery is how often it is looked whether the durable has a limit of its own on deliveries.
	limitEvery = 2 * time.Second
	// sweepEvery is how often the sweep looks until it is over; while it cannot tell, the pause doubles up to sweepRarely.
	sweepEvery  = 5 * time.Second
	sweepRarely = time.Minute
	// mostKeeps is how often it is tried to keep that the sweep is over: if it cannot be, the next start sweeps again.
	mostKeeps = 5
)

// rescue dead-letters what the server gave up on, as long as the durable has a limit of its own: by the server's advisories,
// which a stream keeps, and by a sweep for those from before that stream was there.
func (p *Pipeline) rescue(ctx context.Context) {
	look := time.NewTicker(limitEvery)
	defer look.Stop()
	for p.Source.Limit() == 0 {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
	var sweeping sync.WaitGroup
	sweeping.Go(func() { p.sweep(ctx) })
	if err := p.Source.EachAdvisory(ctx, p.Log.With(slog.String("for", "advisories")), p.advised); err != nil {
		p.Log.Error("messages that the server gives up on cannot be found", slog.String("error", err.Error()))
	}
	sweeping.Wait()
}

// advised handles one advisory. It is done only when its message is settled, or gone.
func (p *Pipeline) advised(ctx context.Context, advisory []byte) (done bool) {
	g, err := jetstream.ParseAdvisory(advisory)
	if err != nil {
		p.Log.Warn("an advisory is ignored", slog.String("error", err.Error()))
		return true
	}
	done, err = p.rescueOne(ctx, g)
	if err != nil && ctx.Err() == nil {
		p.Log.Error("a message that the server gave up on cannot be dead-lettered yet", slog.Uint64("sequence", g.Sequence), slog.String("error", err.Error()))
	}
	return done
}

// rescueOne dead-letters a message that the server gave up on, and settles it. A message that is in flight here waits for its
// own verdict; one that was answered before, or moved to the retry stream, is only settled. One that waited for the DLQ keeps its
// cause.
func (p *Pipeline) rescueOne(ctx context.Context, g jetstream.GivenUp) (done bool, err error) {
	if p.Source.Holds(g.Sequence) {
		return false, nil
	}
	m, err := p.Source.Stored(ctx, g.Sequence)
	if err != nil {
		return false, err
	}
	if m == nil {
		return true, nil // gone
	}
	if stale, err := p.Source.Stale(ctx, g, m); stale || err != nil {
		return stale, err
	}
	dl, known := p.graves.cause(m)
	if !known {
		dl = p.givenUp(m, g)
	}
	p.identify(&dl.attempt)
	moved, err := p.Source.Moved(ctx, m)
	if err != nil {
		return false, err
	}
	if !moved && (p.memory == nil || !p.answered(&dl.attempt)) {
		if done, err := p.buryGivenUp(ctx, dl); !done {
			return false, err
		}
	}
	if err := p.Source.SettleGivenUp(ctx, m, dl.letter.Reason); err != nil {
		return false, err
	}
	p.graves.done(m)
	return true, nil
}

// givenUp is the dead letter of a message of which no more is known than that the server gave up on it.
func (p *Pipeline) givenUp(m *jetstream.Message, g jetstream.GivenUp) *deadLetter {
	m.Delivered = g.Deliveries
	a := attempt{message: m, number: g.Deliveries, scope: p.scopeOf(m), decision: policy.Decision{Verdict: policy.DLQ, Reason: policy.ReasonMaxDeliverServer}}
	a.result.Error = fmt.Sprintf("the server gave up after %d deliveries", g.Deliveries)
	if g.Deliveries == 0 {
		a.result.Error = "it was left in the stream with no delivery under way: the server gave up on it, or the durable passed it over"
	}
	dl := p.deadLetter(&a)
	dl.letter.FailedAt = g.Time
	return dl
}

func (p *Pipeline) buryGivenUp(ctx context.Context, dl *deadLetter) (done bool, err error) {
	if !p.DLQ {
		p.Log.Error("a dead letter is discarded: the dlq is not enabled", slog.Uint64("sequence", dl.message.Sequence), slog.String("reason", dl.letter.Reason))
		p.settled(&dl.attempt, ResultDLQ)
		return true, nil
	}
	dropped, err := p.DeadLetters.Put(ctx, dl.letter)
	if err != nil {
		p.Observer.DeadLetterFailed(dl.message.Sequence, err)
		return false, err
	}
	if p.memory != nil {
		p.memory.Remember(dl.self)
	}
	if dropped > 0 {
		p.Observer.HeadersDropped(dropped)
	}
	p.settled(&dl.attempt, ResultDLQ)
	return true, nil
}

// sweep looks for what the server gave up on before the advisories were kept, until there is no more of it.
func (p *Pipeline) sweep(ctx context.Context) {
	sweep, keeps := p.Source.Sweep(), 0
	for every := sweepEvery; ctx.Err() == nil; every = min(2*every, sweepRarely) {
		sequences, over, err := sweep.Look(ctx)
		if len(sequences) > 0 {
			every = sweepEvery
		}
		for _, n := range sequences {
			g := jetstream.GivenUp{Sequence: n, Time: time.Now(), Swept: true}
			if sweep.Known() {
				g.Deliveries = uint64(p.Source.Limit())
			}
			done, rescueErr := p.rescueOne(ctx, g)
			if done {
				sweep.Done(n)
			} else {
				over, err = false, rescueErr
			}
		}
		if over {
			if err = sweep.Keep(ctx); err == nil || keeps == mostKeeps {
				return
			}
			keeps++
		}
		if err != nil {
			p.Log.Debug("a sweep for messages that the server gave up on", slog.String("error", err.Error()))
		}
		select {
		case <-ctx.Done():
		case <-time.After(jittered(every)):
		}
	}
}
