package jetstream

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// infoEvery is how often the durable is looked at: for the metrics, the ack floor, and to notice that it was made anew.
	infoEvery = 2 * time.Second
	// parkedWarning is the share of max_ack_pending, in per cent, from which on a warning is logged.
	parkedWarning = 80
	// parkedFor is how long it has to be held.
	parkedFor = 5 * time.Second
	// bindEvery bounds the wait between two tries to find the stream and durable.
	bindEvery = 2 * time.Second
)

// Source leases messages from one durable pull consumer and settles them.
//
// At most Concurrency + Prefetch messages are leased at a time, also over reconnects and leader changes: what was asked
// for and may still come counts as leased, and a lease ends when the server confirmed the verdict, or goes over to the message
// that the ack asked for (see exchanges). After every start
// the bound begins with one and widens with each verdict or first delivery.
type Source struct {
	conn *Conn
	cfg  ConsumerConfig
	log  *slog.Logger

	ready   chan *Message // leased, nobody works on them yet
	putting sync.Mutex    // held to add to them
	kick    chan struct{} // wakes the serving loop
	post    chan struct{} // wakes who sends the outbox

	incomplete chan struct{} // wakes who reads bodies that were left out

	mu           sync.Mutex
	bound        *binding              // nil while there is no durable to serve
	leases       map[uint64]*Message   // by stream sequence, until the verdict is confirmed
	touched      touchList             // the leases that are kept alive, least recently touched first
	settling     map[*Message]struct{} // verdicts that are not confirmed yet
	outbox       []*Message            // those of them that were just decided
	bytes        int64                 // of all leases
	width        int                   // how many leases are allowed now
	expires      time.Duration         // how long a pull request waits at the server
	lanes        []*lane
	coming       int                 // messages that the lanes may still bring
	reserved     int64               // bytes that they may
	covered      int                 // leases that went over to messages that were asked for
	backlog      uint64              // messages that waited in the stream when the last one came
	ghosts       []*lane             // requests that are gone and may have been sent messages that did not arrive
	held         []*Message          // arrived in doubt, not offered to the workers
	bodiless     []*Message          // so are these: see doubtBody
	empty        map[uint64]struct{} // stream sequences: see twiceEmpty
	pulling      Pulling
	notBefore    time.Time     // no pull request before then
	exchangeFrom time.Time     // no ack asks for a message before then
	unanswered   time.Duration // the last rest after acks that were not answered
	shared       int64         // what an ack may ask for, and the request
	shareWire    []byte
	sizes        int64  // of the largest message that came lately
	stopped      bool   // no more pulling
	highest      uint64 // consumer sequence seen
	lag          lag
	onlyOne      bool            // all deliveries of the durable since it was bound to came here, at the last look
	arrived      uint64          // how many messages did
	counted      uint64          // deliveries of the durable that are accounted for: before this binding, arrived, or lost and taken back
	heard        time.Time       // when something last came for a pull request
	boundAt      time.Time       // when the durable was bound to
	tooBig       int64           // a message did not fit this many free bytes
	counting     time.Time       // when the count of the durable last told that: see continues
	rounds       rounds          // of keeping leases alive
	acks         string          // what the subjects begin with that verdicts go to, once a message came
	confirmedAt  time.Time       // when the server last confirmed something
	keepAll      bool            // all leases are kept alive now: what was sent for them may be lost
	evidence     time.Time       // when the durable was last known to be the one bound to: when it was asked
	suspect      bool            // the durable may have been made anew: look before anything else is done
	refused      string          // why the durable, edited since, cannot be pulled from any more: what is leased is settled all the same
	doubtedAt    time.Time       // when there was a reason for that: what was asked before does not dispel it
	looks        looks           // see lookWhenAsked
	lookAhead    bool            // a look is due soon: it is done now, while nothing waits for it
	looked       bool            // the durable was looked at in this turn, however long that took
	rebind       string          // why the binding must be given up; empty: it need not
	idle         []chan struct{} // closed when nothing is settling

	order   *order  // nil: messages may overtake each other
	orderer orderer // set before Run
	pin     pin
	hearing hearing
	aside   aside

	makesWay bool // no request is sent, for the sake of the source that the durable is pinned to: see leaveRoom

	lent        int       // leases lent to the retry stream
	lentBytes   int64     // and bytes
	parked      int       // messages that waited for a retry at the last look, or were leased by others
	naks        int       // messages put off since
	parkedSince time.Time // since when most of max_ack_pending is held by such messages; zero: it is not
	most        uint64    // the highest stream sequence delivered in the life of the stream
	before      uint64    // the same, when the durable was bound to or may have lost state last

	// A source has one of them at most.
	retries *retries // where its messages wait for a retry; nil if at the durable
	due     *retries // whose messages it brings again

	ackInbox string // verdicts are confirmed here

	groups               map[uint64]*ackGroup // acks that are confirmed together, by number
	grouped, oldestGroup uint64
	nonce                uint64

	// Owned by Run.
	lastSeen *lastSeen
	goesOn   incarnation // of a durable that was created to go on where another one ended
	warned   []string
	stood    bool // there is a durable that cannot be served, as far as is known

	lives spells // of the durable

	status atomic.Pointer[Status]
	left   atomic.Pointer[Message] // leased and not begun: it did not fit into a batch
}

