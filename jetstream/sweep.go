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
// consumer: what was delivered, is still in the stream and is not pending; of what came since the advisories are kept only what the durable's
// books count, all of it or none. A message that is acked is taken out of the durable's books first and out of the stream then, on replicas
// some time later: so what one look finds is told only once the next finds it too.
type Sweep struct {
	source *Source
	most   int
	scope  sweepScope
	of     incarnation
	found  map[uint64]bool // by the last look that was sure
	done   map[uint64]bool // those of them that are handled
	known  bool            // see Known
	left   bool            // the last look left some that the books do not count
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
		w.of, w.found, w.done, w.left = l.of, nil, nil, false
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
	if l.left { // a look after this may count them: when others are done, or have left the stream
		over = over && w.left && len(sequences) == 0
	}
	w.found, w.done, w.left = found, done, l.left
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
	left      bool // some are not among the sequences since the durable's books do not count all
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
	if w.scope.swept && before.NumRedelivered == 0 {
		l.sure = true // the books have what the server gave up on among what was delivered again
		return l, nil
	}
	return w.between(ctx, l, before, stream.State.Consumers > 1 && !own)
}

// between is the part of a look from one sight of the durable to the next: what was true at both was true between them.
func (w *Sweep) between(ctx context.Context, l stranded, before *natsjs.ConsumerInfo, shared bool) (stranded, error) {
	s := w.source
	leased, known := s.leasesOf(l.of)
	if !known || before.NumAckPending != len(leased) {
		return l, nil // whatever it finds, it is not sure
	}
	found, cut, err := w.deliveredAndThere(ctx, before.NumRedelivered+len(leased))
	if err != nil {
		return stranded{}, err
	}
	elsewhere := func(uint64) bool { return false }
	if len(found) > 0 && shared {
		if elsewhere, err = s.atWorkElsewhere(ctx); err != nil {
			return stranded{}, err
		}
	}
	leased, known = s.leasesOf(l.of)
	after, err := s.conn.consumerInfo(ctx, s.cfg.Stream, s.cfg.Durable)
	if err != nil {
		return stranded{}, err
	}
	found = slices.DeleteFunc(found, func(t there) bool { return leased[t.sequence] })
	quiet := known && after.Created.Equal(before.Created) && after.Delivered.Consumer == before.Delivered.Consumer &&
		after.NumAckPending == before.NumAckPending && after.NumAckPending == len(leased)
	l.sure = quiet || len(found) == 0
	l.tell(found, after.NumRedelivered-s.leasedAgain(), filters(before.Config), elsewhere)
	l.cut = l.cut || cut && (l.known || len(l.sequences) > 0)
	return l, nil
}

// tell takes in, of what was found, what the durable takes now and the server gave up on, as far as that can be known from how many messages
// its books count.
func (l *stranded) tell(found []there, counted int, takes []string, elsewhere func(uint64) bool) {
	l.known = len(found) <= counted
	for _, t := range found {
		switch {
		case len(takes) > 0 && !listens(takes, t.subject):
		case !t.early && !l.known:
			l.left = counted > 0
		case elsewhere(t.sequence):
			l.cut = true
		default:
			l.sequences = append(l.sequences, t.sequence)
		}
	}
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

// there is a message that was delivered, as far as is known, and is still in the stream.
type there struct {
	sequence uint64
	subject  string
	early    bool // it may be told though the books do not count it
}

// deliveredAndThere lists the messages in the scope of the sweep that are still in the stream, the first ones if there are more. Past more
// messages than the durable's books can count it lists early ones only.
func (w *Sweep) deliveredAndThere(ctx context.Context, counted int) (found []there, cut bool, err error) {
	seen := map[uint64]bool{}
	for _, subject := range w.scope.took {
		for from := uint64(1); from <= w.scope.upTo; {
			if len(found) == w.most {
				return found, true, nil
			}
			m, err := w.source.storedNext(ctx, from, subject)
			if err != nil {
				return nil, false, err
			}
			if m == nil || m.Sequence > w.scope.upTo {
				break
			}
			early := w.scope.early(m)
			if !early && len(found) > counted {
				break
			}
			if !seen[m.Sequence] {
				seen[m.Sequence] = true
				found = append(found, there{m.Sequence, m.Subject, early})
			}
			from = m.Sequence + 1
		}
	}
	return found, false, nil
}
