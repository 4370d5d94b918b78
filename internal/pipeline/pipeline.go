// Package pipeline is a message's way through the sidecar: it is leased from its stream, sent to the app, and settled
// by what the app answered.
//
//	handle   attempt → settle
//	attempt  answered before? → forward → decide; the lease is kept alive all the while
//	settle   the only switch over the verdict
package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jetsidecar/jetsidecar/dedupe"
	"github.com/jetsidecar/jetsidecar/forward"
	"github.com/jetsidecar/jetsidecar/jetstream"
	"github.com/jetsidecar/jetsidecar/policy"
)

// Config is one consumer's pipeline.
type Config struct {
	Stream, Durable string
	Concurrency     int  // requests in flight at most
	Adaptive        bool // find out how many of those the app can take
	Prefetch        int  // leased beyond those
	Policy          policy.Policy
	Rate            float64       // requests a second, 0 = no limit
	ShutdownTimeout time.Duration // for what is in flight at a stop
	StopGrace       time.Duration // beyond it, to hand back what is cut off then. 0 means 2 s
	DLQ             bool          // store dead letters; else they are terminated and logged
	AlertDepth      int           // entries in the DLQ above which there is an alert, 0 = never
	Dedupe          dedupe.Config
	Breaker         policy.BreakerConfig
	Batch           jetstream.BatchConfig
	Order           string // OrderNone, OrderSubject, OrderStream, or header: and the name of one
}

// What must not overtake.
const (
	OrderNone    = "none"
	OrderSubject = "subject"
	OrderStream  = "stream"
)

// Parts are what a pipeline is made of.
type Parts struct {
	Source      *jetstream.Source
	DeadLetters *jetstream.DeadLetters
	Marks       Marks
	App         *forward.Client
	Ready       func(context.Context) error // the app's ready probe; nil if it has no ready path
	Target      *forward.Target
	Bucket      dedupe.Bucket // shared by the sidecars of the durable; nil: dedupe is this process's own
	Observer    Observer
	Log         *slog.Logger
}

// Pipeline serves one consumer.
type Pipeline struct {
	Config
	Parts
	memory  *dedupe.Shared // nil: dedupe is off
	waiting dedupe.InFlight[*jetstream.Message]
	pace    *pace // nil: no limit
	gate    *gate
	places  *places // nil: as many as Concurrency
	graves  *graves
	void    *voidMarks
	order   *order     // nil: messages may overtake
	batches sync.Mutex // held by who gathers a batch

	attempts    atomic.Uint64 // with OrderStream
	stopped     chan struct{} // closed at a stop, when what nobody works on is handed back
	retriesLeft atomic.Bool   // messages were in the retry stream when drained looked

	unmarked, marksLeft seldom // warnings: tried without a mark, marks that are not removed

	mu     sync.Mutex
	away   bool // the app is
	open   bool // the breaker is
	scope  dedupe.Scope
	scoped time.Time // the stream's creation time that scope is for
}

// New prepares a pipeline. It starts nothing: see Run.
func New(cfg Config, parts Parts) *Pipeline {
	p := &Pipeline{Config: cfg, Parts: parts, stopped: make(chan struct{})}
	if cfg.Dedupe.Store != "off" {
		memory := dedupe.NewMemory(cfg.Dedupe.TTL, cfg.Dedupe.MaxEntries, time.Now)
		p.memory = dedupe.NewShared(memory, parts.Bucket, parts.Observer.DedupeFailed)
	}
	p.pace = newPace(cfg.Rate)
	p.graves = newGraves(p)
	p.void = newVoidMarks(parts.Marks, parts.Log)
	p.order = newOrder(cfg.Order, parts.Source)
	p.gate = newGate(cfg.Breaker, cfg.Concurrency)
	p.gate.ready, p.gate.onChange, p.gate.onAlone, p.gate.onReady = parts.Ready, p.breakerChanged, p.aloneChanged, p.breakerHalfOpen
	p.gate.drained = p.drained
	if cfg.Adaptive {
		p.places = newPlaces(cfg.Concurrency, parts.Log)
	}
	p.away = true
	return p
}

// AppChanged is told when the app is found there or away: while it is away nothing is pulled. A pipeline starts with it away.
func (p *Pipeline) AppChanged(up bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = !up
	p.pull()
}

// pull lets as much be pulled as the app takes. The caller holds p.mu.
func (p *Pipeline) pull() {
	p.Source.AppFails(p.away || p.open)
	switch {
	case p.away || p.gate.keepsAlone():
		p.Source.Pull(jetstream.PullNothing)
	case p.open:
		p.Source.Pull(jetstream.PullOne)
	default:
		p.Source.Pull(jetstream.PullAll)
	}
}

