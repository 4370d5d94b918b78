package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

// bench is a server, a client of it, and a source under test.
type bench struct {
	t       *testing.T
	ctx     context.Context
	opts    *server.Options
	server  *server.Server
	nc      *nats.Conn
	js      natsjs.JetStream
	conn    *Conn
	source  *Source
	stop    func()
	short   time.Duration // how long its pull requests wait; 0: as long as ever
	prepare func(*Source) // before it runs
}

// shortAckWait is the ack wait where a test waits for its end. What is leased is kept alive at every third of it, so that a machine
// that stands still for two seconds loses none.
const shortAckWait = 4 * time.Second

// patience is how long a test waits for one thing to happen on a machine that is busy.
const patience = time.Minute

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func startServer(t *testing.T, opts *server.Options) *server.Server {
	t.Helper()
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(patience) {
		t.Fatal("server is not ready")
	}
	return s
}

// newBench starts a server with a stream S (subjects s.>) and connects to it. The test runs beside others: mostly it waits.
func newBench(t *testing.T, stream natsjs.StreamConfig) *bench {
	t.Helper()
	t.Parallel()
	port, err := localnats.FreePort() // nobody else's while it is down
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, ctx: t.Context(), opts: &server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true}}
	b.server = startServer(t, b.opts)
	t.Cleanup(func() { b.server.Shutdown(); b.server.WaitForShutdown() })
	b.connect(b.server.ClientURL())
	stream.Name, stream.Subjects = "S", []string{"s.>"}
	b.must(b.js.CreateStream(b.ctx, stream))
	conn, err := Dial(Config{URLs: []string{b.server.ClientURL()}, Name: "test"}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	b.conn = conn
	t.Cleanup(conn.Close)
	return b
}

// deleteStream deletes the stream S, and leaves another one. With the last stream of an account nats-server removes the
// account's directory too, after it answered: amid what makes the next stream, which is refused then (500, 10049;
// nats-server 2.15.2, stream.stop). It is for other goroutines than the test's.
func (b *bench) deleteStream() error {
	if _, err := b.js.CreateStream(b.ctx, natsjs.StreamConfig{Name: "OTHER", Subjects: []string{"other"}}); err != nil {
		return err
	}
	return b.js.DeleteStream(b.ctx, "S")
}