// lastSeen is what a durable that vanished needs to continue.
type lastSeen struct {
	stream time.Time // when the stream was created
	floor  uint64    // acknowledgement floor, a stream sequence
}

// Status is what is known of a source.
type Status struct {
	Bound      bool
	Detail     string // why it is not bound
	Pending    uint64 // not yet delivered
	AckPending uint64 // delivered and not settled, by any client of the durable
	Moved      uint64 // messages moved to the retry stream so far
	// MaxAckPending is the durable's limit on AckPending; 0 means none, or not known.
	MaxAckPending int
}

// NewSource prepares to serve a durable. It starts nothing: see Run.
func NewSource(conn *Conn, cfg ConsumerConfig, log *slog.Logger) *Source {
	s := &Source{
		conn: conn, cfg: cfg, log: log,
		ready:      make(chan *Message, 2*(cfg.Concurrency+cfg.Prefetch)),
		kick:       make(chan struct{}, 1),
		post:       make(chan struct{}, 1),
		incomplete: make(chan struct{}, 1),
		aside:      aside{unpin: make(chan string, 1)},
		looks:      looks{wanted: make(chan struct{}, 1), hurry: make(chan struct{}, 1)},
		leases:     map[uint64]*Message{},
		settling:   map[*Message]struct{}{},
		groups:     map[uint64]*ackGroup{},
		empty:      map[uint64]struct{}{},
		width:      1,
		expires:    pullExpires,
	}
	s.touched.init()
	if cfg.Ordered {
		s.order = &order{keys: map[Key]*keyed{}, behind: map[Key][]*Message{}, beneath: beneath{questions: make(chan stretch, 1)}}
	}
	if cfg.Stream != RetryStream && cfg.Stream != AdvisoryStream {
		s.retries = newRetries(s)
	}
	s.status.Store(&Status{Detail: "starting"})
	return s
}

// limit is the lease bound, less what is lent.
func (s *Source) limit() int { return s.cfg.Concurrency + s.cfg.Prefetch - s.lent }

// Status is what is known now.
func (s *Source) Status() Status {
	st := *s.status.Load()
	if s.retries != nil {
		st.Moved = s.retries.movedSoFar()
	}
	return st
}

// Leased is the number of messages leased now.
func (s *Source) Leased() int {
	s.mu.Lock()
	n := s.leased()
	s.mu.Unlock()
	if s.retries != nil {
		n += s.retries.source.Leased()
	}
	return n
}

// Next waits for a message to work on. It returns nil when ctx ends.
func (s *Source) Next(ctx context.Context) *Message {
	if s.retries == nil {
		for {
			select {
			case m := <-s.ready:
				if s.begin(m) {
					return m
				}
			case <-ctx.Done():
				return nil
			}
		}
	}
	for {
		var m *Message
		select {
		case m = <-s.ready:
		case m = <-s.retries.source.ready:
		case <-ctx.Done():
			return nil
		}
		if m.source.begin(m) && !s.retries.superseded(ctx, m) {
			return m
		}
	}
}

// Resume marks a message of TakeReady as worked on, as Next does. It returns false if it must not be. One that is put off comes from
// TakeReady again: then it returns after a while.
func (s *Source) Resume(ctx context.Context, m *Message) bool {
	if !m.source.resumes(ctx, m) || !m.source.begin(m) {
		return false
	}
	if s.retries == nil || !s.retries.superseded(ctx, m) {
		return true
	}
	if s.retries.isBlind() {
		wait := time.NewTimer(retryTick)
		defer wait.Stop()
		select {
		case <-ctx.Done():
		case <-wait.C:
		}
	}
	return false
}

