package dlq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

const (
	// lookFor bounds how long it is looked what became of entries that somebody else had in work, and lookStopped how long from when the
	// run was asked to stop.
	lookFor     = time.Minute
	lookStopped = 3 * time.Second
	// clocksDiffer is how far the clocks of two servers may be apart. Each gives the times of some streams.
	clocksDiffer = time.Minute
)

// vanish counts an entry that is not there any more.
func (r *run) vanish(one ref) {
	r.note(Outcome{Entry: one.entry(), Result: Gone})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.vanished = append(r.vanished, &vanished{ref: one})
}

// vanished is an entry that was not there any more. It is found if it is there anew.
type vanished struct {
	ref
	found bool
}

// settle looks what became of the entries that vanished: one that another replay failed again is there anew, and counts as failed. What
// was removed, or passed, counts as gone. It looks also when ctx has ended, but not for long; what it did not get to counts as gone, and
// the report says how many.
func (r *run) settle(ctx context.Context) error {
	look, end := looking(ctx)
	defer end()
	return r.settleWithin(ctx, look)
}

// settleWithin looks until look ends.
func (r *run) settleWithin(ctx, look context.Context) error {
	places := r.places()
	for i, p := range places {
		err := r.settleIn(look, p)
		if err != nil && look.Err() == nil && !stopped(ctx) {
			return fmt.Errorf("looking what became of entries that are gone: %w", err)
		}
		if err != nil {
			r.report.Unsettled = unsettled(places[i:])
			break
		}
	}
	return nil
}

// looking is a context that ends after lookFor, or lookStopped after ctx has ended.
func looking(ctx context.Context) (look context.Context, end func()) {
	look, cancel := context.WithCancel(context.WithoutCancel(ctx))
	timer := time.AfterFunc(lookFor, cancel)
	heard := context.AfterFunc(ctx, func() { timer.Reset(lookStopped) })
	return look, func() { heard(); timer.Stop(); cancel() }
}

// place is a DLQ stream in which entries that vanished can be anew: the one in which they were, and the one that their consumer has now.
type place struct {
	stream string
	from   uint64    // they are there after this sequence; 0: it is not known
	since  time.Time // they were stored there after this time
	all    map[origin][]*vanished
}

// places are the DLQ streams to look in, by name.
func (r *run) places() []*place {
	at := map[string]*place{}
	look := func(stream string, from uint64, v *vanished) {
		p := at[stream]
		if p == nil {
			p = &place{stream: stream, from: math.MaxUint64, since: v.time, all: map[origin][]*vanished{}}
			at[stream] = p
		}
		p.from = min(p.from, from)
		if v.time.Before(p.since) {
			p.since = v.time
		}
		p.all[v.origin] = append(p.all[v.origin], v)
	}
	for _, v := range r.vanished {
		for _, name := range r.s.places(&v.ref) {
			from := uint64(0)
			if name == v.stream {
				from = v.seq()
			}
			look(name, from, v)
		}
	}
	return slices.SortedFunc(maps.Values(at), func(a, b *place) int { return cmp.Compare(a.stream, b.stream) })
}

// settleIn looks in one DLQ stream.
func (r *run) settleIn(ctx context.Context, p *place) error {
	if unsettled([]*place{p}) == 0 {
		return nil
	}
	state, err := r.s.conn.StreamState(ctx, p.stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	scan := jetstream.Scan{Stream: p.stream, From: p.from, To: state.Last}
	if p.from == 0 {
		scan.Since = p.since.Add(-clocksDiffer)
	}
	return r.search(p, r.s.conn.ScanHeaders(ctx, scan))
}

// search reads the messages of a DLQ stream until nothing is missing any more.
func (r *run) search(p *place, messages iter.Seq2[*jetstream.Stored, error]) error {
	missing := unsettled([]*place{p})
	for m, err := range messages {
		if err != nil {
			return err
		}
		e, ok := parse(p.stream, m)
		if !ok || e.Part == secondPart {
			continue
		}
		v := p.before(e)
		if v == nil {
			continue
		}
		r.failedElsewhere(v, e)
		if missing--; missing == 0 {
			return nil
		}
	}
	return nil
}

// before is the entry of which another one can be what a replay that failed made; nil if there is none. Of two with the same message
// it is the one that was replayed more often: the message is there once.
func (p *place) before(e *Entry) (best *vanished) {
	for _, v := range p.all[originOf(e)] {
		if v.found || e.Replays <= v.replays || v.stream == e.DLQStream && e.Seq <= v.seq() {
			continue
		}
		if best == nil || v.replays > best.replays {
			best = v
		}
	}
	return best
}

// failedElsewhere counts an entry as failed that counted as gone.
func (r *run) failedElsewhere(v *vanished, e *Entry) {
	v.found = true
	r.mu.Lock()
	r.report.Gone--
	r.report.Done--
	r.mu.Unlock()
	r.note(Outcome{Entry: v.entry(), Result: Failed, NewStream: e.DLQStream, NewSeq: e.Seq, Reason: e.Reason, Status: e.Status, Why: e.Error})
}

// unsettled is how many entries may still be found in some places.
func unsettled(places []*place) int {
	missing := map[*vanished]bool{}
	for _, p := range places {
		for _, some := range p.all {
			for _, v := range some {
				if !v.found {
					missing[v] = true
				}
			}
		}
	}
	return len(missing)
}
