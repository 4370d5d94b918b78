package jetstream

import (
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

const (
	// maxLanes is how many pull requests may be waiting at the server at a time.
	maxLanes = 8
	// enoughToAsk is room for how many messages is worth a pull request of its own while others are coming.
	enoughToAsk = 8
	// pullExpires is how long a pull request waits at the server.
	pullExpires = 30 * time.Second
	// lendingExpires is that where leases may have to be lent to the retry stream.
	lendingExpires = 5 * time.Second
	// heartbeat is how often the server says that a pull request is still waiting.
	heartbeat = time.Second
	// pullPause is the pause after a pull request that nobody answered.
	pullPause = 250 * time.Millisecond
	// leastPull is the time between a pull request that brought nothing and the next: a durable may end them at once (max_expires).
	leastPull = 50 * time.Millisecond
	// silence is how long a waiting pull request may be silent before it is looked into.
	silence = 2 * heartbeat
	// secondLook is how long a pull request in doubt is given to be heard of, while others wait at the durable too.
	secondLook = heartbeat + heartbeat/4
	// longCount is more messages than a durable delivers in the time that evidence is fresh.
	longCount = 1 << 13
	// onItsWay is how long a pull request may be on its way: until then it is no sign that the server has none. The server takes requests
	// and questions in no order.
	onItsWay = heartbeat / 2
	// smallBudget is the number of free bytes below which they are not divided among pull requests.
	smallBudget = 64 << 10

	noResponders = "503"
)

// lane is an inbox with at most one pull request waiting at the server, or with those that came with the acks of one turn (see exchanges). What arrives on it can be counted against that
// request, and a status tells by its subject which request it is about: so the number of messages that may still come
// is known exactly. After a reconnect the inbox stays subscribed, since the request may have outlived the connection.
type lane struct {
	sub    *subscription
	inbox  string        // the reply subject of request n is inbox + n
	closed chan struct{} // closed when nothing more can arrive

	exchange bool          // its requests come with acks
	taken    atomic.Uint64 // how much of what arrived is done with

	// Guarded by Source.mu.
	number    uint64    // of the request
	batch     int       // messages it was to bring
	open      int       // messages it may still bring: see setOpen
	bytes     int64     // bytes it may still bring; 0 without a limit: see setBytes
	floor     uint64    // consumer sequence that whatever it brings is above
	heard     bool      // something came for this request
	proved    bool      // heard of, and then the durable was seen to be the one bound to: its deletion would be told here
	sentAt    time.Time // when the last request was sent
	others    string    // the client that the durable was pinned to then, as far as is known, if it was not to this source
	lastHeard time.Time
	doubted   bool // the request may be gone
	doubtedAt time.Time
	retired   bool      // no new request; open counts until closed
	ending    bool      // retired, and its request is left to end by itself
	life      uint64    // of the connection, when it was retired
	gone      bool      // belongs to a binding that was given up
	lost      int       // as a ghost: messages it may have been sent that did not arrive
	unjudged  time.Time // as a ghost: since when all that it may still have brought counts as lost; zero: a look told how much may be
	until     time.Time

	// Set by the answer that ends a silence: see sentAfter.
	oldUpTo  uint64    // so much had arrived by then, done with or not
	oldAfter time.Time // and was sent after this, more is not known

	// Of an exchange.
	first  uint64     // number of the first request
	each   int64      // bytes that each request may bring
	covers []*Message // the messages whose acks the requests came with; nil where the ack counts for itself again
}

// setOpen sets how many messages a lane may still bring.
func (s *Source) setOpen(l *lane, n int) {
	if !l.gone {
		s.coming += n - l.open
	}
	if l.open = n; n == 0 {
		s.ended(l)
	}
}

// setBytes sets how many bytes a lane may still bring.
func (s *Source) setBytes(l *lane, n int64) {
	if !l.gone {
		s.reserved += n - l.bytes
	}
	l.bytes = n
}

// expected is how many messages may still come besides those leased, and how many may have been lost on the way and are
// leased as the server sees it.
func (s *Source) expected() (coming, lost int) {
	for _, l := range s.ghosts {
		lost += l.lost
	}
	return s.coming, lost
}

// refill asks for as many messages as may be leased besides those that are, as soon as that is an eighth of all: with a slow
// network most of the leases are on their way, and it is asked for more meanwhile. For fewer it asks if no request waits and
// half the prefetch is used up: requests for one or two would soon take all lanes, and make room wait for one of them.
func (s *Source) refill() {
	if s.bound == nil || s.pulling == PullNothing || s.stopped || s.rebind != "" || s.refused != "" || s.makesWay && s.pin.id == "" || s.aside.stands {
		return
	}
	free := s.wants()
	if free <= 0 || !s.conn.Connected() || !s.notBefore.IsZero() && time.Now().Before(s.notBefore) {
		return
	}
	if limit := s.bound.info.Config.MaxRequestBatch; limit > 0 {
		free = min(free, limit)
	}
	free, budget := s.budget(free)
	if free == 0 {
		return
	}
	if l := s.freeLane(); l != nil {
		s.pull(l, free, budget)
	}
}

// wants is how many messages are worth a request now; 0 if none.
func (s *Source) wants() int {
	coming, lost := s.expected()
	free := s.width - s.leased() - coming - lost
	switch {
	case s.order != nil && s.order.gathering && s.pulling == PullOne && !s.gatherOne(coming, time.Now()):
		return 0
	case s.order != nil && s.order.gathering:
		return s.gatherBatch(free, coming, time.Now())
	case s.pulling == PullOne && !s.wantsOne(coming):
		return 0
	case s.pulling == PullOne:
		free = min(free, 1)
	}
	enough := max(s.width/8, min(s.cfg.Prefetch/2, enoughToAsk), 1)
	if free < enough && (coming > 0 || len(s.ready) > s.cfg.Prefetch/2) {
		return 0
	}
	return free
}

// wantsOne reports whether a message is missing to try a failing app with. Those that failed may hold every worker: one comes free
// after each try.
func (s *Source) wantsOne(coming int) bool {
	return coming == 0 && !s.anyFresh() && (s.due == nil || len(s.leases) == 0)
}

// anyFresh reports whether a message is leased that was not tried before.
func (s *Source) anyFresh() bool {
	for _, m := range s.leases {
		if m.verdict == "" && m.Delivered == 1 && !m.kept {
			return true
		}
	}
	return false
}

// budget divides the free bytes. A message that did not fit is asked for alone: with all that is free as soon as that is
// more than what it did not fit, and without a limit once nothing is leased.
func (s *Source) budget(batch int) (int, int64) {
	coming, lost := s.expected()
	free := s.cfg.MaxBytes - s.lentBytes - s.bytes - s.reserved
	most := free // in one request
	if limit := int64(s.bound.info.Config.MaxRequestMaxBytes); limit > 0 {
		most = min(most, limit)
	}
	alone := len(s.leases) == 0 && coming == 0 && lost == 0
	switch {
	case alone && (free <= 0 || s.tooBig > 0 && most <= s.tooBig):
		return 1, 0
	case free <= 0, s.tooBig > 0 && (coming > 0 || most <= s.tooBig):
		return 0, 0
	case s.tooBig == 0 && most/2 >= smallBudget:
		most /= 2
		if s.covered > 0 {
			most = min(most, max(4*int64(batch)*s.sizes, smallBudget)) // acks ask for bytes too
		}
	}
	return batch, most
}

// mostLanes is how many lanes there may be. With one, deliveries arrive in the order they were numbered. A request without the pin
// of a durable that is pinned to this source would wait for nothing.
func (s *Source) mostLanes() int {
	if s.order != nil || s.pin.id == "" && pinned(s.bound.info.Config) != "" {
		return 1
	}
	return maxLanes
}

// freeLane is a lane without a request, made if there are fewer than there may be.
func (s *Source) freeLane() *lane {
	n := 0
	for _, l := range s.lanes {
		if l.exchange {
			continue
		}
		if l.open == 0 && !l.retired {
			return l
		}
		n++
	}
	if n >= s.mostLanes() {
		return nil
	}
	return s.newLane(false)
}

// newLane makes a lane. It is nil on a connection that is being closed, and where the server refuses subscriptions and there is one.
func (s *Source) newLane(exchange bool) *lane {
	if s.conn.isFull() && (exchange || s.hasLane(time.Now())) {
		return nil
	}
	l := &lane{inbox: s.conn.nc().NewRespInbox() + ".", closed: make(chan struct{}), exchange: exchange}
	var err error
	l.sub, err = s.conn.subscribe(l.inbox+"*", func(msg *nats.Msg) {
		s.receive(l, msg)
		l.taken.Add(1)
	}, func() { s.laneClosed(l) })
	if err != nil {
		return nil // the connection is being closed
	}
	s.lanes = append(s.lanes, l)
	return l
}

// pull publishes a pull request.
func (s *Source) pull(l *lane, batch int, budget int64) {
	expires := s.expires
	if s.retries != nil && (s.retries.serving.Load() || s.retries.used && s.parked+s.naks > 0) {
		expires = min(expires, lendingExpires)
	}
	if s.deliversOnce() {
		expires = min(expires, onceExpires)
	}
	if limit := s.bound.info.Config.MaxRequestExpires; limit > 0 {
		expires = min(expires, limit)
	}
	req := make([]byte, 0, 128)
	req = append(req, `{"expires":`...)
	req = strconv.AppendInt(req, int64(expires), 10)
	req = append(req, `,"batch":`...)
	req = strconv.AppendInt(req, int64(batch), 10)
	if budget > 0 {
		req = append(req, `,"max_bytes":`...)
		req = strconv.AppendInt(req, budget, 10)
	}
	req = append(req, `,"idle_heartbeat":`...)
	req = strconv.AppendInt(req, int64(s.beat(expires)), 10)
	req = append(s.appendPin(req), '}')
	reply := l.inbox + strconv.FormatUint(l.number+1, 10)
	if s.conn.nc().PublishRequest(s.nextSubject(), reply, req) != nil {
		return // not connected: asked again after the reconnect
	}
	l.number++
	l.batch = batch
	s.setOpen(l, batch)
	s.setBytes(l, budget)
	l.floor = s.highest
	l.heard, l.proved, l.doubted, l.sentAt = false, false, false, time.Now()
	l.lastHeard = l.sentAt
	l.others = ""
	if s.anothers() {
		l.others = pinnedTo(s.bound.info)
	}
}

// pullDenied reports whether the server refused pull requests for lack of permission, and answered none since.
func (s *Source) pullDenied() bool {
	at, denied := s.conn.deniedAt(s.nextSubject())
	return denied && at.After(s.heard)
}

func (s *Source) nextSubject() string {
	return s.conn.prefix + "CONSUMER.MSG.NEXT." + s.cfg.Stream + "." + s.cfg.Durable
}

// receive takes what arrives on a lane.
func (s *Source) receive(l *lane, msg *nats.Msg) {
	if !fromJetStream(msg) {
		s.control(l, msg)
		return
	}
	m, seq, err := newMessage(msg)
	if err != nil {
		s.conn.complain("metadata", "a message came with a reply subject that makes no sense", slog.String("reply", oneLine(msg.Reply, 200)))
		return
	}
	if s.due != nil {
		s.due.open(m)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.gone || s.bound == nil {
		return // from a binding that was given up: the server delivers it again
	}
	now := time.Now()
	s.hears(now)
	l.lastHeard, l.heard, l.doubted = now, true, false
	s.heard = now
	l.lost = max(l.lost-1, 0)
	if l.exchange {
		s.answered(l)
	} else {
		s.brought(l, m)
	}
	s.tooBig = 0
	s.sizes = max(m.size, s.sizes-s.sizes/sizesFade)
	s.takePin(m)
	s.noteReply(m.reply)
	m.touchedAt = now
	s.admit(l, m, seq)
	s.refill()
}

// brought is told of a message that came for the request of a lane.
func (s *Source) brought(l *lane, m *Message) {
	open, bytes := max(l.open-1, 0), max(l.bytes-m.size, 0)
	if open == 0 || l.bytes == m.size {
		// Bytes that are used up to the last end a request too, and the server does not say so (consumer.go, getNextMsg).
		open, bytes = 0, 0
	}
	s.setOpen(l, open)
	s.setBytes(l, bytes)
}

// admit makes a delivery a lease.
func (s *Source) admit(l *lane, m *Message, seq uint64) {
	m.source, m.serial = s, seq
	s.counted++
	s.arrived++
	m.arrival, m.arrivedAt = s.arrived, m.touchedAt
	m.touchedAt, m.keptAt = s.sentAfter(l, m.arrivedAt), m.arrivedAt
	if s.order != nil && s.order.arrived(seq) {
		s.scattered()
		s.lookToGather()
	}
	if s.due == nil {
		m.StreamCreated, m.MaxDeliver = s.bound.incarnation.stream, max(s.bound.info.Config.MaxDeliver, 0)
		m.seenBefore = s.seenBefore(m.Sequence, seq)
		s.most = max(s.most, m.Sequence)
		s.backlog = m.Pending
	}
	if m.Delivered == 1 {
		m.number = seq
	}
	if old := s.leases[m.lease]; old != nil && s.merge(old, m) {
		return
	}
	s.nonce++
	m.nonce = s.nonce
	s.leases[m.lease] = m
	s.file(m)
	s.bytes += m.size
	s.touched.add(m)
	if m.Delivered == 1 {
		s.widen()
	}
	if seq <= l.floor {
		// The durable counts from the start again: it was made anew, or lost state in a crash. Which of them is asked first.
		s.held = append(s.held, m)
		s.suspect = true
		s.wake()
		return
	}
	s.continues(seq, m.touchedAt)
	l.floor, s.highest = seq, max(s.highest, seq)
	s.offerWhole(m)
	if s.order != nil && s.order.gathering {
		s.gatherMore(m)
		s.lookToGather()
	}
}

// continues is told the number of a delivery and when it came. A durable that was made anew counts from one again, and none delivers so
// many messages in the short time since the last evidence: if the number is above all seen before, the durable is the one bound to.
func (s *Source) continues(number uint64, now time.Time) {
	if number > s.highest && s.highest >= longCount && now.Sub(later(s.evidence, s.counting)) < freshEvidence {
		s.counting = now
	}
}

// merge takes another delivery of a message that is leased here. The server knows one lease of it: there is one here too.
func (s *Source) merge(old, again *Message) bool {
	old.serial, old.arrival, old.forgotten = again.serial, again.arrival, false
	switch {
	case old.verdict == "":
		if !old.started {
			old.Delivered = again.Delivered
		}
		old.latest, old.reply, old.number = again.latest, again.reply, again.number
		old.touchedAt, old.keptAt, old.keptIn = again.touchedAt, again.keptAt, 0
		s.touched.remove(old)
		s.touched.add(old)
	case isNak(old.verdict):
		s.release(old) // the delay is over, or the nak was lost and the ack wait is: a new delivery
		return false
	default:
		s.uncover(old)
		old.reply, old.sentAt = again.reply, time.Time{} // the verdict was lost: say it again
		s.wake()
	}
	return true
}

// control takes a status from the server: about a pull request, told by its subject.
func (s *Source) control(l *lane, msg *nats.Msg) {
	status, text := msg.Header.Get("Status"), msg.Header.Get("Description")
	if status == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	number, ok := l.about(msg)
	if !ok || l.gone || s.bound == nil {
		return
	}
	l.lastHeard, l.heard, l.doubted = time.Now(), true, false
	s.hears(l.lastHeard)
	s.heard = l.lastHeard
	switch {
	case status == "100", l.exchange && msg.Header.Get("Nats-Pending-Messages") == "0":
		return // the message itself is what counts
	case status == "409" && strings.Contains(text, "Consumer Deleted"):
		s.rebind = "the durable was deleted"
		s.wake()
		return
	case status == "409" && strings.Contains(text, "Leadership Change"):
		l.doubted, l.doubtedAt = true, time.Now().Add(-secondLook)
		s.ledAnew(l.lastHeard)
		return
	case status == noResponders, status == "409" && strings.Contains(text, "Server Shutdown"):
		// Nobody serves the durable now: asked again after a pause, however often the answer is this.
		s.notBefore = l.lastHeard.Add(pullPause)
		s.askAnew(l.lastHeard, false)
	case status == "409" && strings.Contains(text, "Exceeds MaxBytes"):
		s.tooBig = max(s.tooBig, l.budget())
	case status == "408" && l.open == l.batch && l.lastHeard.Before(l.sentAt.Add(leastPull)):
		s.notBefore = later(s.notBefore, l.sentAt.Add(leastPull))
		time.AfterFunc(leastPull, s.wake)
	case status == wrongPin:
		s.losePin()
		s.notBefore = l.lastHeard.Add(pullPause)
	case status == "400", status == "409" && msg.Header.Get("Nats-Pending-Messages") == "":
		// The durable was edited, most likely: its limits on requests are read again before the next one.
		s.conn.complain("pull "+text, "the server refused a pull request", slog.String("status", status), slog.String("error", oneLine(text, 200)))
		s.notBefore = l.lastHeard.Add(pullPause)
		s.suspect = true
		s.wake()
	}
	if l.exchange {
		if status != noResponders {
			s.exchangeFrom = l.lastHeard.Add(exchangeRest)
		}
		s.refusedExchange(l, number)
	} else {
		s.returned(l, msg.Header.Get("Nats-Pending-Messages"))
	}
	s.refill()
}

// budget is what a message may have that a request of the lane can bring.
func (l *lane) budget() int64 {
	if l.exchange {
		return l.each
	}
	return l.bytes
}

// returned takes back what a request that ended did not bring.
func (s *Source) returned(l *lane, pending string) {
	n, err := strconv.Atoi(pending)
	if err != nil {
		n = l.open
	}
	s.setOpen(l, max(l.open-max(n, 0), 0))
	s.setBytes(l, 0)
}

// watchLanes looks for requests that went silent, and forgets ghosts whose messages the server has taken back by now.
func (s *Source) watchLanes(now time.Time) {
	for _, l := range s.lanes {
		if l.ending && now.Sub(l.sentAt) > onceExpires+onItsWay {
			s.ended(l) // the word of its end is lost
		}
		if l.open > 0 && l.doubted && now.Sub(l.doubtedAt) >= onItsWay && now.Sub(s.evidence) >= onItsWay {
			s.lookNow()
		}
		if l.open > 0 && now.Sub(l.lastHeard) >= silence {
			fresh := s.looked || now.Sub(s.evidence) <= heartbeat/2
			if l.exchange && !l.doubted && !l.retired && fresh {
				s.retireSilent(l, now)
				continue
			}
			if !l.doubted && !l.exchange {
				l.doubted, l.doubtedAt, s.before = true, now, s.most
			}
			if !fresh {
				s.suspect = true
				s.wake()
			}
		}
	}
	kept := s.ghosts[:0]
	for _, l := range s.ghosts {
		if l.lost > 0 && now.Before(l.until) {
			kept = append(kept, l)
			continue
		}
		if l.unjudged.IsZero() {
			s.counted += uint64(l.lost) // else it is not known whether they were delivered
		}
		s.conn.unsubscribe(l.sub)
	}
	clear(s.ghosts[len(kept):])
	s.ghosts = kept
}

// retireSilent ends requests that came with acks and were not answered, where nothing speaks for it that they are gone: they may wait as long
// as the durable has nothing to deliver, and are not told from lost ones. What the room is asked for instead has a heartbeat.
func (s *Source) retireSilent(l *lane, now time.Time) {
	s.restExchanges(now)
	s.retire(l)
}

// judgeLanes decides what became of requests in doubt. A request that is gone may have been sent messages that did not
// arrive here: they stay leased at the server until the ack wait, so they count as leased here too, as far as there can be any. What
// arrived since it was asked, counted being what was accounted for then, may have been sent after the answer.
func (s *Source) judgeLanes(info *natsjs.ConsumerInfo, asked time.Time, counted uint64) {
	now := time.Now()
	for _, l := range s.lanes {
		l.proved = l.proved || l.heard && l.lastHeard.Before(asked)
	}
	unseen := int(min(info.Delivered.Consumer-min(counted, info.Delivered.Consumer), 1<<30))
	// Leased at the server and not here: parked, others', or lost. A message whose verdict was sent may be off its books already.
	elsewhere := info.NumAckPending
	for _, m := range s.leases {
		if m.verdict == "" && !m.arrivedAt.After(asked) {
			elsewhere = max(elsewhere-1, 0)
		}
	}
	for _, l := range s.ghosts {
		l.lost = min(l.lost, elsewhere)
		if !l.unjudged.IsZero() && l.unjudged.Before(asked) {
			l.lost, l.unjudged = l.losable(min(l.lost, unseen), info), time.Time{}
		}
		elsewhere -= l.lost
		unseen = max(unseen-l.lost, 0)
	}
	for _, l := range append([]*lane(nil), s.lanes...) {
		switch {
		case l.open == 0 || l.retired:
		case info.NumWaiting == 0 && !l.doubted && asked.Sub(l.lastHeard) > heartbeat/2:
			l.doubted, l.doubtedAt = true, now
		case !l.doubted || l.lastHeard.After(asked):
		case (info.NumWaiting > 0 || asked.Sub(l.sentAt) < onItsWay) && (now.Sub(l.doubtedAt) < secondLook || now.Sub(l.lastHeard) < secondLook):
		case l.exchange:
			s.retire(l) // its requests have no heartbeat and may be there: what is lost is judged when they can bring nothing more
		default:
			s.lanes = without(s.lanes, l)
			l.retired = true
			l.lost = l.losable(min(l.open, unseen, elsewhere), info)
			unseen, elsewhere = unseen-l.lost, elsewhere-l.lost
			l.until = now.Add(takenBackAfter(info.Config))
			s.uncoverAll(l)
			s.setOpen(l, 0)
			s.setBytes(l, 0)
			s.ghosts = append(s.ghosts, l)
		}
	}
}
