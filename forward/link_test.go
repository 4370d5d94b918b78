//go:build unix

package forward

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jetsidecar/jetsidecar/policy"
)

// sockets runs an app on a real listener until the test ends, a goroutine for each connection.
type sockets struct {
	net.Listener
	accepted atomic.Int32
	wg       sync.WaitGroup
}

func serveSockets(t testing.TB, accept func(net.Conn)) *sockets {
	s := &sockets{Listener: listen(t)}
	s.wg.Go(func() {
		for {
			nc, err := s.Accept()
			if err != nil {
				return
			}
			s.accepted.Add(1)
			s.wg.Go(func() {
				defer nc.Close()
				accept(nc)
			})
		}
	})
	t.Cleanup(func() { _ = s.Close(); s.wg.Wait() })
	return s
}

func (s *sockets) client(t testing.TB, change ...func(*setup)) *Client {
	return newClient(t, nil, append([]func(*setup){func(st *setup) { st.config.URL = "http://" + s.Addr().String() }}, change...)...)
}

// keepIdleLinks keeps idle connections for as long as the test takes, on however slow a machine.
func keepIdleLinks(c *Client) { c.links.armed = true }

// until waits for a condition.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// closedByApp reports whether the newest idle connection can be seen to be closed by the app.
func closedByApp(c *Client) (closed bool) {
	c.links.mu.Lock()
	defer c.links.mu.Unlock()
	l := c.links.idle[len(c.links.idle)-1]
	_ = l.raw.Control(func(fd uintptr) {
		n, err := peek(int(fd))
		closed = n == 0 && !errors.Is(err, syscall.EAGAIN)
	})
	return closed
}

// An app that closes its connections right after an answer, without saying so, costs no attempt once that has arrived. It is
// noticed at the first, and then no connection is kept for a while.
func TestClosedAfterAnswerCostsNoAttempt(t *testing.T) {
	var requests atomic.Int32
	s := serveSockets(t, raw(func(_ *http.Request, w io.Writer) bool {
		requests.Add(1)
		_, _ = io.WriteString(w, ok)
		return false
	}))
	c := s.client(t)
	keepIdleLinks(c)
	tg := target(t, c, "POST")
	forward := func(want ...bool) {
		t.Helper()
		var told []bool
		m := message("x")
		m.Sending = func(now bool) { told = append(told, now) }
		if r := c.Forward(t.Context(), tg, m); r.Kind != policy.Answered || r.Status != 200 || !slices.Equal(told, want) {
			t.Fatalf("request %d: %+v, told %v", requests.Load(), r, told)
		}
	}
	for range 50 {
		forward(true)
		until(t, "the connection is not closed", func() bool { return closedByApp(c) })
		forward(true, false, true)
		for range 3 {
			forward(true)
			if len(c.links.idle) != 0 {
				t.Fatal("a connection is kept")
			}
		}
		c.links.trusted = time.Time{} // the while is over
	}
	if requests.Load() != 250 || s.accepted.Load() != 250 {
		t.Errorf("%d requests over %d connections", requests.Load(), s.accepted.Load())
	}
}

// A connection that was closed after several answers, or by a restart, says nothing of others.
func TestClosedLaterIsTrusted(t *testing.T) {
	s := serveSockets(t, func(nc net.Conn) {
		r := bufio.NewReader(nc)
		for range 3 {
			if !readRequest(r) {
				return
			}
			_, _ = io.WriteString(nc, ok)
		}
	})
	c := s.client(t)
	keepIdleLinks(c)
	tg := target(t, c, "POST")
	for range 20 {
		for range 3 {
			if r := c.Forward(t.Context(), tg, message("x")); r.Status != 200 {
				t.Fatalf("%+v", r)
			}
		}
		until(t, "the connection is not closed", func() bool { return closedByApp(c) })
	}
	if n := s.accepted.Load(); n != 20 {
		t.Errorf("%d connections", n)
	}
}

// What comes over an idle connection belongs to no request: the connection is not used again.
func TestStrayBytes(t *testing.T) {
	now, said := make(chan struct{}), make(chan struct{}, 100)
	s := serveSockets(t, raw(func(_ *http.Request, w io.Writer) bool {
		_, _ = io.WriteString(w, "HTTP/1.1 201 Mine\r\nContent-Length: 0\r\n\r\n")
		select {
		case <-now:
		case <-t.Context().Done():
		}
		_, err := io.WriteString(w, "HTTP/1.1 400 Not Yours\r\nContent-Length: 0\r\n\r\n")
		said <- struct{}{}
		return err == nil
	}))
	c := s.client(t)
	keepIdleLinks(c)
	tg := target(t, c, "POST")
	for i := range 20 {
		if r := c.Forward(t.Context(), tg, message("x")); r.Status != 201 {
			t.Fatalf("request %d: %+v", i, r)
		}
		now <- struct{}{}
		<-said
	}
	if n := s.accepted.Load(); n != 20 {
		t.Errorf("%d connections", n)
	}
}