func (b *bench) connect(url string) {
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(nc.Close)
	b.nc = nc
	if b.js, err = natsjs.New(nc, natsjs.WithDefaultTimeout(patience)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) must(_ any, err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// config is a consumer of the bench's stream.
func (b *bench) config() ConsumerConfig {
	return ConsumerConfig{
		Stream: "S", Durable: "d", Manage: ManageCreate, AckWait: 5 * time.Second, MaxAckPending: 1000,
		Concurrency: 4, Prefetch: 4, MaxBytes: 16 << 20,
	}
}

// run starts the source under test, and waits until it serves the durable.
func (b *bench) run(cfg ConsumerConfig) {
	b.t.Helper()
	b.begin(cfg)
	b.eventually("the durable is bound", func() bool { return b.source.Status().Bound })
}

// begin starts the source under test.
func (b *bench) begin(cfg ConsumerConfig) {
	b.t.Helper()
	b.source = NewSource(b.conn, cfg, quiet())
	if b.short > 0 {
		b.source.expires = b.short
	}
	if b.prepare != nil {
		b.prepare(b.source)
	}
	ctx, cancel := context.WithCancel(b.ctx)
	var done sync.WaitGroup
	done.Go(func() {
		if err := b.source.Run(ctx); err != nil {
			b.t.Error(err)
		}
	})
	b.stop = sync.OnceFunc(func() { cancel(); done.Wait() })
	b.t.Cleanup(b.stop)
	b.source.Pull(PullAll)
}

// publish stores n messages. A cluster may have no leader for a moment: then it is tried again, and stored once.
func (b *bench) publish(n int) {
	b.t.Helper()
	for i := range n {
		b.storeOnce(fmt.Appendf(nil, "%d", i), nats.NewInbox())
	}
}

func (b *bench) storeOnce(body []byte, id string) {
	b.t.Helper()
	b.eventually("a message is stored", func() bool {
		ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
		defer cancel()
		_, err := b.js.Publish(ctx, "s.x", body, natsjs.WithMsgID(id))
		return err == nil
	})
}

// next is the next message, which must come soon.
func (b *bench) next() *Message {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	m := b.source.Next(ctx)
	if m == nil {
		b.t.Fatal("no message came")
	}
	return m
}

// info is what the server says of the durable. A cluster may have no leader for a moment, which answers nothing: then it is asked again.
func (b *bench) info() *natsjs.ConsumerInfo {
	b.t.Helper()
	end := time.Now().Add(patience)
	for wait := 2 * time.Second; ; wait *= 2 {
		info, err := b.askInfo(wait)
		if err == nil {
			return info
		}
		if !errors.Is(err, context.DeadlineExceeded) || time.Now().After(end) {
			b.t.Fatal(err)
		}
	}
}

// askInfo asks once.
func (b *bench) askInfo(wait time.Duration) (*natsjs.ConsumerInfo, error) {
	ctx, cancel := context.WithTimeout(b.ctx, wait)
	defer cancel()
	cons, err := b.js.Consumer(ctx, "S", "d")
	if err != nil {
		return nil, err
	}
	return cons.CachedInfo(), nil
}

// eventually waits until the condition holds.
func (b *bench) eventually(what string, cond func() bool) {
	b.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !cond() {
		select {
		case <-deadline.C:
			b.t.Fatalf("not within %s: %s", patience, what)
		case <-look.C:
		}
	}
}

// dwindles waits until what is left is nothing, and has patience for each time that it becomes less: much takes long on a machine
// that is busy.
func (b *bench) dwindles(what string, left func() int) {
	b.t.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	least, end := math.MaxInt, time.Now().Add(patience)
	for n := left(); n > 0; n = left() {
		if n < least {
			least, end = n, time.Now().Add(patience)
		}
		if time.Now().After(end) {
			b.t.Fatalf("no less than %d in %s, now %d: %s\n%s", least, patience, n, what, b.state())
		}
		<-look.C
	}
}

// state is what the server and the source say.
func (b *bench) state() string {
	info, err := b.askInfo(5 * time.Second)
	s := b.source
	s.mu.Lock()
	defer s.mu.Unlock()
	_, lost := s.expected()
	return fmt.Sprintf("the server: %+v, %v\nthe source: %+v, suspect %v, a look is under way %v, since %s, %d leases, %d verdicts, %d coming, %d lost, width %d",
		info, err, *s.status.Load(), s.suspect, s.looks.underWay, time.Since(s.looks.asked), len(s.leases), len(s.settling), s.coming, lost, s.width)
}

func (b *bench) settled() bool {
	info := b.info()
	return info.NumAckPending == 0 && info.NumPending == 0 && b.source.Leased() == 0
}

func TestSourceDeliversAndAcks(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.publish(100)
	b.run(b.config())
	var seqs []uint64
	for range 100 {
		m := b.next()
		seqs = append(seqs, m.Sequence)
		m.Ack()
	}
	b.eventually("everything is acked", b.settled)
	slices.Sort(seqs)
	if len(slices.Compact(seqs)) != 100 {
		t.Fatalf("got %v", seqs)
	}
	if n := b.source.Flush(b.ctx); n != 0 {
		t.Fatalf("%d verdicts are not confirmed", n)
	}
}

// The bound holds exactly with nobody working: one lease at first, then one more with each first delivery.
func TestLeaseBoundIsExact(t *testing.T) {
	for _, c := range []struct {
		concurrency, prefetch int
		ordered               bool
	}{{1, 0, false}, {1, 1, false}, {4, 4, false}, {3, 0, false}, {16, 16, false}, {1, 0, true}, {1, 1, true}, {4, 4, true}, {16, 16, true}} {
		t.Run(fmt.Sprintf("%d+%d ordered %v", c.concurrency, c.prefetch, c.ordered), func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{})
			b.publish(100)
			cfg := b.config()
			cfg.Concurrency, cfg.Prefetch, cfg.Ordered = c.concurrency, c.prefetch, c.ordered
			b.run(cfg)
			bound := c.concurrency + c.prefetch
			var working []*Message
			for range c.concurrency {
				working = append(working, b.next())
			}
			b.eventually("the bound is near", func() bool { return b.info().NumAckPending > c.concurrency+c.prefetch/2-1 })
			for range 5 {
				b.server.DisconnectClientByID(b.clientID())
				b.eventually("it is connected again", func() bool { return b.source.Status().Bound })
				if n := b.info().NumAckPending; n > bound {
					t.Fatalf("%d leased after a reconnect, the bound is %d", n, bound)
				}
			}
			for _, m := range working {
				m.Ack()
			}
			for range 100 - len(working) {
				b.next().Ack()
				if n := b.info().NumAckPending; n > bound {
					t.Fatalf("%d leased, the bound is %d", n, bound)
				}
			}
			b.eventually("everything is acked", b.settled)
		})
	}
}

