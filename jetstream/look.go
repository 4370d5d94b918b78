package jetstream

import (
	"context"
	"errors"
	"log/slog"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// lookPause is the pause after a look at the durable that was not answered.
const lookPause = 250 * time.Millisecond

// looks is what there is of the look under way. There is one at most.
type looks struct {
	wanted chan struct{} // one is asked for
	hurry  chan struct{} // ends a pause between two

	// Guarded by Source.mu.
	underWay bool
	asked    time.Time
	end      context.CancelFunc // cuts it off
}

// look is a look at the durable that is under way.
type look struct {
	ctx     context.Context
	end     context.CancelFunc
	bound   *binding
	asked   time.Time
	naks    int
	counted uint64
	arrived uint64 // how many messages had
	highest uint64 // consumer sequence seen
	pin     string // whom the durable was pinned to then: the one of this source, or empty
	leased  int    // how many were leased here
	cutOff  bool   // it is asked anew
}

// lookWhenAsked looks at the durable when that is asked for, until ctx ends. Nothing waits for it but what needs the answer: leases are kept alive
// meanwhile.
func (s *Source) lookWhenAsked(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.looks.wanted:
		}
		l := s.beginLook(ctx)
		if l == nil {
			continue
		}
		info, err := s.conn.consumerInfo(l.ctx, s.cfg.Stream, s.cfg.Durable)
		l.cutOff = l.ctx.Err() != nil
		l.end()
		if err == nil && stateless(info, l.bound.kept) {
			err = errStateless
		}
		s.endLook(l, info, err)
		if err != nil && !l.cutOff {
			s.pauseLooks(ctx)
		}
		s.wake()
	}
}

// pauseLooks keeps looks apart that are not answered.
func (s *Source) pauseLooks(ctx context.Context) {
	wait := time.NewTimer(lookPause)
	defer wait.Stop()
	select {
	case <-ctx.Done():
	case <-s.looks.hurry:
	case <-wait.C:
	}
}

// beginLook notes what is known before the question. It returns nil if there is nothing to look at.
func (s *Source) beginLook(ctx context.Context) *look {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bound == nil {
		return nil
	}
	select {
	case <-s.looks.hurry: // it was meant for an earlier one
	default:
	}
	l := &look{bound: s.bound, asked: time.Now(), naks: s.naks, counted: s.counted, arrived: s.arrived, highest: s.highest, pin: s.pin.id, leased: len(s.leases)}
	l.ctx, l.end = context.WithCancel(ctx)
	s.looks.underWay, s.looks.asked, s.looks.end = true, l.asked, l.end
	s.lookAhead = false
	return l
}

// askLook has the durable looked at, if it is not just now.
func (s *Source) askLook() {
	if s.looks.underWay {
		return
	}
	select {
	case s.looks.wanted <- struct{}{}:
	default:
	}
}

// lookNow asks for a look that nothing waits for, unless there is one. It may be called in each turn.
func (s *Source) lookNow() {
	if !s.looks.underWay && !s.lookAhead {
		s.lookAhead = true
		s.wake()
	}
}

// lookPatience is for how long a look is not taken for one that nobody heard.
func (s *Source) lookPatience() time.Duration { return max(askAgain, 2*s.rounds.answer) }

// askAnew has the durable looked at now, although it may be already: a question that nobody heard is not answered later, and an answer by who leads
// it no more is old. One that was asked just now goes on, unless it is sure that it is in vain.
func (s *Source) askAnew(now time.Time, sure bool) {
	s.suspect, s.doubtedAt = true, now
	if s.looks.underWay && (sure || now.Sub(s.looks.asked) >= s.lookPatience()) {
		s.looks.end()
	}
	select {
	case s.looks.hurry <- struct{}{}:
	default:
	}
	s.wake()
}

// hears is told that something came from the server. After a silence what was asked before may be lost.
func (s *Source) hears(now time.Time) {
	if s.looks.underWay && now.Sub(s.hearing.last) >= silence && now.Sub(s.looks.asked) >= s.lookPatience() {
		s.looks.end()
	}
	s.inTouch(now)
}

// endLook is told the answer to a look: whether the durable is the one bound to, and what became of pulls that are in doubt. What waited for it is
// done at once.
func (s *Source) endLook(l *look, info *natsjs.ConsumerInfo, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks.underWay = false
	if s.bound != l.bound {
		return // given up meanwhile
	}
	switch {
	case l.cutOff:
		s.lookAhead = true
	case err != nil && gone(err):
		s.rebind = oneLine(err.Error(), 300)
	case err != nil && !s.suspect && s.vouchedFor(time.Now()):
		// Nothing needed the answer.
	case err != nil:
		s.suspect = true
		s.sayUnanswered(err)
		s.setDetail(s.saysFull(err))
	case !info.Created.Equal(s.bound.consumer):
		s.rebind = "the durable was made anew"
	default:
		s.looked = true
		s.saw(l, info)
		s.tend(time.Now())
		s.looked = false
	}
}

// vouchedFor reports whether a pull request that waits at the durable was heard of lately.
func (s *Source) vouchedFor(now time.Time) bool { return s.proved() && now.Sub(s.heard) < silence }

