package jetstream

import (
	"context"
	"slices"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// mostStranded bounds what one look of a sweep finds.
const mostStranded = 10000

// Sweep finds messages that the server gave up on and no advisory may tell of, in a work queue or in an interest stream of this one
// consumer: what was delivered before the advisories were kept, is still in the stream and is not pending. A message that is acked is taken
// out of the durable's books first and out of the stream then, on replicas some time later: so what one look finds is told only once the
// next finds it too.
type Sweep struct {
	source *Source
	most   int
	scope  sweepScope
	of     incarnation
	found  map[uint64]bool // by the last look that was sure
	done   map[uint64]bool // those of them that are handled
	known  bool            // see Known
}

// Sweep prepares one.
func (s *Source) Sweep() *Sweep { return &Sweep{source: s, most: mostStranded} }

// Look looks once. It returns what this look and the one before found; looks must be some seconds apart. It is over when there was
// nothing else to find.
func (w *Sweep) Look(ctx context.Context) (sequences []uint64, over bool, err error) {
	l, err := w.strandedNow(ctx)
	if err != nil || !l.sure {
		return nil, false, err
	}
	sequences, over = w.twice(l)
	return sequences, over, nil
}

// Known reports whether the durable's books count as many messages that were delivered again as the last look found. Then they were
// delivered as often as the durable's limit says; else it is not known whether they were delivered at all.
func (w *Sweep) Known() bool { return w.known }

// twice takes in what a look found. It returns what the one before found too and is not done, and whether that is all.
func (w *Sweep) twice(l stranded) (sequences []uint64, over bool) {
	if !l.of.same(w.of) {
		w.of, w.found, w.done = l.of, nil, nil
	}
	w.known = l.known
	found, done := map[uint64]bool{}, map[uint64]bool{}
	over = !l.cut
	for _, n := range l.sequences {
		found[n] = true
		switch {
		case w.done[n]:
			done[n] = true
		case w.found[n]:
			sequences = append(sequences, n)
		default:
			over = false
		}
	}
	w.found, w.done = found, done
	return sequences, over
}

// Done says that a message that a look told is handled.
func (w *Sweep) Done(sequence uint64) { w.done[sequence] = true }

// stranded is what one look found.
type stranded struct {
	sequences []uint64
	sure      bool // that none of them is pending
	cut       bool // there may be more
	known     bool // see Sweep.Known
	of        incarnation
}

// strandedNow looks for stranded messages. Which messages are pending the server does not say, only how many: so it is sure only at
// a moment when all that is pending is leased here, and nothing that is leased here may be settled at the server.
func (w *Sweep) strandedNow(ctx context.Context) (stranded, error) {
	s := w.source
	stream, err := s.conn.streamInfo(ctx, s.cfg.Stream)
	if err != nil {
		return stranded{}, err
	}
	c := stream.Config
	if c.Retention == natsjs.LimitsPolicy || c.Retention == natsjs.InterestPolicy && stream.State.Consumers != 1 {
		return stranded{sure: true}, nil
	}
	before, err := s.conn.consumerInfo(ctx, s.cfg.Stream, s.cfg.Durable)
	if err != nil {
		return stranded{}, err
	}
	l := stranded{of: incarnation{stream.Created, before.Created}}
	own := s.due != nil // copies in the retry stream: no advisory is kept of them, and nobody else's durable takes them
	if own || !w.scope.of.same(l.of) {
		if w.scope, err = s.scopeOf(ctx, l.of, before); err != nil {
			w.scope = sweepScope{}
			return stranded{}, err
		}
	}
	if w.scope.nothing {
		l.sure = true
		return l, nil
	}
	if leased, known := s.leasesOf(l.of); !known || before.NumAckPending != len(leased) {
		return l, nil // whatever it finds, it is not sure
	}
	if l.sequences, l.cut, err = w.deliveredAndThere(ctx, filters(before.Config)); err != nil {
		return stranded{}, err
	}
	if len(l.sequences) > 0 && stream.State.Consumers > 1 && !own {
		elsewhere, err := s.atWorkElsewhere(ctx)
		if err != nil {
			return stranded{}, err
		}
		found := len(l.sequences)
		l.sequences = slices.DeleteFunc(l.sequences, elsewhere)
		l.cut = l.cut || len(l.sequences) < found
	}
	leased, known := s.leasesOf(l.of)
	after, err := s.conn.consumerInfo(ctx, s.cfg.Stream, s.cfg.Durable)
	if err != nil {
		return stranded{}, err
	}
	l.sequences = slices.DeleteFunc(l.sequences, func(n uint64) bool { return leased[n] })
	quiet := known && after.Created.Equal(before.Created) && after.Delivered.Consumer == before.Delivered.Consumer &&
		after.NumAckPending == before.NumAckPending && after.NumAckPending == len(leased)
	l.sure = quiet || len(l.sequences) == 0
	l.known = len(l.sequences) <= after.NumRedelivered-s.leasedAgain()
	return l, nil
}

// leasesOf is what is leased from a durable, and whether all of it is pending there as far as can be known: a message whose verdict was
// sent may be settled, and one whose ack wait has passed may be leased, and settled, elsewhere. A message that an ack asked for counts
// as leased once it has come; until then that ack is not confirmed.
func (s *Source) leasesOf(of incarnation) (leased map[uint64]bool, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	leased = map[uint64]bool{}
	known = s.bound != nil && s.bound.same(of) && len(s.settling) == 0
	now := time.Now()
	for n, m := range s.leases {
		leased[n] = true
		known = known && !s.expired(m, now)
	}
	return leased, known
}

// leasedAgain is how many of the leased messages were delivered before.
func (s *Source) leasedAgain() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.leases {
		if m.Delivered > 1 {
			n++
		}
	}
	return n
}

// deliveredAndThere lists the messages in the scope of the sweep that are still in the stream and that the durable takes now, the first
// ones if there are more.
func (w *Sweep) deliveredAndThere(ctx context.Context, takes []string) (found []uint64, cut bool, err error) {
	for _, subject := range w.scope.subjects {
		for from := uint64(1); from <= w.scope.upTo; {
			if len(found) == w.most {
				return found, true, nil
			}
			m, err := w.source.storedNext(ctx, from, subject)
			if err != nil {
				return nil, false, err
			}
			if m == nil || m.Sequence > w.scope.upTo || !w.scope.before.IsZero() && !m.Stored.Before(w.scope.before) {
				break
			}
			if len(takes) == 0 || listens(takes, m.Subject) {
				found = append(found, m.Sequence)
			}
			from = m.Sequence + 1
		}
	}
	return found, false, nil
}
