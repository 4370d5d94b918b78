package dlq

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

// lookFor bounds how long it is looked what became of entries that somebody else had in work.
const lookFor = time.Minute

// vanish counts an entry that is not there any more.
func (r *run) vanish(one ref) {
	r.note(Outcome{Entry: one.entry(), Result: Gone})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.vanished = append(r.vanished, one)
}

// settle looks what became of the entries that vanished: one that another replay failed again is there anew, stored later, and counts
// as failed. What was removed, or passed, counts as gone. It looks also when ctx has ended.
func (r *run) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookFor)
	defer cancel()
	from := map[string]map[origin]ref{} // by DLQ stream
	for _, one := range r.vanished {
		if from[one.stream] == nil {
			from[one.stream] = map[origin]ref{}
		}
		from[one.stream][one.origin] = one
	}
	for stream, missing := range from {
		if err := r.settleIn(ctx, stream, missing); err != nil {
			return fmt.Errorf("looking what became of entries that are gone: %w", err)
		}
	}
	return nil
}

func (r *run) settleIn(ctx context.Context, stream string, missing map[origin]ref) error {
	first := uint64(math.MaxUint64)
	for _, one := range missing {
		first = min(first, one.seq())
	}
	state, err := r.s.conn.StreamState(ctx, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	for m, err := range r.s.conn.ScanHeaders(ctx, jetstream.Scan{Stream: stream, From: first, To: state.Last}) {
		if err != nil {
			return err
		}
		e, ok := parse(stream, m)
		if !ok {
			continue
		}
		one, found := missing[originOf(e)]
		if !found || e.Seq <= one.seq() || e.Replays <= one.replays {
			continue
		}
		delete(missing, one.origin)
		r.mu.Lock()
		r.report.Gone--
		r.report.Done--
		r.mu.Unlock()
		r.note(Outcome{Entry: one.entry(), Result: Failed, NewStream: stream, NewSeq: e.Seq, Reason: e.Reason, Status: e.Status, Why: e.Error})
	}
	return nil
}
