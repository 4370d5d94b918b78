package forward

import (
	"bufio"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // net/http reports odd answers there
	goleak.VerifyTestMain(m)
}

// network is the app's side of a made-up network, for use in a bubble.
type network struct {
	mu     sync.Mutex
	accept func(net.Conn)                                                // nil: connections are refused
	dialed func(ctx context.Context) (nc net.Conn, done bool, err error) // if set, asked first
	dials  []time.Time
	wg     sync.WaitGroup
}

func (n *network) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	n.mu.Lock()
	n.dials = append(n.dials, time.Now())
	accept, dialed := n.accept, n.dialed
	n.mu.Unlock()
	if dialed != nil {
		if nc, done, err := dialed(ctx); done {
			return nc, err
		}
	}
	if accept == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	ours, theirs := net.Pipe()
	n.wg.Go(func() {
		defer theirs.Close()
		accept(theirs)
	})
	return ours, nil
}

func (n *network) set(accept func(net.Conn)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.accept = accept
}

func (n *network) dialCount() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.dials)
}

// raw serves requests on a connection, one after another; the handler writes raw bytes, and false ends the connection.
func raw(handle func(req *http.Request, w io.Writer) bool) func(net.Conn) {
	return func(nc net.Conn) {
		r := bufio.NewReader(nc)
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			body, err := io.ReadAll(req.Body)
			if err != nil || int64(len(body)) != req.ContentLength && req.ContentLength > 0 {
				return
			}
			if !handle(req, nc) {
				return
			}
		}
	}
}

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

func always(answer string) func(net.Conn) {
	return raw(func(_ *http.Request, w io.Writer) bool {
		_, err := io.WriteString(w, answer)
		return err == nil
	})
}

func hang(nc net.Conn) { _, _ = io.Copy(io.Discard, nc) }

type setup struct {
	config  Config
	options Options
}

// newClient makes a client, closed at the end of the test; dial is its network, nil the real one.
func newClient(t testing.TB, n *network, change ...func(*setup)) *Client {
	t.Helper()
	s := setup{Config{URL: "http://app:8080"}, Options{Connections: 16}}
	for _, f := range change {
		f(&s)
	}
	c, err := New(s.config, s.options)
	if err != nil {
		t.Fatal(err)
	}
	if n != nil {
		c.dialer.dial = n.dial
		t.Cleanup(n.wg.Wait)
	}
	t.Cleanup(c.Close)
	return c
}

func target(t testing.TB, c *Client, method string) *Target {
	t.Helper()
	tg, err := c.Target(method, "/")
	if err != nil {
		t.Fatal(err)
	}
	return tg
}

var stored = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

func message(body string) *Message {
	return &Message{
		Stream: "ORDERS", Consumer: "worker", Subject: "orders.new",
		Sequence: 42, Delivered: 1, Pending: 7, Stored: stored,
		Body: []byte(body),
	}
}

// start forwards in the background.
func start(ctx context.Context, c *Client, tg *Target, m *Message) <-chan Result {
	done := make(chan Result, 1)
	go func() { done <- c.Forward(ctx, tg, m) }()
	return done
}
