package jetstream

import (
	"context"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// resendAfter is how long a verdict waits for its confirmation before it is sent again; it doubles up to resendMax.
	resendAfter = 2 * time.Second
	resendMax   = 15 * time.Second
	// forsakeAfter is how long after the ack wait a verdict is still sent again, over one connection, to a durable that
	// is there and does not confirm it: it does not know the message any more (it lost state in a crash), and will deliver it again.
	forsakeAfter = time.Minute
	// fullOutbox is how many verdicts are sent at once, if they were not sent before: those that wait hold leases.
	fullOutbox = 4
	// freshEvidence is how old the knowledge that the durable was not made anew may be when a verdict is sent.
	freshEvidence = 20 * time.Millisecond
)

// Message is one leased message. Exactly one of Ack, Nak, Term and HandBack settles it; each returns at once, and the
// verdict is sent again in the background until the server confirmed it.
type Message struct {
	Subject   string
	Header    map[string][]string // nil if there is none, or it cannot be parsed
	Body      []byte
	Sequence  uint64 // stream sequence
	Delivered uint64 // this delivery's number, 1 on the first
	Pending   uint64 // messages behind this one
	Stored    time.Time
	// StreamCreated and MaxDeliver are the stream's creation time and the server-side limit of the durable (0: none).
	StreamCreated time.Time
	MaxDeliver    int
	// Tries is how often the message was tried in place; who works on it counts.
	Tries uint64
	// HeaderLost says that the message had a header block that could not be parsed.
	HeaderLost bool

	source     *Source
	lease      uint64 // what the lease is known by: the sequence in the stream it was pulled from
	repeats    uint64 // of a message of the retry stream: how often it was delivered there
	unfit      string // of one that makes no sense: its verdict
	reply      string
	size       int64
	nonce      uint64 // tells confirmations apart
	released   atomic.Bool
	number     uint64 // of its first delivery, among all of the durable; 0 if it came by a later one
	serial     uint64 // of its latest one
	seenBefore bool   // a message of this sequence was delivered before, by the durable or an earlier one of its name

	// Guarded by source.mu.
	started    bool
	latest     uint64    // number of the latest delivery: more than Delivered if there was another while this one was in work
	kept       bool      // it was tried, and is tried again in place
	lacking    bool      // the server may have left out its body
	settled    bool      // by another client, on a source that keeps order: it is pending no more
	first      bool      // nothing before it is pending, on a source that keeps order
	verdict    string    // what was decided; empty: nothing yet
	sentAt     time.Time // when the verdict was last sent; zero: it waits to be sent
	resend     time.Duration
	firstSent  time.Time // on this connection
	awaited    time.Time // since when a look finds it unconfirmed, on this connection
	arrivedAt  time.Time
	arrival    uint64    // its latest delivery's number among all that arrived
	unknown    time.Time // since when the server does not know of it; zero: it does, as far as is known
	forgotten  bool      // the server does not, and this was at the app then: it is not tried again before it is delivered again
	wasSent    bool      // on any connection
	touchedAt  time.Time // when the server last heard of the lease, for sure
	keptAt     time.Time // when it was last told of it
	keptIn     uint64    // in which round that was; 0: it was not, it delivered the message then
	coveredBy  *lane     // its ack asked for a message there, which takes over the lease
	prev, next *Message  // in the touch list
	keyed      *keyed    // the leases of its key, on a source that keeps order
	place      int       // among those
}

// Fresh reports whether the message was not tried before, as far as is known. It is for who works on the message.
func (m *Message) Fresh() bool { return m.Delivered == 1 && !m.kept }