// aloneChanged is told when a message comes that must be at the app alone, when it enters, and when it leaves.
func (p *Pipeline) aloneChanged() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pull()
}

// breakerChanged is told when the breaker opens or closes: while it is open nothing is pulled, but for a message to try the
// app with when there is none.
func (p *Pipeline) breakerChanged(open bool, since time.Time, why string) {
	if open {
		p.Log.Warn("the breaker is open: the app fails message after message, pulling waits", slog.String("error", why))
	} else {
		p.Log.Info("the breaker is closed", slog.Duration("open", time.Since(since)))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open, _, _ = p.gate.state() // of two changes at a time, the later one counts
	p.pull()
}

// breakerHalfOpen is told that the app is ready again, and that there is no message to try it with.
func (p *Pipeline) breakerHalfOpen() {
	p.Log.Info("the breaker is half open: the app is ready, and the next message is tried alone")
}

// Status is a snapshot for the health checks and metrics.
func (p *Pipeline) Status() Status {
	src := p.Source.Status()
	s := Status{
		Stream: p.Stream, Consumer: p.Durable, Bound: src.Bound, Detail: src.Detail,
		Leased: p.Source.Leased(), Pending: src.Pending, AckPending: src.AckPending, MaxAckPending: src.MaxAckPending,
		Moved: src.Moved, DLQEnabled: p.DLQ, ConcurrencyLimit: p.Concurrency,
	}
	if p.places != nil {
		s.ConcurrencyLimit = p.places.now()
	}
	// Half open, and with nothing that would try the app soon, is as good as closed.
	if open, since, why := p.gate.state(); open && !(p.gate.halfOpen() && p.nothingWaits(src)) {
		s.BreakerOpen, s.BreakerSince, s.BreakerCause = true, since, why
		s.BreakerDetail = fmt.Sprintf("breaker open since %s: %s", since.UTC().Format(time.RFC3339), why)
		if p.gate.idle() {
			s.BreakerDetail += "; it waits for a message to try the app with"
		}
	}
	if p.DLQ {
		s.DLQOK, s.DLQDetail, s.DLQDepth = p.DeadLetters.State()
		s.DLQStream = p.DeadLetters.Stream()
		s.DLQAlert = p.AlertDepth > 0 && s.DLQDepth > uint64(p.AlertDepth)
	}
	return s
}

// LookAtDLQ asks for a look at the DLQ stream: something else than this pipeline changed what is in it.
func (p *Pipeline) LookAtDLQ() { p.graves.lookSoon() }

// Run serves the consumer until ctx ends, and then stops: pulling first, then what nobody has begun is handed back, what
// is in flight may finish, and every verdict is confirmed. It returns the number of verdicts that could not be confirmed
// within the shutdown timeout.
func (p *Pipeline) Run(ctx context.Context) (unconfirmed int, err error) {
	var serving, working sync.WaitGroup
	serveCtx, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer serving.Wait()
	defer stopServing()
	workCtx, cutOff := context.WithCancelCause(serveCtx)
	defer cutOff(nil)

	serving.Go(func() { err = p.Source.Run(serveCtx) })
	if p.DLQ {
		serving.Go(func() { p.graves.watch(serveCtx) })
		for range p.graves.writers() {
			serving.Go(func() { p.graves.write(serveCtx) })
		}
	}
	serving.Go(func() { p.rescue(serveCtx) })
	serving.Go(func() { p.void.run(serveCtx) })
	if p.gate.ready != nil {
		serving.Go(func() { p.gate.watch(ctx) })
	}
	if p.Bucket != nil {
		serving.Go(func() { p.memory.Run(serveCtx) })
	}
	for range p.Concurrency {
		working.Go(func() { p.work(ctx, workCtx) })
	}

	<-ctx.Done()
	return p.stop(&working, cutOff), err
}

// stopGrace is how much longer than the shutdown timeout a stop may take, to hand back what is cut off then.
const stopGrace = 2 * time.Second

// stop brings the pipeline to rest within the shutdown timeout.
func (p *Pipeline) stop(working *sync.WaitGroup, cutOff context.CancelCauseFunc) (unconfirmed int) {
	deadline, cancel := context.WithTimeout(context.Background(), p.ShutdownTimeout)
	defer cancel()
	grace, release := context.WithTimeout(context.Background(), p.ShutdownTimeout+cmp.Or(p.StopGrace, stopGrace))
	defer release()

	quick, done := context.WithTimeout(deadline, time.Second)
	p.graves.stopWaiting()
	p.Source.StopPulling(quick)
	p.giveBack(p.takeWaiting())
	p.Source.Unpin(quick)
	close(p.stopped)
	done()

	idle := make(chan struct{})
	go func() { working.Wait(); close(idle) }()
	select {
	case <-idle:
	case <-deadline.Done():
		cutOff(context.Cause(deadline))
		<-idle
	}
	handBack(p.takeWaiting())
	left := p.graves.finish(deadline)
	p.void.finish(deadline)

	flush := deadline
	if deadline.Err() != nil && p.Source.Status().Bound {
		flush = grace // what was cut off just now is handed back too
	}
	return left + p.Source.Flush(flush)
}

// next waits for a message to work on. It returns nil when ctx ends.
func (p *Pipeline) next(ctx context.Context) *jetstream.Message {
	if p.order != nil {
		return p.order.take(ctx)
	}
	return p.Source.Next(ctx)
}

// work handles one message after the other until ctx ends. A request that is at the app then may finish until workCtx
// ends; one that still waits for a connection is given up. What must not be handed back is worked off after that.
func (p *Pipeline) work(ctx, workCtx context.Context) {
	p.workUntil(ctx, workCtx)
	p.workOff(workCtx)
}

func (p *Pipeline) workUntil(ctx, workCtx context.Context) {
	w := &worker{turn: make(chan struct{}, 1)}
	w.wanted = w.stillLeased
	if p.pace != nil {
		w.another = func(ctx context.Context) error { return p.anotherTurn(ctx, w) }
	}
	var giveUp context.CancelCauseFunc
	w.ctx, giveUp = context.WithCancelCause(workCtx)
	defer giveUp(nil)
	stop := func() {
		if w.state.CompareAndSwap(idle, stopping) {
			giveUp(errStopping)
		}
	}
	defer context.AfterFunc(ctx, stop)()
	w.sending = func(now bool) {
		if now {
			w.state.CompareAndSwap(idle, sending)
		} else if w.state.CompareAndSwap(sending, idle); ctx.Err() != nil {
			stop()
		}
	}
	if p.Batch.MaxMessages > 1 {
		p.workBatches(ctx, w)
		return
	}
	for m := p.next(ctx); m != nil; m = p.next(ctx) {
		if ctx.Err() != nil {
			p.giveBack([]*jetstream.Message{m})
			return
		}
		p.handle(ctx, w, m)
	}
}

// worker handles one message at a time.
type worker struct {
	ctx     context.Context // of its requests
	state   atomic.Int32
	sending func(bool)           // told by the forwarder, see forward.Message
	wanted  func() bool          // asked by the forwarder
	sends   []*jetstream.Message // what its request is of
	turn    chan struct{}        // see places.take

	// With a rate.
	another    func(context.Context) error // waits for another turn, see forward.Message
	opens      <-chan struct{}             // closed when the breaker opens after the request entered the gate
	turnedBack bool                        // it opened while the request waited for another turn: it was not sent
}

// stillLeased reports whether all messages of the request are leased, and this sidecar's to call the app with: the lease of one that waited for the app
// may be lost meanwhile, or its durable be another's.
func (w *worker) stillLeased() bool {
	if len(w.sends) == 1 {
		return !w.sends[0].Unwanted()
	}
	return !jetstream.LostAny(w.sends)
}

// The states of a worker.
const (
	idle     = iota // also while it waits for a connection
	sending         // the app may see the request
	stopping        // no new request
)

var errStopping = errors.New("the sidecar is stopping")

// handle takes one message from lease to verdict.
func (p *Pipeline) handle(ctx context.Context, w *worker, m *jetstream.Message) {
	if dl, ok := p.graves.dug(m); ok {
		p.graves.add(dl) // decided before: only storing it failed
		return
	}
	a := attempt{message: m, scope: p.scopeOf(m), number: m.Delivered + m.Tries}
	if !p.begin(&a) {
		return
	}
	a.again = !p.try(ctx, w, &a)
	if !a.again {
		p.settle(&a)
	}
	p.end(&a)
	if a.again {
		p.Source.Survived(m)
		p.Source.Requeue(m)
	}
}

// scopeOf is where the keys of a message live: a stream made anew starts a new life.
func (p *Pipeline) scopeOf(m *jetstream.Message) dedupe.Scope {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.scoped.Equal(m.StreamCreated) {
		p.scoped, p.scope = m.StreamCreated, dedupe.NewScope(p.Stream, m.StreamCreated, p.Durable)
	}
	return p.scope
}

func random() float64 { return rand.Float64() }