// saw is told what the server says of the durable, which is the one bound to.
func (s *Source) saw(l *look, info *natsjs.ConsumerInfo) {
	if s.cfg.AckAsync && acked(s.bound.info, info) {
		s.confirmedAt = later(s.confirmedAt, s.evidence) // by an ack since the look before
	}
	told := s.evidence
	s.suspect, s.evidence = s.doubtedAt.After(l.asked), l.asked
	if leader(info) != leader(s.bound.info) {
		s.leaderChanged(time.Now())
	}
	before, last := s.refused, s.bound.info
	s.bound.info, s.refused = info, s.refusal(info)
	s.heedRefusal(before)
	s.settleBodies(info, l.asked)
	s.heedLoss(l, last, info, told)
	detail := s.refused
	if detail == "" && s.pullDenied() {
		detail = "the user may not pull: no permission to publish to " + s.nextSubject()
	}
	if detail == "" && s.acksDenied() {
		detail = "the user may not ack: no permission to publish to " + s.ackSubject() + ">"
	}
	if still := s.standsStill(time.Now()); detail == "" && still {
		detail = unconfirmed
	}
	starved := s.starved(time.Now())
	if s.conn.starves(s, starved); detail == "" && starved {
		detail = tooManySubscriptions
	}
	s.lastSeen = &lastSeen{stream: s.bound.incarnation.stream, floor: info.AckFloor.Stream}
	s.status.Store(&Status{
		Bound: detail == "", Detail: detail,
		Pending: info.NumPending, AckPending: uint64(max(info.NumAckPending, 0)), MaxAckPending: max(info.Config.MaxAckPending, 0),
	})
	s.parked, s.naks = max(info.NumAckPending-(len(s.leases)-len(s.settling)), 0), max(s.naks-l.naks, 0)
	s.onlyOne = info.Delivered.Consumer <= l.counted
	s.judgeLanes(info, l.asked, l.counted)
	s.offerHeld(info)
	s.gather(l, info)
	s.leaveRoom(info, time.Now())
	s.standAside(info, time.Now())
	s.warnParked(l, info, time.Now())
}

// acked reports whether messages were acked between two answers about a durable, as far as they tell.
func acked(before, after *natsjs.ConsumerInfo) bool {
	return after.AckFloor.Stream > before.AckFloor.Stream || after.NumAckPending < before.NumAckPending
}

// leader is the server that leads the durable, empty if it is not replicated.
func leader(info *natsjs.ConsumerInfo) string {
	if info.Cluster == nil {
		return ""
	}
	return info.Cluster.Leader
}

// warnParked warns when messages that wait for a retry, or that other sidecars lease, hold most of what the durable may have pending for a while: the
// rest is all that can be in work here. What this source leases itself comes free as it is done, and a small limit on that is told at the binding.
func (s *Source) warnParked(l *look, info *natsjs.ConsumerInfo, now time.Time) {
	most := info.Config.MaxAckPending
	elsewhere := info.NumAckPending - l.leased - int(s.arrived-l.arrived) // what was settled here meanwhile is not
	if most <= 0 || !holdsShare(elsewhere, most, parkedWarning) {
		s.parkedSince = time.Time{}
		return
	}
	if s.parkedSince.IsZero() {
		s.parkedSince = now
	}
	if now.Sub(s.parkedSince) < parkedFor {
		return
	}
	s.conn.complain("parked "+s.cfg.Stream+" "+s.cfg.Durable, "most of max_ack_pending is held by messages that wait for a retry, or that others lease: new ones will have to wait; "+s.parkedAdvice(most),
		slog.String("stream", s.cfg.Stream), slog.String("consumer", s.cfg.Durable),
		slog.Int("ack_pending", info.NumAckPending), slog.Int("leased_here", len(s.leases)), slog.Int("max_ack_pending", most))
}

// parkedAdvice is what to do about that. Why a retry stream that is in use takes nothing is told elsewhere.
func (s *Source) parkedAdvice(most int) string {
	const raise = "raise it"
	switch {
	case s.retries == nil || s.cfg.Ordered || s.limit() <= 1 || most < keepsOrder:
		return raise // they cannot wait there
	case !s.cfg.RetryStream.Enabled:
		return raise + ", or let retries wait in the retry stream (retry_stream.enabled)"
	case s.conn.olderThan(2, 12):
		return raise + ", or let retries wait in the retry stream, which needs nats-server 2.12"
	}
	return raise
}

// holdsShare reports whether n is at least so many per cent of most, which may be as large as an int.
func holdsShare(n, most, percent int) bool { return float64(n)*100 >= float64(most)*float64(percent) }

// offerHeld hands out what arrived in doubt, now that the durable is known to be the same: it lost state in a crash.
func (s *Source) offerHeld(info *natsjs.ConsumerInfo) {
	if len(s.held) == 0 {
		return
	}
	s.countAnew(info)
	for _, m := range s.held {
		if !m.released.Load() {
			m.seenBefore = true // as far as can be known
			s.offerWhole(m)
		}
	}
	s.held = nil
}

// sayUnanswered says why a look failed, once for each new reason. That there is no connection is said elsewhere.
func (s *Source) sayUnanswered(err error) {
	if errors.Is(err, ErrNotConnected) || s.status.Load().Detail == oneLine(err.Error(), 300) {
		return
	}
	s.conn.complain("look "+s.cfg.Stream+" "+s.cfg.Durable+" "+err.Error(), "the durable does not answer, asking on",
		slog.String("stream", s.cfg.Stream), slog.String("consumer", s.cfg.Durable), slog.String("error", oneLine(err.Error(), 300)))
}