// Last reports whether the server delivers the message no more, whatever becomes of this delivery but an ack: the durable has a limit of
// its own on deliveries, and this is the last one.
func (m *Message) Last() bool {
	s := m.source
	if s.due != nil {
		return false // the durable of the retry stream has no limit
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isLast(m)
}

func (s *Source) isLast(m *Message) bool {
	limit := m.MaxDeliver
	if s.bound != nil {
		limit = s.bound.info.Config.MaxDeliver
	}
	return limit > 0 && m.latest >= uint64(limit)
}

// Lost reports whether the lease is lost, or may be by now: then the message may be in work elsewhere, or done, and all that is
// to be done with it is HandBack.
func (m *Message) Lost() bool { return m.source.stillLeased(m) != nil }

// LostAny reports whether one of the messages is lost. Of a batch it costs less than to ask each.
func LostAny(messages []*Message) bool {
	now := time.Now()
	for len(messages) > 0 {
		source, n := messages[0].source, 1
		for n < len(messages) && messages[n].source == source {
			n++
		}
		if source.lostAny(messages[:n], now) {
			return true
		}
		messages = messages[n:]
	}
	return false
}

// Ack says that the message is done.
func (m *Message) Ack() { m.done(ack) }

// Nak asks for another delivery after the delay, which must be above 0.
func (m *Message) Nak(delay time.Duration) {
	m.source.settle(m, nak(delay))
}

// nak is the verdict that asks for another delivery after a delay.
func nak(delay time.Duration) string {
	return `-NAK {"delay": ` + strconv.FormatInt(int64(max(delay, time.Millisecond)), 10) + `}`
}

// Retry asks for another delivery after the delay, as Nak does. Where the messages that wait for a retry would hold too much of
// max_ack_pending it waits in the retry stream.
func (m *Message) Retry(delay time.Duration) {
	r := m.source.retries
	if m.source.due != nil {
		r = m.source.due
	}
	if r == nil || !r.move(m, delay) {
		m.Nak(delay)
	}
}

// done settles the message for good.
func (m *Message) done(verdict string) {
	if r := m.source.due; r == nil || !r.finish(m, verdict) {
		m.source.settle(m, verdict)
	}
}

// Term says that the message must not be delivered again; the reason is seen in the server's advisory.
func (m *Message) Term(reason string) {
	if reason = oneLine(reason, 200); reason != "" {
		reason = " " + reason
	}
	m.done("+TERM" + reason)
}

// Stranded reports whether the server would give up on the message if it were handed back now: it delivers it no more, and the retry
// stream cannot take it.
func (m *Message) Stranded() bool {
	r := m.source.retries
	return m.Last() && (r == nil || !r.takesBack(m))
}

// HandBack gives the message back for another delivery at once, to any sidecar of the durable. On the last delivery that the server
// makes it goes to the retry stream, if it can: else the server gives up on it.
func (m *Message) HandBack() {
	if r := m.source.retries; r == nil || !m.Last() || !r.takeBack(m) {
		m.source.settle(m, handBack)
	}
}

const (
	ack      = "+ACK"
	handBack = "-NAK"
)

var ackWire = []byte(ack)

// wire is a verdict as it is sent. It must not be changed.
func wire(verdict string) []byte {
	if verdict == ack {
		return ackWire
	}
	return []byte(verdict)
}

// isNak reports whether a verdict asks for another delivery.
func isNak(verdict string) bool { return strings.HasPrefix(verdict, "-NAK") }

// fromJetStream tells a message from a control message: by its reply subject, never by its headers.
func fromJetStream(msg *nats.Msg) bool { return strings.HasPrefix(msg.Reply, "$JS.ACK.") }

// newMessage reads what the server says of a message in its reply subject.
func newMessage(msg *nats.Msg) (*Message, uint64, error) {
	d, err := deliveryOf(msg)
	if err != nil {
		return nil, 0, err
	}
	m := &Message{
		Subject: msg.Subject, Header: msg.Header, Body: msg.Data,
		Sequence: d.stream, Delivered: d.delivered, Pending: d.pending, Stored: d.stored,
		lease: d.stream, latest: d.delivered, reply: msg.Reply, size: int64(msg.Size()),
	}
	m.HeaderLost = len(m.Header) == 0 && msg.Size() > len(msg.Subject)+len(msg.Reply)+len(msg.Data)+len("NATS/1.0\r\n\r\n")
	return m, d.consumer, nil
}

// begin marks a message as worked on. A lease that is lost, or may be by now, is not begun: the server delivers the
// message again, perhaps to somebody else.
func (s *Source) begin(m *Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.released.Load() {
		return false
	}
	now := time.Now()
	s.heedSilence(now)
	if s.expired(m, now) || m.forgotten {
		s.release(m)
		return false
	}
	m.started = true
	s.refill()
	return true
}

// expired reports whether the server may have delivered the message again because it heard nothing for the ack wait.
func (s *Source) expired(m *Message, now time.Time) bool {
	return s.bound == nil || now.Sub(m.touchedAt) >= ackWait(s.bound.info.Config)
}

// settle decides a message. What is leased from a stream or durable that was made anew is dropped here, unsettled.
func (s *Source) settle(m *Message, verdict string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decide(m, verdict, time.Now())
}

func (s *Source) decide(m *Message, verdict string, now time.Time) {
	if m.released.Load() || m.verdict != "" {
		return
	}
	if isNak(verdict) && s.expired(m, now) {
		// It may be in work elsewhere: a late nak would bring a third delivery while the second is in work.
		s.release(m)
		s.scattered()
		return
	}
	if isNak(verdict) {
		s.scattered()
	}
	if isNak(verdict) && verdict != handBack {
		s.naks++
	}
	if s.note(m, verdict); len(s.outbox) >= fullOutbox {
		s.sendOutbox(now)
		s.refill()
		return
	}
	select {
	case s.post <- struct{}{}:
	default:
	}
}

// note puts a verdict into the outbox, unless there was one before.
func (s *Source) note(m *Message, verdict string) {
	if m.released.Load() || m.verdict != "" {
		return
	}
	m.verdict, m.resend = verdict, resendAfter
	s.touched.remove(m) // an in-progress after the verdict would undo it
	s.settling[m] = struct{}{}
	s.widen()
	s.outbox = append(s.outbox, m)
}

// mayPublish reports whether it is known that the durable was not made anew: a waiting pull would have been told, or it
// was looked at just now (and where permissions allow it, an advisory tells of a deletion within about a millisecond).
// Where it is not known, a look is asked for.
func (s *Source) mayPublish(now time.Time) bool {
	if s.bound == nil || s.suspect || s.rebind != "" || !s.conn.Connected() {
		return false
	}
	age := now.Sub(later(s.evidence, s.counting))
	switch {
	case s.looked, age <= freshEvidence/2, s.proved():
		return true
	case age < freshEvidence:
		s.lookNow() // so that the next one need not wait for it
		return true
	}
	s.suspect = true
	return false
}

// proved reports whether a pull request waits at the durable bound to.
func (s *Source) proved() bool {
	for _, l := range s.lanes {
		if l.open > 0 && l.proved && !l.doubted && !l.retired && !l.exchange {
			return true
		}
	}
	return false
}

// send publishes a verdict. It reports whether it was written to the connection.
func (s *Source) send(m *Message, now time.Time) bool {
	s.uncover(m)
	if s.cfg.AckAsync {
		if s.conn.nc().Publish(m.reply, wire(m.verdict)) != nil {
			return false
		}
		s.finish(m)
		return true
	}
	var room [128]byte
	b := append(room[:0], s.ackInbox...)
	b = strconv.AppendUint(b, m.lease, 10)
	b = append(b, '.')
	b = strconv.AppendUint(b, m.nonce, 10)
	if s.conn.nc().PublishRequest(m.reply, string(b), wire(m.verdict)) != nil {
		return false
	}
	if m.sentAt.IsZero() {
		m.firstSent = now
	}
	m.sentAt, m.wasSent = now, true
	return true
}

// sendDecided sends verdicts as they are decided, until ctx ends: all that have come when it is its turn, so that under load
// many go in one piece, and the room they leave is asked for at once. When nothing else is to be done its turn is now.
func (s *Source) sendDecided(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.post:
		}
		runtime.Gosched()
		s.mu.Lock()
		s.sendOutbox(time.Now())
		s.refill()
		s.mu.Unlock()
	}
}

