package forward

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A connection and its TLS handshake have this long each, whatever app.timeout is.
const (
	connectTimeout   = 5 * time.Second
	handshakeTimeout = 5 * time.Second
)

// A unix socket whose queue is full says so at once, where TCP waits. It is tried again after so long, doubling to the latter.
const (
	busyWait    = time.Millisecond
	busyWaitMax = 50 * time.Millisecond
)

// dialer makes connections to the app, always the same one.
type dialer struct {
	network, address string // of a unix socket; else empty, and net/http's address is used
	tls              *tls.Config
	dial             func(ctx context.Context, network, address string) (net.Conn, error)
}

// connect makes a connection.
func (d *dialer) connect(ctx context.Context, network, address string) (net.Conn, error) {
	if d.network != "" {
		network, address = d.network, d.address
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	nc, err := d.dial(ctx, network, address)
	for wait := busyWait; network == "unix" && errors.Is(err, syscall.EAGAIN) && sleep(ctx, wait); wait = min(2*wait, busyWaitMax) {
		nc, err = d.dial(ctx, network, address)
	}
	return nc, err
}

// sleep waits, and returns false if ctx ends before that.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// dialContext makes a connection that counts, for net/http.
func (d *dialer) dialContext(ctx context.Context, network, address string) (net.Conn, error) {
	nc, err := d.connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: nc}, nil
}

func (d *dialer) dialTLSContext(ctx context.Context, network, address string) (net.Conn, error) {
	raw, err := d.dialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	secured := tls.Client(raw, d.tls)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return &conn{Conn: secured}, nil
}

// bounded makes at most as many connections as it has slots. It is for HTTP/2, of which net/http opens more as the app's limit of
// requests on one is reached, and then forgets that they are there (MaxConnsPerHost does not hold); waiting for the limit instead
// (HTTP2Config.StrictMaxConcurrentRequests) can block for ever in Go 1.26.
type bounded struct {
	*dialer
	slots     chan struct{}
	closeIdle func() // makes room
}

func (b *bounded) dialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if err := b.take(ctx); err != nil {
		return nil, err
	}
	nc, err := b.dialer.dialContext(ctx, network, address)
	if err != nil {
		<-b.slots
		return nil, err
	}
	return &slotConn{Conn: nc, release: sync.OnceFunc(func() { <-b.slots })}, nil
}

// take waits for a slot. There are as many as requests in flight, so while all are taken some connection is idle, or soon is.
func (b *bounded) take(ctx context.Context) error {
	select {
	case b.slots <- struct{}{}:
		return nil
	default:
	}
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		b.closeIdle()
		select {
		case b.slots <- struct{}{}:
			return nil
		case <-again.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// slotConn gives its slot back when it is closed.
type slotConn struct {
	net.Conn
	release func()
}

func (c *slotConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// conn counts what was written, so that a request of which nothing was sent can be told for certain.
type conn struct {
	net.Conn
	written atomic.Int64
	shut    atomic.Bool // nothing may be written any more
}

// Write counts first and takes back what was not written: the answer may be here before Write returns.
func (c *conn) Write(p []byte) (int, error) {
	if c.shut.Load() {
		return 0, errUnsent
	}
	c.written.Add(int64(len(p)))
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n - len(p)))
	return n, err
}

// ReadFrom is what net/http sends larger bodies with. It spares io.Copy's buffer.
func (c *conn) ReadFrom(r io.Reader) (int64, error) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	return io.CopyBuffer(writerOnly{c}, r, *buf)
}

type writerOnly struct{ c *conn }

func (w writerOnly) Write(p []byte) (int, error) { return w.c.Write(p) }

var buffers = sync.Pool{New: func() any {
	b := make([]byte, 32<<10)
	return &b
}}