// TakeReady returns a message nobody works on yet, or nil if there is none: to hand back at a stop, or to work off.
func (s *Source) TakeReady() *Message {
	if m := s.left.Swap(nil); m != nil {
		return m
	}
	select {
	case m := <-s.ready:
		return m
	default:
	}
	if s.retries != nil {
		if m := s.retries.takeReady(); m != nil {
			return m
		}
	}
	return s.takeHeld()
}

// Requeue gives a message back to the workers of this process, still leased.
func (s *Source) Requeue(m *Message) {
	if m.source != s {
		m.source.Requeue(m)
		return
	}
	if !s.requeueDoubted(m) && !s.put(m) {
		m.Nak(crowdedFor) // cannot happen: there are never more leases than room
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refill()
}

// Pulling says how much may be pulled.
type Pulling int

// How much may be pulled.
const (
	PullNothing Pulling = iota // the app is away
	PullOne                    // one message when none is leased that was not tried before: to try a failing app with
	PullAll                    // as much as may be leased
)

// Pull sets how much may be pulled. A source starts with nothing.
func (s *Source) Pull(much Pulling) {
	if s.retries != nil {
		defer s.retries.pullChanged(much)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if much == PullNothing {
		// A message on its way just then comes back later as another delivery, so this is only done where it must be: what
		// the requests that wait bring, this sidecar could not use, and another could.
		s.retireLanes()
	}
	s.pulling = much
	s.refill()
}

// StopPulling ends the pulling for good and waits until nothing more can arrive, or ctx ends.
func (s *Source) StopPulling(ctx context.Context) {
	s.mu.Lock()
	s.stopped = true
	open := s.retireLanes()
	s.mu.Unlock()
	if s.retries != nil {
		s.retries.stopPulling(ctx)
	}
	for _, l := range open {
		select {
		case <-l.closed:
		case <-ctx.Done():
			return
		}
	}
}

// Flush waits until every verdict is confirmed, or ctx ends. It returns how many are not.
func (s *Source) Flush(ctx context.Context) (unconfirmed int) {
	if s.retries != nil {
		left := s.retries.flush(ctx)
		defer func() { unconfirmed += left + s.retries.source.Flush(ctx) }()
	}
	s.mu.Lock()
	if len(s.settling) == 0 {
		s.mu.Unlock()
		return 0
	}
	done := make(chan struct{})
	s.idle = append(s.idle, done)
	s.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.settling)
}

// Run finds the durable and serves it until ctx ends. It comes back by itself from everything that can happen to the
// durable, the stream and the connection.
func (s *Source) Run(ctx context.Context) error {
	stopWatching := s.conn.watch(s.connectionChanged)
	defer stopWatching()
	defer s.lives.end()
	if !s.connects(ctx) {
		return nil
	}
	defer s.conn.starves(s, false)
	subs, err := s.subscribe()
	if err != nil {
		return err
	}
	defer func() {
		for _, sub := range subs {
			s.conn.unsubscribe(sub)
		}
	}()
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { s.sendDecided(ctx) })
	if s.order != nil {
		questions := s.order.beneath.questions
		beside.Go(func() { s.lookBeneath(ctx, questions) })
		beside.Go(func() { s.unpinWhenAsked(ctx) })
	}
	beside.Go(func() { s.lookWhenAsked(ctx) })
	beside.Go(func() { s.completeAll(ctx) })
	if s.retries != nil {
		beside.Go(func() { s.retries.run(ctx) })
	}
	for {
		b := s.bind(ctx)
		if b == nil {
			return nil
		}
		s.serve(ctx, b)
		s.flush(ctx)
		s.pause(ctx)
	}
}

// connects waits until there is a connection. It returns false when ctx ends: a client that has none yet must not be asked for anything by then, as
// it may be busy with a server that does not answer.
func (s *Source) connects(ctx context.Context) bool {
	for !s.conn.Connected() {
		s.setDetail(ErrNotConnected.Error())
		select {
		case <-ctx.Done():
			return false
		case <-s.kick:
		case <-time.After(bindEvery):
		}
	}
	return true
}

// flush waits until the server has seen that the lanes of the old binding are gone, so that no request of theirs can reach a
// durable that is made now: what such a request brought would be lost until the ack wait.
func (s *Source) flush(ctx context.Context) {
	ctx, cancel := s.conn.bounded(ctx, time.Second)
	defer cancel()
	_ = s.conn.Flush(ctx) // without a connection there is nothing to wait for
}