// sendOutbox sends what was decided. What cannot be sent now waits until the durable is known to be the same, which the serving loop
// asks for, or until there is a connection.
func (s *Source) sendOutbox(now time.Time) {
	if len(s.outbox) == 0 {
		return
	}
	x := s.exchanges(len(s.outbox), now)
	sent := 0
	for _, m := range s.outbox {
		if !s.sendDecision(&x, m, now) {
			s.wake()
			break
		}
		sent++
	}
	left := copy(s.outbox, s.outbox[sent:])
	clear(s.outbox[left:])
	s.outbox = s.outbox[:left]
}

// sendDecision sends a verdict that was just decided. It reports whether nothing is left to be done.
func (s *Source) sendDecision(x *exchanges, m *Message, now time.Time) bool {
	switch {
	case m.released.Load() || !m.sentAt.IsZero() || m.wasSent:
		return true
	case isNak(m.verdict) && s.expired(m, now):
		s.release(m) // as in settle: its turn came late
		return true
	case !s.mayPublish(now):
		return false
	}
	return x.takes(m) && s.exchange(x, m, now) || s.send(m, now)
}

// confirmed handles the server's answer to a verdict.
func (s *Source) confirmed(msg *nats.Msg) {
	rest := strings.TrimPrefix(msg.Subject, s.ackInbox)
	if number, ok := groupOf(rest); ok {
		s.confirmedOfGroup(number, msg)
		return
	}
	if round, ok := strings.CutPrefix(rest, roundPrefix); ok {
		s.confirmedRound(round, msg)
		return
	}
	if id, ok := strings.CutPrefix(rest, pinPrefix); ok {
		s.renewedPin(id, msg)
		return
	}
	seqText, nonceText, _ := strings.Cut(rest, ".")
	seq, err1 := strconv.ParseUint(seqText, 10, 64)
	nonce, err2 := strconv.ParseUint(nonceText, 10, 64)
	if err1 != nil || err2 != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.leases[seq]
	if m == nil || m.nonce != nonce || m.verdict == "" {
		return
	}
	now := time.Now()
	if msg.Header.Get("Status") == noResponders {
		// Nobody was there to hear it: not a confirmation. It is sent again after a pause, also where the durable answers.
		m.firstSent, m.sentAt = now, now.Add(lookPause-m.resend)
		time.AfterFunc(lookPause, s.wake)
		s.askAnew(now, false)
		return
	}
	s.hears(now)
	s.confirmedAt = now
	s.finish(m)
	s.refill()
}

