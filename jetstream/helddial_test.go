package jetstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

// heldDials are those of a client that get no answer, for as long as it tries.
type heldDials struct {
	began chan struct{} // closed when the first one is held
	once  sync.Once
	ended context.Context // when the client gives up
}

func (h *heldDials) open(context.Context, string, string) (net.Conn, error) {
	h.once.Do(func() { close(h.began) })
	<-h.ended.Done()
	return nil, errors.New("held")
}

// holdDials has the client's next tries to connect held.
func holdDials(c *Conn) *heldDials {
	h := &heldDials{began: make(chan struct{}), ended: c.dialer.life}
	c.dialer.setOpen(h.open)
	return h
}

// soon fails the test if f waits for what never comes.
func soon(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal(what + " waits for the client")
	}
}

// While the client waits for a server that does not answer it holds its lock: all that is asked meanwhile is answered all the same, and a stop ends.
func TestNothingWaitsForADial(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	conn, err := Dial(Config{URLs: []string{b.server.ClientURL()}}, quiet())
	b.must(nil, err)
	b.eventually("connected", conn.Connected)
	cfg := b.config()
	s := NewSource(conn, cfg, quiet())
	d := NewDeadLetters(conn, DeadLetterConfig{Stream: "D", Subject: "dlq.{stream}.{consumer}.{subject}", Create: true}, "S", "d", quiet())
	b.must(nil, d.Ensure(b.ctx))
	ctx, stop := context.WithCancel(b.ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	s.Pull(PullAll)
	b.publish(3)
	m := s.Next(b.ctx)
	b.server.Shutdown()
	b.eventually("nothing is asked any more by who did not know yet that the connection is lost", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !conn.Connected() && !s.looks.underWay
	})
	<-holdDials(conn).began

	soon(t, "what is known of the connection", func() {
		if conn.Connected() || conn.Trouble() == "" || s.Status().Bound {
			t.Errorf("connected %v, trouble %q, bound %v", conn.Connected(), conn.Trouble(), s.Status().Bound)
		}
		s.Leased()
	})
	soon(t, "a dead letter", func() {
		if _, err := d.Put(b.ctx, DeadLetter{Message: m}); !errors.Is(err, ErrNotConnected) {
			t.Errorf("a dead letter: %v", err)
		}
	})
	soon(t, "the stop", func() {
		m.Ack()
		quick, cancel := context.WithCancel(b.ctx)
		cancel() // the time for it is over
		s.StopPulling(quick)
		if n := s.Flush(quick); n != 1 {
			t.Errorf("%d verdicts are not confirmed, want 1", n)
		}
		s.Unpin(quick)
		stop()
		running.Wait()
	})
	soon(t, "the end", conn.Close)
}

// So it is with a client that never had a connection.
func TestNothingWaitsForTheFirstDial(t *testing.T) {
	conn := notConnected(t)
	<-holdDials(conn).began
	s := NewSource(conn, ConsumerConfig{Stream: "S", Durable: "d", Concurrency: 1, MaxBytes: 1 << 20}, quiet())
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	soon(t, "the stop", func() {
		s.Pull(PullAll)
		s.StopPulling(ctx)
		s.Flush(ctx)
		stop()
		running.Wait()
	})
	soon(t, "the end", conn.Close)
}

// silent is a connection over which nothing comes, without deadlines.
type silent struct {
	net.Conn
	reading func()
}

func (c *silent) Read(b []byte) (int, error) {
	c.reading()
	return c.Conn.Read(b)
}

func (*silent) SetDeadline(time.Time) error     { return nil }
func (*silent) SetReadDeadline(time.Time) error { return nil }

// A client that is closed does not wait for a handshake that nobody answers.
func TestCloseBreaksAHandshakeOff(t *testing.T) {
	conn := notConnected(t)
	here, there := net.Pipe()
	defer there.Close()
	began := make(chan struct{})
	conn.dialer.setOpen(func(context.Context, string, string) (net.Conn, error) {
		return &silent{Conn: here, reading: sync.OnceFunc(func() { close(began) })}, nil
	})
	<-began
	soon(t, "the end", conn.Close)
}

// nobodyThere is the address of a server that there is not, and that nobody else comes to have.
func nobodyThere(t *testing.T) string {
	t.Helper()
	port, err := localnats.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint("nats://127.0.0.1:", port)
}

// notConnected is a client whose first try to connect is refused.
func notConnected(t *testing.T) *Conn {
	t.Helper()
	conn, err := Dial(Config{URLs: []string{nobodyThere(t)}}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// setOpen changes how connections are made from now on.
func (d *dialer) setOpen(open func(context.Context, string, string) (net.Conn, error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = open
}

// A look-up that takes longer than a try to connect holds none up, and its answer is for the next one.
func TestSlowLookUp(t *testing.T) {
	var d dialer
	d.begin()
	asked, answer := make(chan struct{}, 100), make(chan struct{})
	d.resolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		asked <- struct{}{}
		<-answer
		return nil, errors.New("the name server is away")
	}}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-asked
		cancel() // the time for the try is over
	}()
	if _, err := d.dialAny(ctx, "tcp", "nats.example:4222"); err == nil || !strings.Contains(err.Error(), "looking up nats.example: no answer yet") {
		t.Errorf("the first try: %v", err)
	}
	close(answer)
	if _, err := d.dialAny(context.Background(), "tcp", "nats.example:4222"); err == nil || !strings.Contains(err.Error(), "the name server is away") {
		t.Errorf("the second try: %v", err)
	}
	if len(d.lookups) != 0 {
		t.Errorf("%d look-ups are left", len(d.lookups))
	}
	d.hangUp()
	d.looking.Wait()
}
