package jetstream

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// attempted is one call of the app, in a model of everything that takes part in keeping order.
type attempted struct {
	client    int
	key       string
	seq       uint64
	begun     time.Time
	ended     time.Time // zero while it lasts
	accepted  bool
	disturbed bool // while it lasted its lease may have been lost
	apart     bool // when it began the client was cut off or stalled, which it cannot know at once, or its lease may be shared
}

// orderWorld is the durable, its clients, and what the app saw.
type orderWorld struct {
	durable *fakeDurable
	cfg     ConsumerConfig
	workers int // of each client
	clients []*orderClient

	dedupe  bool // the clients know what was answered, of each other too
	forgets bool // the server may forget what was settled, and deliver it again
	quick   bool // the app is

	mu    sync.Mutex
	calls []*attempted
	told  []tale
	wrong []string
}

// tale is something that happened.
type tale struct {
	at   time.Time
	text string
}

func (w *orderWorld) tell(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, tale{time.Now(), fmt.Sprintf(format, args...)})
}

// story is all that happened, in order.
func (w *orderWorld) story() (lines []string) {
	all := slices.Clone(w.told)
	for _, a := range w.calls {
		all = append(all, tale{a.begun, fmt.Sprintf("%s %d called by %d, until %s, accepted %v", a.key, a.seq, a.client, a.ended.Sub(w.durable.created), a.accepted)})
	}
	slices.SortStableFunc(all, func(a, b tale) int { return a.at.Compare(b.at) })
	for _, t := range all {
		lines = append(lines, fmt.Sprintf("%s %s", t.at.Sub(w.durable.created), t.text))
	}
	return lines
}

// orderClient is one process: a source, and as much of a pipeline as matters here.
type orderClient struct {
	w      *orderWorld
	number int
	wire   *fakeWire
	conn   *Conn
	source *Source
	ctx    context.Context
	cancel context.CancelFunc
	ended  sync.WaitGroup
	random *rand.Rand
	taking chan struct{} // full while nobody waits for a message: who blocks on a mutex stops the time of a bubble

	mu      sync.Mutex
	dead    bool
	stopped bool
	hurry   chan struct{}
	lines   map[string][]*Message // of a key; the first one has its turn
}

const modelWorkers = 3

func newOrderWorld(seed uint64, pinned, filtered bool, clients int) *orderWorld {
	w := &orderWorld{durable: newFakeDurable(seed, 2*time.Second, pinned, filtered), workers: modelWorkers}
	w.cfg = ConsumerConfig{
		Stream: "S", Durable: "d", Manage: ManageNone, AckWait: w.durable.ackWait, MaxAckPending: 1000,
		Concurrency: modelWorkers, Prefetch: 5, MaxBytes: 1 << 20, Ordered: true,
	}
	for i := range clients {
		w.clients = append(w.clients, &orderClient{w: w, number: i, wire: w.durable.connect(), random: rand.New(rand.NewPCG(seed, uint64(2+i)))})
	}
	return w
}

// start begins a new process, if none runs.
func (c *orderClient) start() error {
	if c.source != nil {
		return nil
	}
	c.dead, c.stopped, c.hurry, c.lines = false, false, make(chan struct{}), map[string][]*Message{}
	c.taking = make(chan struct{}, 1)
	c.taking <- struct{}{}
	c.wire.set(false)
	var err error
	if c.conn, err = c.wire.client(); err != nil {
		return err
	}
	c.source = NewSource(c.conn, c.w.cfg, c.conn.log)
	if c.w.cfg.Ordered {
		c.source.Tell(func(m *Message) Key { return Key{Name: m.Subject} }, c.released, c.unpinned)
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.ended.Go(func() { _ = c.source.Run(c.ctx) })
	c.source.Pull(PullAll)
	for range c.w.workers {
		c.ended.Go(c.work)
	}
	return nil
}

// kill ends the process at once.
func (c *orderClient) kill() {
	if c.source == nil {
		return
	}
	c.w.mu.Lock()
	c.mu.Lock()
	c.dead = true
	c.mu.Unlock()
	for _, a := range c.w.calls {
		if a.client == c.number && a.ended.IsZero() {
			a.ended = time.Now()
		}
	}
	c.w.mu.Unlock()
	c.wire.set(true)
	c.end()
}

func (c *orderClient) end() {
	c.cancel()
	c.ended.Wait()
	hangUp(c.conn)
	c.source = nil
	c.wire.set(true)
}

// stop ends the process as a pipeline does.
func (c *orderClient) stop() {
	if c.source == nil {
		return
	}
	quick, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	c.source.StopPulling(quick)
	c.mu.Lock()
	c.stopped = true
	close(c.hurry)
	var all []*Message
	for key, line := range c.lines {
		all = append(all, line[1:]...)
		c.lines[key] = line[:1]
	}
	c.mu.Unlock()
	for m := c.source.TakeReady(); m != nil; m = c.source.TakeReady() {
		all = append(all, m)
	}
	slices.SortFunc(all, bySequence)
	for _, m := range all {
		m.HandBack()
	}
	c.source.Unpin(quick)
	flush, done := context.WithTimeout(context.Background(), 5*time.Second)
	defer done()
	for flush.Err() == nil && c.source.Leased() > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	c.source.Flush(flush)
	c.w.mu.Lock()
	c.mu.Lock()
	c.dead = true
	c.mu.Unlock()
	c.w.mu.Unlock()
	c.end()
}

// released passes the turn, as the pipeline's order does.
func (c *orderClient) released(m *Message) *Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leave(m)
}