// sendWaiting sends verdicts that were not sent yet, or were not confirmed in time.
//
// A nak is another matter than an ack. The server does it for whatever delivery of the message is pending (nats-server
// consumer.go, processNak), so one that is sent again although the first one worked would have a message delivered again that
// is in work elsewhere. It is sent again only where nobody else can have it, and not after the ack wait, which does the same.
func (s *Source) sendWaiting(now time.Time) {
	patience := ackWait(s.bound.info.Config) + forsakeAfter
	for m := range s.settling {
		switch {
		case isNak(m.verdict) && s.expired(m, now):
			s.release(m) // it comes again by the ack wait
		case m.sentAt.IsZero() && !s.mayPublish(now):
			s.wake() // look first; sent when that is answered
			return
		case m.sentAt.IsZero():
			if s.repeatable(m, now) && !s.send(m, now) {
				return
			}
		case now.Sub(m.firstSent) > patience:
			s.release(m)
			s.scattered()
		case now.Sub(m.sentAt) >= m.resend:
			if !s.looked && isNak(m.verdict) || !s.mayPublish(now) {
				s.suspect = true // look first; sent when that is answered
				s.wake()
				return
			}
			m.resend = min(2*m.resend, resendMax)
			if m.coveredBy != nil {
				s.restExchanges(now)
			}
			if s.repeatable(m, now) && !s.send(m, now) {
				return
			}
		}
	}
}

// repeatable reports whether a verdict may be sent, perhaps once more: a nak only if a look just now told that nobody else can
// have the message. One that may not waits for the next look, or at a stop for nothing: then its message comes again by the
// ack wait if the nak did not work.
func (s *Source) repeatable(m *Message, now time.Time) bool {
	switch {
	case !isNak(m.verdict) || !m.wasSent:
		return true
	case s.looked && s.onlyOne:
		return true
	case s.looked && s.stopped:
		s.release(m)
		return false
	}
	m.sentAt = now
	if !s.looked {
		m.sentAt = time.Time{}
		s.suspect = true
		s.wake()
	}
	return false
}

// release ends a lease.
func (s *Source) release(m *Message) {
	if m.released.Load() {
		return
	}
	m.released.Store(true)
	s.uncover(m)
	s.touched.remove(m)
	if s.leases[m.lease] == m {
		delete(s.leases, m.lease)
	}
	s.bytes -= m.size
	s.lookToGather()
	s.passTurn(m)
	if _, ok := s.settling[m]; ok {
		delete(s.settling, m)
		if len(s.settling) == 0 {
			for _, done := range s.idle {
				close(done)
			}
			s.idle = nil
		}
	}
}

// widen lets one more message be leased, up to the limit.
func (s *Source) widen() { s.width = min(s.width+1, s.limit()) }
