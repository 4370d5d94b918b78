package jetstream

import (
	"context"
	"slices"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// stretch is a part of the stream, between the acknowledgement floor and the first message that is leased here, and the subjects to look
// for there. What is pending there is on one of them.
type stretch struct {
	on            *binding
	floor, before uint64 // sequences, neither of them in it
	subjects      []string
}

func (q stretch) equal(other stretch) bool {
	return q.on == other.on && q.floor == other.floor && q.before == other.before && slices.Equal(q.subjects, other.subjects)
}

// beneath is what is known of the last stretch that the server was asked about.
type beneath struct {
	questions chan stretch // to who asks

	filters []string // the durable's, when it was looked at last
	edited  bool     // they were others, and what was delivered by those may be pending still

	asked stretch
	at    time.Time
	open  bool // not answered yet
	empty bool // no such message is there
}

// nothingBeneath reports whether no message can be pending before the first one that is leased here. It is
//   - the one right above the floor;
//   - the first delivery after all that the floor is above: once nothing was pending, the floor is the last message delivered, and
//     messages that the durable does not want, or that were removed, may follow;
//   - the first of all that are pending, if all of them were here;
//   - one with no message between it and the floor that the durable wants. For that the server has to be asked.
func (s *Source) nothingBeneath(info *natsjs.ConsumerInfo, h here, now time.Time) bool {
	first := h.first
	if info.AckFloor.Stream+1 >= first.Sequence || first.number > 0 && first.number == info.AckFloor.Consumer+1 {
		return true
	}
	o := s.order
	if s.knowsAll(info, h) {
		return !o.room.sawBefore(first.Sequence)
	}
	o.beneath.heed(info)
	if len(o.beneath.filters) > 0 && now.Sub(o.since) < ackWait(info.Config) {
		return false // what was delivered by other filters, edited while nobody served, is not found; it comes until then
	}
	q := stretch{on: s.bound, floor: info.AckFloor.Stream, before: first.Sequence, subjects: s.wantedBeneath()}
	if o.beneath.asked.equal(q) && o.beneath.empty {
		return true
	}
	o.beneath.ask(q, now, ackWait(info.Config))
	return false
}

// wantedBeneath is what can be pending: what the durable wants, or anything where it wanted something else when that was delivered.
func (s *Source) wantedBeneath() []string {
	b := &s.order.beneath
	all := []string{">"}
	if len(b.filters) == 0 || b.edited {
		return all
	}
	for _, m := range s.leases {
		if !slices.ContainsFunc(b.filters, func(f string) bool { return overlap(f, m.Subject) }) {
			return all
		}
	}
	return b.filters
}

// heed is told what the durable wants.
func (b *beneath) heed(info *natsjs.ConsumerInfo) {
	now := filters(info.Config)
	b.edited = info.NumAckPending > 0 && (b.edited || b.filters != nil && !slices.Equal(b.filters, now))
	if b.filters = now; now == nil {
		b.filters = []string{}
	}
}

// ask asks about a stretch: one at a time, and about the same one again after a time, since messages may be removed from it.
func (b *beneath) ask(q stretch, now time.Time, again time.Duration) {
	if b.open || b.asked.equal(q) && now.Sub(b.at) < again {
		return
	}
	select {
	case b.questions <- q:
		b.asked, b.at, b.open, b.empty = q, now, true, false
	default: // the last one is not done yet
	}
}

// lookBeneath answers such questions until ctx ends.
func (s *Source) lookBeneath(ctx context.Context, questions <-chan stretch) {
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-questions:
			empty, err := s.isEmpty(ctx, q)
			s.mu.Lock()
			b := &s.order.beneath
			if b.open, b.empty = false, empty; err == nil {
				s.lookToGather()
			} else {
				b.asked = stretch{} // asked again at the next look
			}
			s.mu.Unlock()
		}
	}
}

// isEmpty reports whether a stretch has no message that can be pending. A user who may not ask does not know.
func (s *Source) isEmpty(ctx context.Context, q stretch) (bool, error) {
	for _, subject := range q.subjects {
		if s.conn.denied(s.conn.prefix + "STREAM.MSG.GET." + s.cfg.Stream) {
			return false, nil
		}
		m, err := s.conn.stored(ctx, s.cfg.Stream, map[string]any{"seq": q.floor + 1, "next_by_subj": subject})
		if err != nil {
			return false, err
		}
		if m != nil && m.Seq < q.before {
			return false, nil
		}
	}
	return true, nil
}