func (c *orderClient) leave(m *Message) *Message {
	line := c.lines[m.Subject]
	i := slices.Index(line, m)
	if i < 0 {
		return nil
	}
	line = slices.Delete(line, i, i+1)
	c.lines[m.Subject] = line
	if len(line) == 0 {
		delete(c.lines, m.Subject)
		return nil
	}
	if i > 0 {
		return nil
	}
	return line[0]
}

func (c *orderClient) join(m *Message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	line := c.lines[m.Subject]
	if !slices.Contains(line, m) {
		line = append(line, m)
		slices.SortFunc(line[1:], bySequence)
		c.lines[m.Subject] = line
	}
	return line[0] == m
}

func (c *orderClient) unpinned() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped {
		close(c.hurry)
		c.hurry = make(chan struct{})
	}
}

func (c *orderClient) work() {
	for m := c.next(); m != nil; m = c.next() {
		c.call(m)
	}
}

// next waits for a message whose turn it is; as in the pipeline, they join their lines in the order they come.
func (c *orderClient) next() *Message {
	if !c.w.cfg.Ordered {
		return c.source.Next(c.ctx)
	}
	<-c.taking
	defer func() { c.taking <- struct{}{} }()
	for m := c.source.Take(c.ctx); m != nil; m = c.source.Take(c.ctx) {
		if !c.join(m) {
			continue
		}
		if c.source.Begin(c.ctx, m) {
			return m
		}
		c.mu.Lock()
		next := c.leave(m)
		c.mu.Unlock()
		if next != nil {
			c.source.Requeue(next)
		}
	}
	return nil
}

// call calls the app, and settles the message by its answer.
func (c *orderClient) call(m *Message) {
	c.mu.Lock()
	r, wait := c.random.IntN(100), time.Duration(c.random.Int64N(int64(300*time.Millisecond)))
	if r%10 == 0 {
		wait *= 10
	}
	if c.w.quick {
		wait /= 100
	}
	hurry, stopped := c.hurry, c.stopped
	c.mu.Unlock()
	if stopped {
		m.HandBack()
		return
	}
	if c.w.dedupe && c.w.knows(m) {
		m.Ack()
		return
	}
	a := c.w.begin(c, m)
	if a == nil {
		return
	}
	select {
	case <-time.After(wait):
	case <-c.ctx.Done():
	}
	if !c.w.finish(c, a, r >= 10) {
		return
	}
	switch {
	case r >= 15:
		m.Ack()
	case r >= 10:
		m.Term("no")
	default:
		select {
		case <-time.After(wait):
		case <-hurry:
		case <-c.ctx.Done():
		}
		switch {
		case c.stopping():
			m.HandBack()
			return
		case !c.w.cfg.Ordered:
			m.Nak(time.Second)
			return
		}
		c.source.Survived(m)
		c.source.Requeue(m)
	}
}

func (c *orderClient) stopping() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped
}

// begin notes a call, and holds that it keeps the order.
func (w *orderWorld) begin(c *orderClient, m *Message) *attempted {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.mu.Lock()
	dead := c.dead
	c.mu.Unlock()
	if dead {
		return nil
	}
	a := &attempted{client: c.number, key: m.Subject, seq: m.Sequence, begun: time.Now(), apart: c.wire.isApart() || w.durable.electsNow() || w.durable.mayShare()}
	counts := !w.durable.mayCountWrong()
	for _, other := range w.calls {
		if other.key != a.key {
			continue
		}
		if other.seq > a.seq && !a.apart && counts && (w.dedupe || !w.forgets) {
			w.broken("%d was called by %d after %d by %d", a.seq, a.client, other.seq, other.client)
		}
		if w.again(other) && (!w.durable.pinned || other.client != a.client) {
			continue // a verdict over the first call that came after the ack wait lets another client go on
		}
		if other.ended.IsZero() && (other.client == a.client || !other.disturbed && !other.apart && !a.apart) {
			w.broken("%d was called by %d while %d was in work at %d", a.seq, a.client, other.seq, other.client)
		}
	}
	for seq, key := range w.durable.keys() {
		if seq := uint64(seq + 1); counts && key == a.key && seq < a.seq && !w.done(seq) && !w.durable.mayShare() {
			w.broken("%d was called by %d before %d was done", a.seq, a.client, seq)
		}
		if seq := uint64(seq + 1); counts && key == a.key && seq < a.seq && !a.apart && !w.durable.wasReset() && !w.durable.knowsSettled(seq) {
			w.broken("%d was called by %d while the server had %d to be settled", a.seq, a.client, seq)
		}
	}
	w.calls = append(w.calls, a)
	return a
}

// again reports whether a call is of a message that was accepted before it.
func (w *orderWorld) again(a *attempted) bool {
	return slices.ContainsFunc(w.calls, func(b *attempted) bool { return b.seq == a.seq && b.accepted && b.begun.Before(a.begun) })
}

func (w *orderWorld) broken(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf("%s: ", time.Since(w.durable.created))+fmt.Sprintf(format, args...))
}

// done reports whether the app was done with a message.
func (w *orderWorld) done(seq uint64) bool {
	return slices.ContainsFunc(w.calls, func(a *attempted) bool { return a.seq == seq && a.accepted })
}

// knows reports whether a message was answered.
func (w *orderWorld) knows(m *Message) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done(m.Sequence)
}

// finish notes the end of a call; false if the process is dead. A message that is terminated is done too.
func (w *orderWorld) finish(c *orderClient, a *attempted, accepted bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return false
	}
	a.ended, a.accepted = time.Now(), accepted
	return true
}

// disturb notes that what a client has in work now may be delivered to another; -1 is every client.
func (w *orderWorld) disturb(client int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.calls {
		if a.ended.IsZero() && (client < 0 || a.client == client) {
			a.disturbed = true
		}
	}
}