// clientID is the server's id of the connection under test.
func (b *bench) clientID() uint64 {
	b.t.Helper()
	id, err := b.conn.nc().GetClientID()
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

// restart restarts the server on the same port and store.
func (b *bench) restart() {
	b.t.Helper()
	b.server.Shutdown()
	b.server.WaitForShutdown()
	b.server = startServer(b.t, b.opts)
}

func TestRestartLosesNoVerdict(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.publish(300)
	cfg := b.config()
	cfg.Concurrency = 16
	b.run(cfg)
	seen := b.ackAll(300, func(n int) {
		if n%100 == 50 {
			b.restart()
		}
	})
	if len(seen) != 300 {
		t.Fatalf("%d of 300 messages came", len(seen))
	}
}

// What a publisher writes into headers never stops the pulling.
func TestStatusLikeMessagesAreMessages(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	for _, h := range []nats.Header{
		{"Status": {"400"}}, {"Status": {"409"}, "Description": {"Consumer Deleted"}}, {"Status": {"100"}}, {"Status": {"503"}},
		{"Status": {"408"}, "Nats-Pending-Messages": {"5"}}, {"Status": {"404"}},
	} {
		b.must(b.js.PublishMsg(b.ctx, &nats.Msg{Subject: "s.x", Header: h}))
	}
	b.publish(1)
	b.run(b.config())
	for range 7 {
		b.next().Ack()
	}
	b.eventually("everything is acked", b.settled)
}

func TestUndecodableHeadersAreDelivered(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	raw, err := net.Dial("tcp", b.server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	head := "NATS/1.0\r\nno colon here\r\n\r\n"
	fmt.Fprintf(raw, "CONNECT {\"headers\":true,\"verbose\":false}\r\nHPUB s.x %d %d\r\n%sbody\r\nPING\r\n", len(head), len(head)+4, head)
	b.publish(1)
	b.run(b.config())
	var lost int
	for range 2 {
		m := b.next()
		if m.HeaderLost {
			lost++
			if string(m.Body) != "body" {
				t.Errorf("body is %q", m.Body)
			}
		}
		m.Ack()
	}
	if lost != 1 {
		t.Errorf("%d messages with lost headers, want 1", lost)
	}
	b.eventually("everything is acked", b.settled)
}

// A message larger than all bytes allowed is leased alone, and never asked for in a hot loop.
func TestMaxBytes(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	sizes := []int{10, 600 << 10, 10, 300 << 10, 300 << 10, 10, 900 << 10, 10}
	for _, n := range sizes {
		b.must(b.js.Publish(b.ctx, "s.x", make([]byte, n)))
	}
	cfg := b.config()
	cfg.Concurrency, cfg.Prefetch, cfg.MaxBytes = 8, 0, 512<<10
	b.run(cfg)
	var got []int
	held, bytes := []*Message{}, 0
	for len(got) < len(sizes) {
		wait := 300 * time.Millisecond
		if len(held) == 0 {
			wait = patience
		}
		ctx, cancel := context.WithTimeout(b.ctx, wait)
		m := b.source.Next(ctx)
		cancel()
		if m == nil {
			if len(held) == 0 {
				t.Fatalf("nothing is leased and nothing comes, after %v", got)
			}
			for _, m := range held {
				m.Ack()
			}
			held, bytes = nil, 0
			continue
		}
		got, held, bytes = append(got, len(m.Body)), append(held, m), bytes+len(m.Body)
		if bytes > 512<<10 && len(held) > 1 {
			t.Fatalf("%d bytes are leased in %d messages, after %v", bytes, len(held), got)
		}
	}
	for _, m := range held {
		m.Ack()
	}
	b.eventually("everything is acked", b.settled)
	if in := b.server.NumSubscriptions(); in > 2000 {
		t.Errorf("%d subscriptions", in)
	}
	if n := b.conn.nc().Stats().OutMsgs; n > 500 {
		t.Errorf("%d messages were sent to the server: a hot loop", n)
	}
}

func TestNakWaits(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.publish(1)
	b.run(b.config())
	m := b.next()
	start := time.Now()
	m.Nak(500 * time.Millisecond)
	m = b.next()
	if d := time.Since(start); m.Delivered != 2 || d < 490*time.Millisecond {
		t.Fatalf("delivery %d after %s", m.Delivered, d)
	}
	m.Term("enough")
	b.eventually("everything is settled", b.settled)
}

// A message in work is kept alive well beyond the ack wait, and so is one that nobody works on yet.
func TestKeepAlive(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.publish(2)
	cfg := b.config()
	cfg.AckWait, cfg.Concurrency, cfg.Prefetch = 2*shortAckWait, 1, 1
	b.run(cfg)
	m := b.next()
	b.eventually("the other is leased too", func() bool { return b.info().Delivered.Consumer == 2 })
	b.stays("nothing is delivered again", 2*cfg.AckWait+time.Second, func() bool {
		info := b.info()
		return info.NumRedelivered == 0 && info.Delivered.Consumer == 2
	})
	m.Ack()
	m = b.next()
	if m.Delivered != 1 {
		t.Fatalf("delivery %d", m.Delivered)
	}
	m.Ack()
	b.eventually("everything is acked", b.settled)
}

// After the stream was made anew, a verdict over what was leased before settles nothing of the new stream.
func TestVerdictsStayInTheirStream(t *testing.T) {
	for _, prefetch := range []int{0, 4} {
		t.Run(fmt.Sprint(prefetch), func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{Retention: natsjs.WorkQueuePolicy})
			b.publish(1)
			cfg := b.config()
			cfg.Concurrency, cfg.Prefetch, cfg.AckWait = 1, prefetch, 10*time.Minute // somebody else's is not delivered again
			b.run(cfg)
			old := b.next()
			b.must(nil, b.deleteStream())
			b.must(b.js.CreateStream(b.ctx, natsjs.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Retention: natsjs.WorkQueuePolicy}))
			b.must(b.js.CreateConsumer(b.ctx, "S", cfg.wanted()))
			b.publish(1)
			// Somebody else has the new message in work.
			cons, err := b.js.Consumer(b.ctx, "S", "d")
			if err != nil {
				t.Fatal(err)
			}
			other, err := cons.Next(natsjs.FetchMaxWait(5 * time.Second))
			if err == nil {
				b.eventually("what was known of the old durable is not fresh any more", func() bool {
					b.source.mu.Lock()
					defer b.source.mu.Unlock()
					return time.Since(later(b.source.evidence, b.source.counting)) >= freshEvidence
				})
				old.Ack()
				b.eventually("the source serves the new durable", func() bool { return b.source.Leased() == 0 && b.source.Status().Bound })
				b.must(nil, b.source.conn.nc().FlushTimeout(patience))
				if info := b.info(); info.NumAckPending != 1 {
					t.Fatalf("the old ack settled a message of the new stream: %+v", info)
				}
				b.must(nil, other.Ack())
				b.eventually("everything is acked", b.settled)
				return
			}
			// The source was faster: the new message came here.
			old.Ack()
			m := b.next()
			if m.Delivered > 2 || !m.StreamCreated.After(old.StreamCreated) {
				t.Fatalf("delivery %d of the stream of %s", m.Delivered, m.StreamCreated)
			}
			m.Ack()
			b.eventually("everything is acked", b.settled)
		})
	}
}