// An app that speaks first speaks no HTTP, and that is what the attempt comes to.
func TestAppSpeaksFirst(t *testing.T) {
	s := serveSockets(t, func(nc net.Conn) { _, _ = io.WriteString(nc, "220 mail ESMTP\r\n"); hang(nc) })
	c := s.client(t)
	c.dialer.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil {
			l := newLink(nc)
			until(t, "nothing came", func() (came bool) {
				_ = l.raw.Control(func(fd uintptr) { n, _ := peek(int(fd)); came = n > 0 })
				return came
			})
		}
		return nc, err
	}
	if r := c.Forward(t.Context(), target(t, c, "POST"), message("x")); r.Kind != policy.NoAnswer || !r.Sent || !strings.Contains(r.Error, "mail") {
		t.Errorf("%+v", r)
	}
}

// An answer that comes before a large request was read is an answer, and the rest of the request is not waited for.
func TestEarlyAnswerOverSockets(t *testing.T) {
	for _, size := range []int{1 << 20, 32 << 20} {
		answered := make(chan struct{})
		s := serveSockets(t, func(nc net.Conn) {
			_, _ = nc.Read(make([]byte, 100)) // and no more
			_, _ = io.WriteString(nc, "HTTP/1.1 413 Large\r\nContent-Length: 3\r\n\r\nbig")
			<-answered
		})
		c := s.client(t)
		r := c.Forward(t.Context(), target(t, c, "POST"), message(strings.Repeat("x", size)))
		if r.Kind != policy.Answered || r.Status != 413 || string(r.Response) != "big" || !r.Sent {
			t.Errorf("%d bytes: %+v", size, r)
		}
		if size > 16<<20 && len(c.links.idle) != 0 { // the other may fit into the sockets' buffers
			t.Error("a connection is kept on which a request is not whole")
		}
		close(answered)
	}
}

// Bodies of every size arrive whole.
func TestBodiesOverSockets(t *testing.T) {
	var last atomic.Pointer[[]byte]
	s := serveSockets(t, func(nc net.Conn) {
		r := bufio.NewReader(nc)
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			body, err := io.ReadAll(req.Body)
			if err != nil || req.ContentLength != int64(len(body)) {
				return
			}
			last.Store(&body)
			_, _ = io.WriteString(nc, ok)
		}
	})
	c := s.client(t)
	keepIdleLinks(c)
	tg := target(t, c, "POST")
	for _, size := range []int{0, 1, inlineBytes - 1, inlineBytes, inlineBytes + 1, 1 << 20, 5, 20 << 20, 0} {
		body := make([]byte, size)
		for i := range body {
			body[i] = byte(i * 7 >> 3)
		}
		m := message("")
		m.Body = body
		if r := c.Forward(t.Context(), tg, m); r.Status != 200 || !bytes.Equal(*last.Load(), body) {
			t.Fatalf("%d bytes: %+v, %d arrived", size, r, len(*last.Load()))
		}
	}
	// A connection is given up if the goroutine that writes a large body is slow to see that it is done.
	if n := s.accepted.Load(); n > 4 {
		t.Errorf("%d connections", n)
	}
}

