package jetstream

import (
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

const (
	// maxExchangeLanes is how many lanes there may be for acks that ask for the next message.
	maxExchangeLanes = 32
	// plentyPending is how many messages must be waiting in the stream, besides those that can be leased or come, for an ack to ask for
	// the next one: such a request has no end, and is meant to be answered at once.
	plentyPending = 64
	// waitingShare is the part of max_waiting that may be used up: each such request is one of its own at the server.
	waitingShare = 4
	// exchangeRest is how long no ack asks for a message after one that was answered by something else.
	exchangeRest = 10 * time.Second
	// exchangeRestMax is the most that it doubles to while acks that ask are not answered at all.
	exchangeRestMax = 10 * time.Minute
	// smallShare is the least that an ack asks for in bytes.
	smallShare = 16 << 10
	// sizesFade is how slowly the size of a large message is forgotten.
	sizesFade = 256
	// subjectsSize is the most that the subject of a message and its reply subject take of its size.
	subjectsSize = 8 << 10
)

var nextWire = []byte("+NXT")

// exchanges is how the acks that are sent in one turn ask for a message each. An ack with the body +NXT is both: the server settles the message
// and then takes the pull request (nats-server consumer.go, processAck). So the two are done together or not at all, by one leader, and
// at no time more is leased than before: the lease goes over to the message that is asked for, which need not wait until the ack is confirmed.
//
// It is confirmed by that message. Which request a message answers is not told. But a lane has the requests of one turn,
// and once as many messages came as it has requests, all were heard. Where something else came, or nothing, the ack is sent again by itself.
//
// Not where the API is another account's: an import may pass one answer only. Not on a source that keeps order: its lane has one request.
//
// Where there is room for the largest message that can be, the request is a bare one, which costs the server least.
type exchanges struct {
	lane *lane // nil: no acks ask
	room int   // how many more may
	each int64 // bytes set aside for each
	wire []byte
}

// exchanges prepares n acks.
func (s *Source) exchanges(n int, now time.Time) exchanges {
	none := exchanges{}
	if s.conn.imported || s.cfg.AckAsync || s.order != nil || s.due != nil || s.bound == nil || s.pulling != PullAll || s.stopped || s.rebind != "" || s.refused != "" ||
		s.tooBig > 0 || s.deliversOnce() || now.Before(s.exchangeFrom) || now.Before(s.notBefore) ||
		s.bound.info.Config.PriorityPolicy != natsjs.PriorityPolicyNone || replicated(s.bound.info) {
		return none
	}
	coming, lost := s.expected()
	n = min(n, int(min(s.backlog, 1<<30))-coming-s.width-plentyPending, s.bound.info.Config.MaxWaiting/waitingShare-coming)
	if n <= 0 || s.leased()+coming+lost > s.width {
		return none
	}
	x := exchanges{room: n, each: s.conn.mostPayload() + subjectsSize, wire: nextWire}
	free := s.cfg.MaxBytes - s.lentBytes - s.bytes - s.reserved
	if free-int64(n)*x.each < s.cfg.MaxBytes/8 {
		x.each, x.wire = s.share()
		x.room = int(min(int64(n), max(free, 0)/x.each))
	}
	if x.room > 0 {
		x.lane = s.exchangeLane()
	}
	if x.lane != nil {
		l := x.lane
		l.first, l.each, l.covers = l.number+1, x.each, l.covers[:0]
		l.floor, l.heard, l.proved, l.doubted, l.lastHeard = s.highest, false, false, false, now
	}
	return x
}

// replicated reports whether several servers keep the state of a durable. When another becomes its leader, acks that were on their way to the
// old one are lost, and the new one soon delivers those messages again: plain acks say so sooner.
func replicated(info *natsjs.ConsumerInfo) bool {
	return info.Cluster != nil && len(info.Cluster.Replicas) > 0
}

// share is how many bytes an ack may ask for where there is no room for the largest message, and the request. It is ample for messages
// like those that came lately, and leaves room for the other leases.
func (s *Source) share() (int64, []byte) {
	each := int64(smallShare)
	for each < 4*s.sizes {
		each *= 2
	}
	each = max(min(each, s.cfg.MaxBytes/int64(2*(s.cfg.Concurrency+s.cfg.Prefetch))), 1)
	if limit := int64(s.bound.info.Config.MaxRequestMaxBytes); limit > 0 {
		each = min(each, limit)
	}
	if each != s.shared {
		s.shared, s.shareWire = each, fmt.Appendf(nil, `+NXT {"batch":1,"max_bytes":%d}`, each)
	}
	return each, s.shareWire
}

// takes reports whether the verdict of a message is an ack that may ask for another. Where messages are large it may not: most would not fit.
func (x *exchanges) takes(m *Message) bool {
	return x.lane != nil && x.room > 0 && m.verdict == ack && !m.wasSent && m.size <= x.each/2
}

// exchange sends the ack of a message and asks for the next one. It reports whether that was written to the connection.
func (s *Source) exchange(x *exchanges, m *Message, now time.Time) bool {
	l := x.lane
	var room [128]byte
	reply := strconv.AppendUint(append(room[:0], l.inbox...), l.number+1, 10)
	if s.conn.nc().PublishRequest(m.reply, string(reply), x.wire) != nil {
		return false
	}
	x.room--
	l.number++
	l.covers = append(l.covers, m)
	m.coveredBy = l
	s.covered++
	s.setOpen(l, l.open+1)
	s.setBytes(l, l.bytes+l.each)
	l.sentAt = now
	m.firstSent, m.sentAt, m.wasSent = now, now, true
	return true
}

// answered is told of a message that came for an ack.
func (s *Source) answered(l *lane) {
	s.setBytes(l, max(l.bytes-l.each, 0))
	s.setOpen(l, max(l.open-1, 0))
	s.complete(l)
}

// complete ends the leases whose acks are confirmed: all of a lane, when all that it asked for came.
func (s *Source) complete(l *lane) {
	if l.open > 0 {
		return
	}
	for i, m := range l.covers {
		l.covers[i] = nil
		if m != nil {
			m.coveredBy = nil
			s.covered--
			s.unanswered, s.confirmedAt = 0, l.lastHeard
			s.release(m)
		}
	}
	l.covers = l.covers[:0]
	s.setBytes(l, 0)
}

// refusedExchange is told that the request that came with an ack is over without a message. The ack may have been lost with it.
func (s *Source) refusedExchange(l *lane, number uint64) {
	if i := number - l.first; i < uint64(len(l.covers)) && l.covers[i] != nil {
		m := l.covers[i]
		s.uncover(m)
		m.sentAt = time.Time{}
		s.wake()
	}
	s.answered(l)
}

// restExchanges is told that an ack that asked for a message was not answered in time.
func (s *Source) restExchanges(now time.Time) {
	if now.Before(s.exchangeFrom) {
		return // others of the same time
	}
	s.unanswered = min(max(2*s.unanswered, exchangeRest), exchangeRestMax)
	s.exchangeFrom = now.Add(s.unanswered)
}

// uncover takes back that a lease went over to a message that was asked for: its ack may be lost, so it counts again.
func (s *Source) uncover(m *Message) {
	l := m.coveredBy
	if l == nil {
		return
	}
	for i, c := range l.covers {
		if c == m {
			l.covers[i] = nil
		}
	}
	m.coveredBy = nil
	s.covered--
}

// uncoverAll is uncover for all of a lane. Their acks are sent again.
func (s *Source) uncoverAll(l *lane) {
	for _, m := range l.covers {
		if m != nil {
			s.uncover(m)
			m.sentAt = time.Time{}
			s.wake()
		}
	}
}

// leased is how many leases there are besides those that went over to messages that were asked for.
func (s *Source) leased() int { return len(s.leases) - s.covered }

// exchangeLane is a lane for acks, without a request.
func (s *Source) exchangeLane() *lane {
	n := 0
	for _, l := range s.lanes {
		if l.exchange && !l.retired {
			if l.open == 0 {
				return l
			}
			n++
		}
	}
	if n >= maxExchangeLanes {
		return nil
	}
	return s.newLane(true)
}

// about reports whether a status tells of a request of this lane that may be open: by its subject, which ends with the number of the request.
func (l *lane) about(msg *nats.Msg) (number uint64, ok bool) {
	if len(msg.Subject) <= len(l.inbox) {
		return 0, false
	}
	number, err := strconv.ParseUint(msg.Subject[len(l.inbox):], 10, 64)
	first := l.number
	if l.exchange {
		first = l.first
	}
	return number, err == nil && first <= number && number <= l.number
}