// A durable that vanished continues after the ack floor last seen.
func TestDurableMadeAgainContinues(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.publish(10)
	b.run(b.config())
	for range 10 {
		b.next().Ack()
	}
	b.eventually("everything is acked", b.settled)
	b.eventually("the floor is seen", func() bool {
		b.source.doubt()
		b.source.mu.Lock()
		defer b.source.mu.Unlock()
		return b.source.lastSeen.floor == 10
	})
	if err := b.js.DeleteConsumer(b.ctx, "S", "d"); err != nil {
		t.Fatal(err)
	}
	b.publish(1)
	m := b.next()
	if m.Sequence != 11 {
		t.Fatalf("starts at %d again", m.Sequence)
	}
	m.Ack()
	b.eventually("everything is acked", b.settled)
}

// A durable that was deleted is not made anew while the server may still be removing the old one's files.
func TestDurableIsMadeAnewAfterItsDeletion(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.run(b.config())
	made := make(chan time.Time, 1)
	b.must(b.nc.Subscribe("$JS.API.CONSUMER.CREATE.S.d", func(*nats.Msg) { made <- time.Now() }))
	b.eventually("the test listens", func() bool { return b.nc.Flush() == nil })
	begin := time.Now()
	if err := b.js.DeleteConsumer(b.ctx, "S", "d"); err != nil {
		t.Fatal(err)
	}
	if after := (<-made).Sub(begin); after < bindEvery/2 {
		t.Errorf("it was made anew %s after it was deleted", after)
	}
	b.eventually("the durable is bound again", func() bool { return b.source.Status().Bound })
	b.publish(1)
	b.next().Ack()
}

