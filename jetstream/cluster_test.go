package jetstream

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

// newClusterBench is a bench on a cluster of three, with the stream replicated on all of them.
func newClusterBench(t *testing.T) (*bench, *localnats.Cluster) {
	t.Helper()
	t.Parallel()
	cluster := localnats.RunCluster(t, 3)
	b := &bench{t: t, ctx: t.Context()}
	b.connect(cluster.URL())
	b.must(b.js.CreateStream(b.ctx, natsjs.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Replicas: 3}))
	var err error
	b.js, err = natsjs.New(b.nc, natsjs.WithDefaultTimeout(5*time.Second)) // what has no leader does not answer, and is asked again
	b.must(nil, err)
	conn, err := Dial(Config{URLs: cluster.URLs(), Name: "test"}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	b.conn = conn
	t.Cleanup(conn.Close)
	return b, cluster
}

// The server that leads the durable is stopped, whichever of the two ways the source notices it: nothing is lost, and the
// lease bound holds.
func TestLeaderStops(t *testing.T) {
	b, cluster := newClusterBench(t)
	b.publish(400)
	cfg := b.config()
	b.run(cfg)
	seen := b.ackAll(400, func(n int) {
		if n%150 != 100 {
			return
		}
		leader := leaderOf(b, cluster)
		cluster.Stop(leader)
		b.eventually("another leads", func() bool {
			info, err := b.askInfo(2 * time.Second)
			if err != nil {
				return false
			}
			if n := info.NumAckPending; n > cfg.Concurrency+cfg.Prefetch {
				t.Fatalf("%d leased", n)
			}
			return true
		})
		b.must(nil, cluster.Start(leader))
	})
	if len(seen) != 400 {
		t.Errorf("%d of 400 messages came", len(seen))
	}
}

func leaderOf(b *bench, cluster *localnats.Cluster) int {
	b.t.Helper()
	at := -1
	b.eventually("one leads", func() bool { // between two leaders there is no answer, or one that names none
		info, err := b.askInfo(2 * time.Second)
		if err != nil || info.Cluster == nil {
			return false
		}
		at = slices.IndexFunc([]int{0, 1, 2}, func(i int) bool { return cluster.Server(i).Native().Name() == info.Cluster.Leader })
		return at >= 0
	})
	return at
}

func TestLeaderStepsDown(t *testing.T) {
	b, _ := newClusterBench(t)
	b.publish(300)
	b.run(b.config())
	seen := b.ackAll(300, func(n int) {
		if n%50 == 25 {
			b.eventually("the leader steps down", func() bool { // nobody answers while there is none
				_, err := b.nc.Request("$JS.API.CONSUMER.LEADER.STEPDOWN.S.d", nil, 5*time.Second)
				return err == nil
			})
		}
	})
	if len(seen) != 300 {
		t.Errorf("%d of 300 messages came", len(seen))
	}
}

// ackAll acks what comes until all of n messages came and nothing is pending. A message may come more than once.
func (b *bench) ackAll(n int, each func(n int)) map[uint64]bool {
	b.t.Helper()
	seen := map[uint64]bool{}
	deadline := time.Now().Add(time.Minute)
	for calls := 0; ; {
		ctx, cancel := context.WithTimeout(b.ctx, 200*time.Millisecond)
		m := b.source.Next(ctx)
		cancel()
		if m != nil {
			calls++
			seen[m.Sequence] = true
			m.Ack()
			each(calls)
			deadline = time.Now().Add(time.Minute)
			continue
		}
		info, err := b.askInfo(2 * time.Second)
		if err == nil && len(seen) >= n && info.NumAckPending == 0 && info.NumPending == 0 {
			return seen
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("%d of %d messages came, none for a minute, and not everything was acked", len(seen), n)
		}
	}
}

