package admin

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// client is a connection to the listener under test.
type client struct {
	t testing.TB
	net.Conn
	r *bufio.Reader
}

func connect(t testing.TB, addr net.Addr) *client {
	t.Helper()
	conn, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return newClient(t, conn)
}

func newClient(t testing.TB, conn net.Conn) *client {
	return &client{t, conn, bufio.NewReader(conn)}
}

func (c *client) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

// status is that of the next answer; 0 if the connection was closed.
func (c *client) status() int {
	c.t.Helper()
	return c.statusOf(http.MethodGet)
}

// statusOf is that of the answer to a request of a method.
func (c *client) statusOf(method string) int {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); errors.Is(err, io.ErrClosedPipe) {
		return 0
	} else if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	resp, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatal("it is neither answered nor closed")
	}
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode
}

// served serves o until the test ends. No timeout closes a connection.
func served(t *testing.T, o Options) net.Addr {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := New(o).server()
	server.ReadHeaderTimeout, server.ReadTimeout, server.WriteTimeout, server.IdleTimeout = 0, 0, 0, 0
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return ln.Addr()
}

// overPipes serves o over connections in memory, in a bubble of time.
func overPipes(t *testing.T, o Options) (ln *piped, end func()) {
	ln = &piped{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := New(o).server()
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	return ln, func() {
		server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}
}

func (p *piped) connect(t *testing.T) *client {
	conn, err := p.dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, conn)
}

// Connections that are open and ask for nothing make way for new ones, whether they asked before, send half a request, or nothing.
func TestIdleConnectionsMakeWay(t *testing.T) {
	const request = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, c := range map[string]struct{ sent string }{"silent": {""}, "asked before": {request}, "half a request": {request[:20]}} {
		t.Run(name, func(t *testing.T) {
			addr := served(t, options())
			var open []*client
			for range 3 * maxConnections {
				c1 := connect(t, addr)
				open = append(open, c1)
				if c1.send(c.sent); c.sent == request && c1.status() != 200 {
					t.Fatal("it is not answered")
				}
			}
			last := connect(t, addr)
			last.send(request)
			if last.status() != 200 {
				t.Error("no answer over a new connection")
			}
			ended := make(chan struct{}, len(open))
			for _, c := range open {
				go func() { _, _ = c.r.ReadByte(); ended <- struct{}{} }() // until one of both ends closes it
			}
			patience := time.After(time.Minute)
			for range len(open) + 1 - maxConnections {
				select {
				case <-ended:
				case <-patience:
					t.Fatal("too many connections stay open")
				}
			}
			for _, c := range open {
				c.Close()
			}
			for range maxConnections - 1 {
				<-ended
			}
		})
	}
}

// The connection of whose client nothing was heard for the longest makes way, and none that the API is at work for.
func TestOldestConnectionMakesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c connections
		var ends []net.Conn
		add := func() net.Conn {
			time.Sleep(time.Second)
			here, there := net.Pipe()
			ends = append(ends, there)
			c.changed(here, http.StateNew)
			return here
		}
		closed := func(i int) bool {
			_ = ends[i].SetReadDeadline(time.Now().Add(time.Second))
			_, err := ends[i].Read(make([]byte, 1))
			return errors.Is(err, io.EOF)
		}
		first, second := add(), add()
		for range maxConnections - 2 {
			add()
		}
		for _, conn := range []net.Conn{first, second} {
			c.changed(conn, http.StateActive)
			c.busy(c.of(t.Context(), conn))
		}
		c.changed(second, http.StateIdle)
		add()
		add()
		for i, want := range []bool{false, false, true, true, false} {
			if closed(i) != want {
				t.Errorf("connection %d is closed: %v, want %v", i, !want, want)
			}
		}
		if len(c.heard) != maxConnections {
			t.Errorf("%d connections", len(c.heard))
		}
		c.changed(first, http.StateClosed)
		if add(); closed(4) || len(c.heard) != maxConnections {
			t.Error("one makes way though there is room")
		}
	})
}

// A connection that the API is at work for makes way for none, whatever comes; there are not so many of them that no others could come.
func TestBusyConnectionsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, token := secured()
		ln, stop := overPipes(t, o)
		defer stop()
		var busy []*client
		for range mostListeners {
			c := ln.connect(t)
			c.send("GET /api/events HTTP/1.1\r\nHost: localhost\r\n" + token + "\r\n")
			c.hears("HTTP/1.1 200 ")
			busy = append(busy, c)
		}
		time.Sleep(time.Second)
		for range 2 * maxConnections {
			c := ln.connect(t)
			c.send("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
			if c.status() != 200 {
				t.Fatal("no answer over a new connection")
			}
		}
		for _, c := range busy {
			c.hears(": beat")
		}
	})
}

// hears reads on until there is a line that begins so.
func (c *client) hears(line string) {
	c.t.Helper()
	for {
		text, err := c.r.ReadString('\n')
		if err != nil {
			c.t.Fatal(err)
		}
		if strings.HasPrefix(text, line) {
			return
		}
	}
}

// A connection whose client does not take its answers makes way for others, and so does one whose answer takes long.
func TestConnectionsWithSlowAnswersMakeWay(t *testing.T) {
	for name, reads := range map[string]bool{"not taken": false, "not ready": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun, end := make(chan struct{}), make(chan struct{})
				o := options()
				o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					begun <- struct{}{}
					if reads {
						<-end
					}
					_, _ = io.WriteString(w, strings.Repeat("a metric 1\n", 10000))
				})
				ln, stop := overPipes(t, o)
				defer stop()
				defer close(end)
				for range maxConnections {
					ln.connect(t).send("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
					<-begun
				}
				synctest.Wait()
				for range 2 {
					c := ln.connect(t)
					c.send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
					if c.status() != 200 {
						t.Error("no answer over a new connection")
					}
				}
			})
		})
	}
}