// So it is with one that cannot be served, and is deleted for that.
func TestRefusedDurableIsMadeAnewAfterItsDeletion(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.must(b.js.CreateConsumer(b.ctx, "S", natsjs.ConsumerConfig{Durable: "d", AckPolicy: natsjs.AckNonePolicy}))
	made := make(chan time.Time, 1)
	b.must(b.nc.Subscribe("$JS.API.CONSUMER.CREATE.S.d", func(*nats.Msg) { made <- time.Now() }))
	b.eventually("the test listens", func() bool { return b.nc.Flush() == nil })
	b.begin(b.config())
	b.eventually("it is refused", func() bool { return len(b.source.Status().Detail) > 30 })
	begin := time.Now()
	b.must(nil, b.js.DeleteConsumer(b.ctx, "S", "d"))
	if after := (<-made).Sub(begin); after < bindEvery/2 {
		t.Errorf("it was made anew %s after it was deleted", after)
	}
	b.publish(1)
	b.next().Ack()
}

func TestWaitsForStreamAndDurable(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.must(nil, b.deleteStream())
	b.begin(b.config())
	b.eventually("it says what it waits for", func() bool { return b.source.Status().Detail == "looking up stream S: stream does not exist" })
	b.must(b.js.CreateStream(b.ctx, natsjs.StreamConfig{Name: "S", Subjects: []string{"s.>"}}))
	b.publish(1)
	b.next().Ack()
	b.eventually("everything is acked", b.settled)
}

func TestRefusedDurable(t *testing.T) {
	for name, cfg := range map[string]natsjs.ConsumerConfig{
		"push":         {Durable: "d", DeliverSubject: "to", AckPolicy: natsjs.AckExplicitPolicy},
		"ack none":     {Durable: "d", AckPolicy: natsjs.AckNonePolicy},
		"headers only": {Durable: "d", AckPolicy: natsjs.AckExplicitPolicy, HeadersOnly: true},
		"overflow":     {Durable: "d", AckPolicy: natsjs.AckExplicitPolicy, PriorityPolicy: natsjs.PriorityPolicyOverflow, PriorityGroups: []string{"g"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{})
			b.publish(1)
			if name == "push" {
				b.must(b.js.CreatePushConsumer(b.ctx, "S", cfg))
			} else {
				b.must(b.js.CreateConsumer(b.ctx, "S", cfg))
			}
			b.begin(b.config())
			b.eventually("it is refused", func() bool {
				st := b.source.Status()
				return !st.Bound && len(st.Detail) > 30
			})
			b.must(nil, b.js.DeleteConsumer(b.ctx, "S", "d"))
			b.next().Ack()
			b.eventually("everything is acked", b.settled)
		})
	}
}