// pause waits after the durable was lost. The server tells of a deletion first and removes the durable's files last (nats-server
// consumer.go, stopWithFlags): one made in between would begin with the state of the old, what was pending there included, and
// could lose its files. The server does not say when it is done.
func (s *Source) pause(ctx context.Context) {
	wait := time.NewTimer(bindEvery/2 + rand.N(bindEvery/2))
	defer wait.Stop()
	select {
	case <-ctx.Done():
	case <-wait.C:
	}
}

// bind tries until the durable can be served. It returns nil when ctx ends.
func (s *Source) bind(ctx context.Context) *binding {
	said := ""
	for ctx.Err() == nil {
		b, err := s.bindOnce(ctx)
		if err == nil {
			s.welcome(b, said != "")
			return b
		}
		if detail := s.saysFull(err); ctx.Err() == nil && !errors.Is(err, ErrNotConnected) {
			s.setDetail(detail)
			if detail != said && s.lives.told() {
				level := slog.LevelWarn
				if errors.Is(err, ErrRefused) {
					level = slog.LevelError
				}
				s.log.Log(ctx, level, "the durable cannot be served yet, trying on", slog.String("error", detail))
				said = detail
			}
		} else {
			s.setDetail(ErrNotConnected.Error())
		}
		select {
		case <-ctx.Done():
		case <-s.kick:
		case <-time.After(bindEvery/2 + rand.N(bindEvery/2)):
		}
	}
	return nil
}

func (s *Source) welcome(b *binding, waited bool) {
	if ws := s.warnings(b); !slices.Equal(ws, s.warned) && s.lives.told() {
		for _, w := range ws {
			s.log.Warn("the durable is served as it is", slog.String("warning", w))
		}
		s.warned = ws
	}
	if waited && s.lives.told() {
		s.log.Info("serving the durable")
	}
}

// lostAgain tells of losses of the durable that were not told one by one.
func (s *Source) lostAgain(times int) {
	s.log.Warn("the durable is lost again and again", slog.Int("losses", times), slog.Bool("served", s.status.Load().Bound))
}

func (s *Source) setDetail(detail string) {
	st := *s.status.Load()
	st.Bound, st.Detail = false, detail
	s.status.Store(&st)
}

// serve pulls, keeps alive and settles until the durable must be found again or ctx ends.
func (s *Source) serve(ctx context.Context, b *binding) {
	s.open(b)
	every := s.tickNow()
	tick := time.NewTicker(every)
	defer tick.Stop()
	info := time.NewTicker(infoEvery)
	defer info.Stop()
	for ctx.Err() == nil {
		s.turn()
		if why := s.leaving(); why != "" {
			if s.lives.begin(s.lostAgain) {
				s.log.Warn("the durable is lost, looking for it", slog.String("error", why))
			}
			s.setDetail(why)
			break
		}
		if now := s.tickNow(); now != every { // the durable was edited
			every = now
			tick.Reset(every)
		}
		select {
		case <-ctx.Done():
		case <-s.kick:
		case <-tick.C:
		case <-info.C:
			s.lookSoon()
		}
	}
	s.shut()
}

// tickNow is tickEvery for the durable as it was last seen.
func (s *Source) tickNow() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return tickEvery(ackWait(s.bound.info.Config))
}

// tickEvery is how often leases and pulls are looked after.
func tickEvery(ackWait time.Duration) time.Duration {
	return min(max(ackWait/12, 50*time.Millisecond), 500*time.Millisecond)
}

// turn is one round of looking after. It waits for nothing: whether the durable is still the one bound to, where there is doubt, is asked beside it.
func (s *Source) turn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.suspect = s.suspect || s.gatherDue(now); s.suspect || s.lookAhead {
		s.askLook()
	}
	s.tend(now)
}

// tend does everything that is due. While the durable may be another one, leases are kept alive and that is all.
func (s *Source) tend(now time.Time) {
	if s.rebind != "" || !s.conn.Connected() {
		return
	}
	s.keepAlive(now)
	if s.suspect {
		return
	}
	s.groupWaiting(now)
	s.sendOutbox(now)
	s.sendWaiting(now)
	if s.suspect {
		return
	}
	s.watchLanes(now)
	s.yieldLanes(now)
	s.renewPin(now)
	s.yield(now)
	s.refill()
}

