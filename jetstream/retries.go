package jetstream

import (
	"context"
	"encoding/hex"
	"errors"
	"hash/fnv"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

const (
	// RetryStream keeps messages that wait for a retry while too many of them would hold the durable's max_ack_pending.
	RetryStream = "sidecar-retries"
	// retrySubject is where they are, followed by what they are there and the message: see retries.subject.
	retrySubject = "sidecar.retry."
	// RetrySubjects are all of its subjects.
	RetrySubjects = retrySubject + ">"

	// parkedMost is the share of max_ack_pending, in per cent, that messages may hold that wait for a retry.
	parkedMost = 50
	// keepsOrder is the max_ack_pending below which a durable is taken to be meant to keep order: nothing is moved.
	keepsOrder = 10
	// leastMoved is the shortest delay for which a message is moved: the server's schedules fire a quarter second late at worst.
	leastMoved = time.Second
	// doneFor is how long at least it is kept that a message that was moved is done.
	doneFor = time.Hour
	// lendFor is how long leases are kept for the retry stream after there was something to lease.
	lendFor = 30 * time.Second
	// lendRest is that where nothing is moved any more: the stream may have to do without a lease meanwhile.
	lendRest = time.Second

	retryWriters = 4 // for moves, and as many for ends
	retryTick    = 200 * time.Millisecond
	// retryLook is how often it is looked whether there is a retry stream, which another sidecar may have made.
	retryLook = 10 * time.Second
	// comingFor bounds the wait of a message that is to be moved for the retry stream to be made.
	comingFor = 2 * time.Second
	// retryTrouble is how long nothing is moved after the retry stream did not take a message; it doubles up to retryTroubleMost.
	retryTrouble     = 10 * time.Second
	retryTroubleMost = 5 * time.Minute
)

// retries lets messages wait for a retry in a stream of their own, so that they hold no place of max_ack_pending.
//
// A message is moved by storing a copy there, as a schedule of the server; only then is it acked at its durable. When it is
// due the server stores it under another subject, from where it is leased and handled like any other message, as the one it
// is a copy of. Its end is stored there too, and only then is the copy acked. So whatever is killed between two steps, the
// last thing stored about a message says what is to become of a delivery of it: one that something later was stored about
// is acked without a call.
type retries struct {
	main    *Source // whose messages these are
	source  *Source // of the messages that are due
	hash    string  // of stream and durable, part of every subject
	log     *slog.Logger
	moves   chan *retryJob // messages to be moved
	ends    chan *retryJob // verdicts over those that were
	wake    chan struct{}
	stop    chan struct{} // closed when pulling stops for good
	serving atomic.Bool   // there is a retry stream, or there is to be one
	used    bool          // messages of the durable are moved; else only those are served that are there
	empty   atomic.Bool   // not used, and there are none

	// Owned by run.
	looked time.Time
	barred bool // the user may not ask what is there

	mu        sync.Mutex
	wanted    bool // there was something to move
	stopping  bool // stop is closed
	busy      int  // jobs
	idle      []chan struct{}
	moved     uint64        // messages moved
	notUntil  time.Time     // nothing is moved before then
	trouble   time.Duration // how long the last failure made it wait; 0 after a success
	full      bool          // the stream has reached MaxBytes
	unfit     string        // why nothing may wait in the stream as it is; empty: it may
	noTTL     bool          // what is stored there cannot have a TTL
	kept      kept          // how the stream keeps its messages; no replicas: not known
	keptAt    time.Time     // when that was looked up
	notRaised string        // why the retry stream cannot get as many replicas
	skew      time.Duration // how far the server's clock is ahead
	active    time.Time     // leases are kept for the retry stream until then
	deferred  []*Message    // redelivered, and it is not known whether they were moved
	blind     time.Time     // that is not asked for before then
	pulling   Pulling       // of source
}

func newRetries(main *Source) *retries {
	sum := fnv.New128a()
	sum.Write([]byte(main.cfg.Stream + " " + main.cfg.Durable))
	r := &retries{
		main: main, hash: hex.EncodeToString(sum.Sum(nil)), log: main.log.With(slog.String("for", "retry stream")),
		wake: make(chan struct{}, 1), stop: make(chan struct{}),
		used: main.cfg.RetryStream.Enabled && !main.cfg.Ordered && main.limit() > 1,
	}
	room := 2 * (main.cfg.Concurrency + main.cfg.Prefetch) // for more than can be leased
	r.moves, r.ends = make(chan *retryJob, room), make(chan *retryJob, room)
	share := max((main.cfg.Concurrency+main.cfg.Prefetch)/4, 1)
	r.source = NewSource(main.conn, ConsumerConfig{
		Stream: RetryStream, Durable: "sidecar-" + r.hash,
		FilterSubjects: []string{r.subject("due", ">")},
		Manage:         main.cfg.Manage, Start: Start{Policy: natsjs.DeliverAllPolicy},
		AckWait: main.cfg.AckWait, MaxAckPending: 10000, Concurrency: share,
		MaxBytes: main.cfg.MaxBytes / 4,
	}, r.log)
	r.source.due = r
	return r
}

// subject is where a message is: at (it waits), due (it is to be tried) or done. The key is r.key, or a wildcard.
func (r *retries) subject(state, key string) string {
	return retrySubject + state + "." + r.hash + "." + key
}

// key tells a message from all others of the durable, also from one of the same sequence in a stream made anew.
func (r *retries) key(m *Message) string {
	return strconv.FormatInt(m.StreamCreated.UnixNano(), 10) + "." + strconv.FormatUint(m.Sequence, 10)
}

// run serves the retry stream once there is one, or one is wanted.
func (r *retries) run(ctx context.Context) {
	var working sync.WaitGroup
	defer working.Wait()
	for range retryWriters {
		working.Go(func() { write(ctx, r.moves, r.store, r.ended) })
		working.Go(func() { write(ctx, r.ends, r.end, r.ended) }) // tries on until it succeeds, so moves do not wait for it
	}
	for every := retryLook; ctx.Err() == nil; {
		switch {
		case r.serving.Load():
			r.look(ctx)
			r.turn()
			every = retryTick
		case r.isWanted(), r.exists(ctx):
			r.serving.Store(true)
			working.Go(func() {
				if err := r.source.Run(ctx); err != nil {
					r.log.Error("the retry stream cannot be served", slog.String("error", err.Error()))
				}
			})
			working.Go(func() { r.rescue(ctx) })
			continue
		}
		wait := time.NewTimer(r.pause(every))
		select {
		case <-ctx.Done():
		case <-wait.C:
		case <-r.wake:
		}
		wait.Stop()
		r.offerAgain()
	}
}

// exists asks whether there is a retry stream to be served, now and then.
func (r *retries) exists(ctx context.Context) bool {
	if time.Since(r.looked) < retryLook {
		return false
	}
	r.looked = time.Now()
	if !r.used {
		return r.remain(ctx)
	}
	_, err := r.main.conn.streamInfo(ctx, RetryStream)
	return err == nil && !r.strange(ctx)
}

// strange reports whether the retry stream is of other durables only: it has no durable for this one, which must make none, and nothing that waits.
func (r *retries) strange(ctx context.Context) bool {
	if r.main.cfg.Manage != ManageNone {
		return false
	}
	if _, err := r.main.conn.consumerInfo(ctx, RetryStream, r.source.cfg.Durable); !errors.Is(err, ErrConsumerNotFound) {
		return false
	}
	left, err := r.left(ctx)
	return !left && err == nil
}

// pause is how long to wait until the next round: not long while deliveries are put off.
func (r *retries) pause(most time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.deferred) > 0 {
		return min(most, max(time.Until(r.blind), retryTick))
	}
	return most
}

func (r *retries) isWanted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wanted
}

func (r *retries) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// stopPulling ends the pulling from the retry stream; nothing more is moved there.
func (r *retries) stopPulling(ctx context.Context) {
	r.mu.Lock()
	if !r.stopping {
		r.stopping = true
		close(r.stop)
	}
	r.mu.Unlock()
	r.source.StopPulling(ctx)
}

// takeReady returns a message that nobody works on, or nil.
func (r *retries) takeReady() *Message {
	if m := r.source.TakeReady(); m != nil {
		return m
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.deferred) == 0 {
		return nil
	}
	m := r.deferred[0]
	r.deferred = r.deferred[1:]
	return m
}

func (r *retries) movedSoFar() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.moved
}
