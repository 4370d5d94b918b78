package jetstream

import (
	"log/slog"
	"slices"
	"strconv"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A server that is killed comes back with the state of a durable that it wrote last, some 100 ms before: what it delivered since, it does not know
// of, and what was settled since is pending again. The same is so after a reset of the durable (nats-server 2.14), and in part after an
// election. It says so in the answer to a look. It does not say so otherwise: it confirms no ack of what it does not know (consumer.go,
// processAckMsg), and would not get to know it again while the leases of such messages are all that may be leased.

const (
	// replicatedWithin is how long the servers of a durable that is replicated may take to agree on a delivery, and unlikelyWithin that if the
	// one that leads it says that as many messages are pending as are leased here: it does not count up what it delivers, perhaps.
	replicatedWithin = time.Second
	unlikelyWithin   = 10 * time.Second
	// settledKept is how many messages are remembered as settled: more than are in the 100 ms that a server may forget.
	settledKept = 4096
	// forgetsAtMost is how long before its end a server may have confirmed what it does not know any more.
	forgetsAtMost = 2 * time.Second
	// unconfirmedFor is how long a verdict may wait for its confirmation, from a server that answers, until that is told.
	unconfirmedFor = 5 * time.Second

	unconfirmed = "the server does not confirm verdicts"
)

// settledLease is a message whose verdict was confirmed: its sequence, the number of its delivery, and when that was.
type settledLease struct {
	lease, serial uint64
	at            time.Time
}

// settledLeases are the last of them, on a source that keeps order: the others do not wait for what is pending elsewhere.
type settledLeases struct {
	all  []settledLease
	next int // the oldest one, once there are as many as are kept
}

func (l *settledLeases) add(m *Message, at time.Time) {
	if len(l.all) < settledKept {
		l.all = append(l.all, settledLease{m.lease, m.serial, at})
		return
	}
	l.all[l.next] = settledLease{m.lease, m.serial, at}
	l.next = (l.next + 1) % settledKept
}

// finish ends the lease of a message whose verdict the server confirmed.
func (s *Source) finish(m *Message) {
	if s.order != nil && !isNak(m.verdict) {
		s.order.settled.add(m, time.Now())
	}
	s.release(m)
}

// heedLoss ends the leases that the server forgot, as it says at a look, last being what it said at the one before, when it was asked at the time before.
func (s *Source) heedLoss(l *look, last, info *natsjs.ConsumerInfo, before time.Time) {
	s.dropForgotten(l, info)
	if replicated(info) { // what is confirmed is known to most of its servers
		if !s.lag.behind(info.Delivered.Consumer, l) {
			return
		}
	} else if info.Delivered.Consumer >= l.highest && info.AckFloor.Consumer >= last.AckFloor.Consumer {
		return
	}
	l.counted = 0 // whom it delivered to since is not known
	s.countAnew(info)
	s.scattered()
	if !replicated(info) {
		s.settleAgain(info, before.Add(-forgetsAtMost))
	}
}

// lag is of a replicated durable, whose count lags behind what is delivered for a moment.
type lag struct {
	since time.Time // when it was behind a number that had been seen; zero: it was not
	seen  uint64
}

// behind reports whether the count that was told at a look is behind what had been seen long before.
func (g *lag) behind(count uint64, l *look) bool {
	switch {
	case count >= l.highest:
		*g = lag{}
	case g.since.IsZero() || count >= g.seen:
		*g = lag{l.asked, l.highest}
	case l.asked.Sub(g.since) >= replicatedWithin:
		*g = lag{}
		return true
	}
	return false
}

// countAnew is told that the durable counts on from a number below the highest one seen.
func (s *Source) countAnew(info *natsjs.ConsumerInfo) {
	s.highest, s.counted = info.Delivered.Consumer, info.Delivered.Consumer
	for _, l := range s.lanes {
		l.floor = 0
	}
	s.before = s.most
}

// dropForgotten ends the leases of messages that had arrived before the server was asked, and that it has not delivered, as it says: they
// come again. What is at the app ends as it does. The last one is ended first, so that no turn passes to one that is to end too.
func (s *Source) dropForgotten(l *look, info *natsjs.ConsumerInfo) {
	within := time.Duration(0)
	if replicated(info) {
		if within = replicatedWithin; info.NumAckPending >= l.leased {
			within = unlikelyWithin
		}
	}
	var lost []*Message
	for _, m := range s.leases {
		if m.lease <= info.Delivered.Stream || m.arrival > l.arrived {
			m.unknown, m.forgotten = time.Time{}, false
			continue
		}
		if m.unknown.IsZero() {
			m.unknown = l.asked
		}
		switch {
		case l.asked.Sub(m.unknown) < within:
		case m.started && m.verdict == "":
			m.forgotten = true
		default:
			lost = append(lost, m)
		}
	}
	if len(lost) == 0 {
		return
	}
	slices.SortFunc(lost, func(a, b *Message) int { return bySequence(b, a) })
	for _, m := range lost {
		s.release(m)
	}
	s.scattered()
}

// again are those that were confirmed since a time, and are pending again. Not what was confirmed earlier, nor what has a number that the durable has
// not come to: after a reset, that is wanted once more.
func (l *settledLeases) again(info *natsjs.ConsumerInfo, since time.Time) (pending []settledLease) {
	for _, done := range l.all {
		if info.AckFloor.Stream < done.lease && done.lease <= info.Delivered.Stream && done.serial <= info.Delivered.Consumer && !done.at.Before(since) {
			pending = append(pending, done)
		}
	}
	return pending
}

// settleAgain says again what was confirmed since a time and is pending again: it would be waited for until the ack wait.
func (s *Source) settleAgain(info *natsjs.ConsumerInfo, since time.Time) {
	if s.order == nil {
		return
	}
	for _, done := range s.order.settled.again(info, since) {
		if s.leases[done.lease] != nil {
			continue
		}
		subject := s.ackSubject() + "1." + strconv.FormatUint(done.lease, 10) + "." + strconv.FormatUint(done.serial, 10) + ".0.0"
		if s.conn.nc().Publish(subject, ackWire) != nil {
			return // the ack wait brings it again
		}
	}
}

// standsStill warns of verdicts that a server which answers does not confirm. It reports whether nothing is in work meanwhile.
func (s *Source) standsStill(now time.Time) bool {
	late := 0
	for m := range s.settling {
		if isNak(m.verdict) && m.wasSent && !s.onlyOne {
			continue // it is not sent again, see repeatable
		}
		if m.awaited.IsZero() {
			m.awaited = now
		}
		if now.Sub(m.awaited) >= unconfirmedFor {
			late++
		}
	}
	if late == 0 || s.acksDenied() {
		return false
	}
	s.conn.complain("unconfirmed "+s.cfg.Stream+" "+s.cfg.Durable, unconfirmed+": they are sent again, and their messages count as leased until then",
		slog.String("stream", s.cfg.Stream), slog.String("consumer", s.cfg.Durable), slog.Int("unconfirmed", late), slog.Int("leased_here", len(s.leases)))
	for _, m := range s.leases {
		if m.started && m.verdict == "" {
			return false
		}
	}
	return true
}