// An app that does not answer, or takes no more of the request, has its time and no more.
func TestTimeoutOverSockets(t *testing.T) {
	stuck := make(chan struct{})
	var wg sync.WaitGroup
	for name, accept := range map[string]func(net.Conn){
		"nothing is read": func(net.Conn) { <-stuck },
		"no answer":       hang,
		"answer starts":   raw(func(_ *http.Request, w io.Writer) bool { _, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\n"); return true }),
		"body is missing": raw(func(_ *http.Request, w io.Writer) bool {
			_, _ = io.WriteString(w, head+"Content-Length: 9\r\n\r\nx")
			return true
		}),
	} {
		for _, size := range []int{1, 32 << 20} {
			s := serveSockets(t, accept)
			c := s.client(t, func(s *setup) { s.config.Timeout = 3 * time.Second })
			tg := target(t, c, "POST")
			wg.Go(func() {
				r := c.Forward(t.Context(), tg, message(strings.Repeat("x", size)))
				if r.Kind != policy.NoAnswer || r.Error != "no answer within 3s" || r.Duration < 3*time.Second || !r.Sent {
					t.Errorf("%s, %d bytes: %+v", name, size, r)
				}
			})
		}
	}
	wg.Wait()
	close(stuck)
}

// A cancel ends every wait at once, on real sockets too.
func TestCancelOverSockets(t *testing.T) {
	for name, answer := range map[string]string{"waiting": "", "reading the header": "HTTP/1.1 200 OK\r\n", "reading the body": head + "Content-Length: 9\r\n\r\nx"} {
		for _, size := range []int{1, 32 << 20} {
			for _, before := range []int{0, 1} { // requests over the same connection
				reached := make(chan struct{}, 1)
				stuck := make(chan struct{})
				s := serveSockets(t, func(nc net.Conn) {
					for r := bufio.NewReader(nc); ; {
						req, err := http.ReadRequest(r)
						if err != nil {
							return
						}
						if req.Header.Get("Nats-Subject") == "last" {
							_, _ = io.WriteString(nc, answer)
							reached <- struct{}{}
							<-stuck
							return
						}
						_, _ = io.Copy(io.Discard, req.Body)
						_, _ = io.WriteString(nc, ok)
					}
				})
				c := s.client(t)
				tg := target(t, c, "POST")
				ctx, cancel := context.WithCancel(t.Context())
				for range before {
					c.Forward(ctx, tg, message("x"))
				}
				m := message(strings.Repeat("x", size))
				m.Subject = "last"
				done := start(ctx, c, tg, m)
				<-reached
				cancel()
				if r := <-done; r.Kind != policy.HandedBack || !r.Sent {
					t.Errorf("%s, %d bytes, %d before: %+v", name, size, before, r)
				}
				close(stuck)
			}
		}
	}
}

// The cancel of one request never touches another that uses the connection later.
func TestCancelTouchesNoOther(t *testing.T) {
	s := serveSockets(t, always(ok))
	c := s.client(t, func(s *setup) { s.options.Connections = 2 })
	tg := target(t, c, "POST")
	var wg sync.WaitGroup
	for seed := range uint64(4) {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(seed, 0))
			for range 500 {
				ctx, cancel := context.WithCancel(t.Context())
				spin := random.IntN(200)
				wg.Go(func() {
					for range spin {
						runtime.Gosched()
					}
					cancel()
				})
				if r := c.Forward(ctx, tg, message("x")); r.Kind != policy.HandedBack && r.Status != 200 {
					t.Errorf("cancelled: %+v", r)
				}
				if r := c.Forward(t.Context(), tg, message("x")); r.Status != 200 {
					t.Errorf("not cancelled: %+v", r)
				}
			}
		})
	}
	wg.Wait()
	if p := c.links; p.open != len(p.idle) || p.open > 2 || len(p.waiting) != 0 {
		t.Errorf("%d connections, %d idle, %d wait for one", p.open, len(p.idle), len(p.waiting))
	}
}

// A context's end interrupts the request that came with it, and no other; one that ended while the connection was idle
// interrupts the next that comes with it.
func TestInterrupt(t *testing.T) {
	ours, theirs := socketPair(t)
	defer theirs.Close()
	l := newLink(ours)
	defer l.close()
	l.until = time.Now().Add(time.Hour)
	first, cancel := context.WithCancel(t.Context())
	second, cancelSecond := context.WithCancel(t.Context())
	defer cancelSecond()

	l.watch(first)
	l.active = nil // the request ended
	l.interrupt(first.Done())
	l.watch(second)
	l.interrupt(first.Done())
	if l.interrupted {
		t.Error("by another's end")
	}
	l.watch(first)
	l.active = nil
	cancel()
	l.watch(first)
	if !l.interrupted {
		t.Error("not by its own")
	}
	l.limit = 1
	if n, err := l.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d, %v", n, err)
	}
}

// A deadline set for an earlier request ends no later one.
func TestOldDeadline(t *testing.T) {
	s := serveSockets(t, always(ok))
	c := s.client(t)
	keepIdleLinks(c)
	tg := target(t, c, "POST")
	for range 5 {
		if r := c.Forward(t.Context(), tg, message("x")); r.Status != 200 {
			t.Errorf("%+v", r)
		}
		_ = c.links.idle[0].nc.SetReadDeadline(past)
	}
	if n := s.accepted.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// Each request has its whole time, whenever the connection was made.
func TestTimeOfEachRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		served := 0
		n := &network{accept: raw(func(_ *http.Request, w io.Writer) bool {
			if served++; served == 6 {
				return true
			}
			time.Sleep(29 * time.Second)
			_, _ = io.WriteString(w, ok)
			return true
		})}
		c := newClient(t, n)
		tg := target(t, c, "POST")
		for range 5 {
			if r := c.Forward(t.Context(), tg, message("x")); r.Status != 200 || r.Duration != 29*time.Second {
				t.Errorf("%+v", r)
			}
		}
		if r := c.Forward(t.Context(), tg, message("x")); r.Kind != policy.NoAnswer || r.Duration != 30*time.Second || n.dialCount() != 1 {
			t.Errorf("%+v over %d connections", r, n.dialCount())
		}
	})
}
