package jetstream

import (
	"context"
	"log/slog"
	"time"
)

// rescueRarely is how often it is looked for copies that the server gave up on, where nothing speaks for it that there are any.
const rescueRarely = 5 * time.Minute

// rescue stores copies in the retry stream anew that the server gave up on, until ctx ends: the durable there is made without a limit on deliveries, and
// was given one.
func (r *retries) rescue(ctx context.Context) {
	sweep := r.source.Sweep()
	for every := infoEvery; r.restRescue(ctx, every); every = min(2*every, rescueRarely) {
		if r.source.readDenied() {
			continue
		}
		sequences, _, err := sweep.Look(ctx)
		if err != nil {
			r.log.Debug("a look for copies that the server gave up on", slog.String("error", err.Error()))
		}
		if len(sweep.found) > len(sweep.done) {
			every = infoEvery / 2 // the next look tells
		}
		for _, n := range sequences {
			if err := r.storeAnew(ctx, n, sweep.of.stream); err != nil {
				r.main.conn.complain("rescue "+r.hash, "a copy in the retry stream that the server gave up on cannot be stored anew, trying on",
					slog.String("retry_stream", RetryStream), slog.Uint64("sequence", n), slog.String("error", oneLine(err.Error(), 300)))
				continue
			}
			sweep.Done(n)
		}
	}
}

// restRescue waits so long, or not for long while the server may give up on copies. It reports whether ctx lasted.
func (r *retries) restRescue(ctx context.Context, most time.Duration) bool {
	for waited := time.Duration(0); waited < most; waited += infoEvery {
		if !sleep(ctx, infoEvery) {
			return false
		}
		if r.source.Limit() > 0 {
			break
		}
	}
	return true
}

// storeAnew stores a copy that the server gave up on as one that is due, then removes the old one from the stream, which was created at the time given.
// Killed in between, both are there, and the later one counts.
func (r *retries) storeAnew(ctx context.Context, sequence uint64, created time.Time) error {
	m, err := r.sealed(ctx, sequence)
	if m == nil || err != nil {
		return err
	}
	m.source, m.lease = r.source, sequence
	m.Delivered += uint64(max(r.source.Limit(), 1))
	over, err := r.isOver(ctx, m)
	if err == nil && !over {
		r.log.Warn("the server gave up on a copy in the retry stream, by a limit on deliveries that its durable must not have: it is stored anew",
			slog.String("consumer", r.source.cfg.Durable), slog.Uint64("stream_sequence", m.Sequence))
		err = r.publish(ctx, r.waiting(m, time.Now()))
	}
	if err != nil {
		return err
	}
	return r.source.SettleGivenUp(ctx, &Message{Sequence: sequence, StreamCreated: created}, "stored anew")
}