// proxy passes a connection on until it is frozen: then it keeps both sides open and passes nothing, as a network that
// lost its packets does.
type proxy struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu     sync.Mutex
	frozen chan struct{} // closed: what was connected before is frozen
	conns  []net.Conn
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: target, frozen: make(chan struct{})}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, in, out)
		frozen := p.frozen
		p.mu.Unlock()
		p.wg.Go(func() { pass(in, out, frozen) })
		p.wg.Go(func() { pass(out, in, frozen) })
	}
}

func pass(from, to net.Conn, frozen chan struct{}) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-frozen:
			_, _ = io.Copy(io.Discard, from) // swallow what still comes, close nothing
			return
		default:
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	_ = from.Close()
	_ = to.Close()
}

// freeze stops what is connected now from passing anything. New connections pass.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.frozen)
	p.frozen = make(chan struct{})
}

// behindProxy lets the source under test speak to the server through a proxy.
func (b *bench) behindProxy() *proxy {
	b.t.Helper()
	p := newProxy(b.t, b.server.Addr().String())
	conn, err := Dial(Config{URLs: []string{"nats://" + p.listener.Addr().String()}, Name: "test"}, quiet())
	b.must(nil, err)
	b.conn = conn
	b.t.Cleanup(conn.Close)
	return p
}

// With the network gone for a connection that the server takes for alive, messages are sent into nowhere. They stay leased
// at the server until the ack wait; the bound counts them.
func TestBoundOverHalfOpenConnection(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	p := b.behindProxy()
	cfg := b.config()
	cfg.AckWait, cfg.Concurrency, cfg.Prefetch = 30*time.Second, 8, 24
	b.publish(20)
	b.run(cfg)
	for range 20 {
		b.next().Ack()
	}
	b.eventually("everything is acked", b.settled)
	bound := cfg.Concurrency + cfg.Prefetch
	for range 3 {
		b.eventually("pulls wait", func() bool {
			b.source.mu.Lock()
			defer b.source.mu.Unlock()
			coming, _ := b.source.expected()
			return coming >= 3 && !b.source.suspect
		})
		b.must(nil, b.conn.nc().FlushTimeout(patience)) // they are there
		p.freeze()
		b.publish(3) // sent to the frozen connection
		b.eventually("the server sent what it was asked for", func() bool { i := b.info(); return i.NumPending == 0 || i.NumWaiting == 0 })
		if err := b.conn.nc().ForceReconnect(); err != nil {
			t.Fatal(err)
		}
		b.eventually("it is connected again", func() bool { return b.conn.Connected() && b.source.Status().Bound })
		b.publish(20)
		var most atomic.Int64
		for range 200 {
			most.Store(max(most.Load(), int64(b.info().NumAckPending)))
		}
		if n := most.Load(); n > int64(bound) {
			t.Fatalf("%d leased, the bound is %d", n, bound)
		}
		b.drain()
	}
}

// drain acks everything that comes until nothing is pending, also what was sent into nowhere and comes after the ack wait.
func (b *bench) drain() {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	var work sync.WaitGroup
	work.Go(func() {
		for m := b.source.Next(ctx); m != nil; m = b.source.Next(ctx) {
			m.Ack()
		}
	})
	b.eventually("all that arrives is acked", func() bool { return b.info().NumPending == 0 && b.source.Leased() == 0 })
	cancel()
	work.Wait()
}

// A look that is under way when the connection breaks ends with it, not when the request would have timed out: what is leased is
// settled and kept alive right after the reconnect.
func TestACutEndsTheLookUnderWay(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	p := b.behindProxy()
	b.publish(1)
	b.run(b.config())
	m := b.next()
	p.freeze()
	looked := make(chan error, 1)
	sent := b.conn.nc().Stats().OutMsgs
	go func() {
		_, err := b.conn.consumerInfo(b.ctx, "S", "d")
		looked <- err
	}()
	b.eventually("the look is under way", func() bool { return b.conn.nc().Stats().OutMsgs > sent })
	b.must(nil, b.conn.nc().ForceReconnect())
	if err := <-looked; !errors.Is(err, ErrNotConnected) {
		t.Errorf("the look ended so: %v", err)
	}
	m.Ack()
	b.eventually("the verdict is confirmed", b.settled)
}