// Stopping the pulling leaves nothing behind: what had been asked for is handed back or was never sent.
func TestStopPullingLosesNothing(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	cfg := b.config()
	cfg.Concurrency, cfg.Prefetch, cfg.AckWait = 4, 60, time.Hour
	for round := range 20 {
		b.publish(200)
		b.run(cfg)
		for range 100 {
			m := b.next()
			m.Ack()
		}
		b.source.StopPulling(b.ctx)
		for m := b.source.TakeReady(); m != nil; m = b.source.TakeReady() {
			m.HandBack()
		}
		if n := b.source.Flush(b.ctx); n != 0 {
			t.Fatalf("%d verdicts unconfirmed", n)
		}
		b.stop()
		// All that is pending can be had, long before the ack wait.
		cons, err := b.js.Consumer(b.ctx, "S", "d")
		b.must(cons, err)
		stuck := cons.CachedInfo().NumAckPending
		batch, err := cons.Fetch(max(stuck, 1), natsjs.FetchMaxWait(30*time.Second))
		b.must(batch, err)
		for m := range batch.Messages() {
			if meta, err := m.Metadata(); err == nil && meta.NumDelivered > 1 {
				stuck--
			}
			b.must(nil, m.Nak())
		}
		if stuck != 0 {
			t.Fatalf("round %d: %d messages are stuck", round, stuck)
		}
	}
	b.run(cfg)
	for b.info().NumPending > 0 || b.info().NumAckPending > 0 {
		ctx, cancel := context.WithTimeout(b.ctx, time.Second)
		if m := b.source.Next(ctx); m != nil {
			m.Ack()
		}
		cancel()
	}
}

// A durable that is edited under way, also so that it cannot be served any more, is the same durable: what is leased from it
// is settled.
func TestEditedDurableKeepsItsLeases(t *testing.T) {
	for name, edit := range map[string]func(*natsjs.ConsumerConfig){
		"smaller requests": func(c *natsjs.ConsumerConfig) { c.MaxRequestBatch = 1 },
		"fewer bytes":      func(c *natsjs.ConsumerConfig) { c.MaxRequestMaxBytes = 100 },
		"shorter requests": func(c *natsjs.ConsumerConfig) { c.MaxRequestExpires = time.Second },
		"headers only":     func(c *natsjs.ConsumerConfig) { c.HeadersOnly = true },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{})
			cfg := b.config()
			b.publish(20)
			b.run(cfg)
			var held []*Message
			for range 4 {
				held = append(held, b.next())
			}
			c := b.info().Config
			edit(&c)
			b.must(b.js.UpdateConsumer(b.ctx, "S", c))
			if name == "headers only" {
				b.eventually("it is refused", func() bool { return !b.source.Status().Bound })
			}
			first := b.info().Created
			for _, m := range held {
				m.Ack()
			}
			b.eventually("what was leased is acked", func() bool { return b.info().AckFloor.Stream >= 4 })
			if n := b.source.Flush(b.ctx); n != 0 || !b.info().Created.Equal(first) {
				t.Errorf("%d unconfirmed", n)
			}
			if name != "headers only" {
				seen := b.ackAll(16, func(int) {})
				if len(seen) != 16 {
					t.Errorf("%d of the 16 others came", len(seen))
				}
			}
			if n := b.info().NumRedelivered; n != 0 {
				t.Errorf("%d redelivered", n)
			}
			if n := b.conn.nc().Stats().OutMsgs; n > 1000 {
				t.Errorf("%d messages were sent to the server: a hot loop", n)
			}
		})
	}
}

// A durable that ends each pull request at once is not asked without a pause while it has nothing.
func TestPullsThatBringNothingAreApart(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	c := b.config()
	want := c.wanted()
	want.MaxRequestExpires = time.Millisecond
	b.must(b.js.CreateConsumer(b.ctx, "S", want))
	pulls := b.countCalls("$JS.API.CONSUMER.MSG.NEXT.S.d")
	began := time.Now()
	b.run(c)
	const many = 20
	b.eventually("it is asked again and again", func() bool { return pulls() >= many })
	if took := time.Since(began); took < (many-maxLanes)*leastPull*9/10 {
		t.Errorf("%d pull requests in %s", pulls(), took)
	}
	b.publish(20)
	for range 20 {
		b.next().Ack()
	}
	b.eventually("everything is acked", b.settled)
}