func (s *Source) open(b *binding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bound, s.rebind, s.refused, s.suspect = b, "", "", false
	s.rounds.lose()
	s.rounds.answer = b.took
	s.makesWay, s.parkedSince = false, time.Time{}
	s.aside.stands, s.aside.others, s.aside.telling = false, time.Time{}, time.Time{}
	s.highest, s.counted, s.lag, s.tooBig = b.info.Delivered.Consumer, b.info.Delivered.Consumer, lag{}, 0
	s.boundAt = time.Now()
	s.evidence, s.counting = b.asked, time.Time{}
	s.hearing = hearing{last: b.asked}
	s.parked, s.naks = max(b.info.NumAckPending, 0), 0
	if s.order != nil {
		s.order.begin(b.info)
	}
	if s.lastSeen != nil && !s.lastSeen.stream.Equal(b.incarnation.stream) {
		s.most = 0
	}
	s.before = s.most
	s.lastSeen = &lastSeen{stream: b.incarnation.stream, floor: b.info.AckFloor.Stream}
	s.status.Store(&Status{Bound: true, Pending: b.info.NumPending, AckPending: uint64(max(b.info.NumAckPending, 0)), MaxAckPending: max(b.info.Config.MaxAckPending, 0)})
	s.refill()
}

// shut gives up the binding: what is leased is dropped without settling, since the stream or durable it came from is
// gone or, at the end of Run, nobody will settle it any more.
func (s *Source) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bound = nil
	if s.looks.underWay {
		s.looks.end()
	}
	s.retireLanes()
	s.lanes, s.coming, s.reserved = nil, 0, 0
	for _, g := range s.ghosts {
		g.gone = true
		s.conn.unsubscribe(g.sub)
	}
	s.ghosts = nil
	for _, m := range s.held {
		if !s.conn.Connected() {
			break
		}
		// It came from the durable that was made anew: that one may have it back.
		_ = s.conn.nc().Publish(m.reply, []byte("-NAK")) // if it is not sent, the ack wait does the same
	}
	s.held, s.bodiless = nil, nil
	clear(s.empty)
	if s.order != nil {
		s.order.held = nil
		clear(s.order.behind)
	}
	for _, m := range s.leases {
		s.release(m)
	}
	s.putting.Lock()
	s.dropReleased()
	s.putting.Unlock()
	s.width, s.pin = min(1, s.limit()), pin{}
}

func (s *Source) leaving() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rebind
}

// doubt asks for a look at the durable.
func (s *Source) doubt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspect, s.doubtedAt = true, time.Now()
	s.wake()
}

// lookSoon asks for a look at the durable that nothing waits for.
func (s *Source) lookSoon() {
	s.mu.Lock()
	s.lookAhead = true
	s.mu.Unlock()
}

func (s *Source) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

func (s *Source) connectionChanged(connected bool) {
	s.mu.Lock()
	if s.bound != nil {
		s.suspect, s.before = true, s.most
		s.unsettled()
		for _, l := range s.lanes {
			s.uncoverAll(l)
			if l.open > 0 && !l.doubted {
				l.doubted, l.doubtedAt = true, time.Now()
			}
			if l.retired {
				// The client subscribes again to what is being drained, and ends that without a word to the server: a request that
				// outlived the connection would bring messages to nobody.
				s.conn.unsubscribe(l.sub)
			}
		}
		for m := range s.settling {
			m.sentAt, m.awaited = time.Time{}, time.Time{} // send it again
		}
		s.rounds.lose()
		clear(s.groups) // of what they were to confirm all is sent again
		s.keepAll = true
		s.askAnew(time.Now(), false)
		if !connected {
			st := *s.status.Load()
			st.Bound, st.Detail = false, ErrNotConnected.Error()
			s.status.Store(&st)
		}
	}
	s.mu.Unlock()
	s.wake()
}

// subscribe prepares the inbox where the server confirms verdicts, and listens for the advisories that the stream or the
// durable was deleted, or has another leader. Without permission for those, that is noticed by a waiting pull or the next look.
func (s *Source) subscribe() ([]*subscription, error) {
	s.ackInbox = s.conn.nc().NewRespInbox() + "."
	var subs []*subscription
	for subject, handler := range map[string]nats.MsgHandler{
		s.ackInbox + "*.*": s.confirmed,
		"$JS.EVENT.ADVISORY.STREAM.DELETED." + s.cfg.Stream:                         func(*nats.Msg) { s.doubt() },
		"$JS.EVENT.ADVISORY.CONSUMER.DELETED." + s.cfg.Stream + "." + s.cfg.Durable: func(*nats.Msg) { s.doubt() },
		s.electedSubject(): s.elected,
	} {
		sub, err := s.conn.subscribe(subject, handler, nil)
		if err != nil {
			return nil, err
		}
		subs = append(subs, sub)
	}
	return subs, nil
}
