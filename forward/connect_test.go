package forward

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jetsidecar/jetsidecar/policy"
)

// What is no connection is no attempt: it is tried again, at most 2 s apart, until there is one.
func TestRefusedThenUp(t *testing.T) {
	for name, fault := range map[string]error{
		"refused":    nil,
		"no address": &net.DNSError{Err: "no such host", Name: "app", IsNotFound: true},
		"timeout":    context.DeadlineExceeded,
		"no socket":  os.ErrNotExist,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &network{}
				if fault != nil {
					n.dialed = func(context.Context) (net.Conn, bool, error) { return nil, time.Since(stamp) < time.Minute, fault }
				}
				stamp = time.Now()
				c := newClient(t, n)
				m := message("x")
				var told []bool
				m.Sending = func(now bool) { told = append(told, now) }
				done := start(t.Context(), c, target(t, c, "POST"), m)
				time.Sleep(time.Minute)
				synctest.Wait()
				if c.Up() || c.LastError() == nil {
					t.Errorf("up %v, error %v", c.Up(), c.LastError())
				}
				var requests atomic.Int32
				n.set(raw(func(_ *http.Request, w io.Writer) bool {
					requests.Add(1)
					_, _ = io.WriteString(w, ok)
					return true
				}))
				back := time.Now()
				r := <-done
				if r.Kind != policy.Answered || r.Status != 200 || !r.Sent || requests.Load() != 1 {
					t.Errorf("%+v, %d requests", r, requests.Load())
				}
				if !slices.Equal(told, []bool{true}) {
					t.Errorf("told %v", told)
				}
				if time.Since(back) > 2*time.Second {
					t.Errorf("noticed after %v", time.Since(back))
				}
				if !c.Up() || c.LastError() != nil {
					t.Errorf("up %v, error %v", c.Up(), c.LastError())
				}
				for i := 1; i < len(n.dials); i++ {
					if gap := n.dials[i].Sub(n.dials[i-1]); gap < 12*time.Millisecond || gap > 2*time.Second {
						t.Errorf("tries %v apart", gap)
					}
				}
			})
		})
	}
}

var stamp time.Time

func TestReconnectDelay(t *testing.T) {
	for tries := range 2000 {
		for _, random := range []float64{0, 0.5, 0.999999} {
			d := reconnectDelay(25*time.Millisecond, 2*time.Second, tries, random)
			if d < 12*time.Millisecond || d > 2*time.Second || tries > 7 && d < time.Second {
				t.Errorf("try %d: %v", tries, d)
			}
		}
	}
}

func TestUnixSocketAppears(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.sock")
	for _, protocol := range []string{"http1", "h2c"} {
		t.Run(protocol, func(t *testing.T) {
			down := make(chan struct{})
			var once sync.Once
			c := newClient(t, nil, func(s *setup) {
				s.config.URL, s.config.Protocol = "unix://"+path, protocol
				s.options.OnAppChange = func(up bool, err error) {
					if !up && errors.Is(err, os.ErrNotExist) {
						once.Do(func() { close(down) })
					}
				}
			})
			done := start(t.Context(), c, target(t, c, "POST"), message("x"))
			<-down
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			var host, proto string
			serve(t, l, protocol, func(_ http.ResponseWriter, r *http.Request) { host, proto = r.Host, r.Proto })
			if r := <-done; r.Status != 200 || host != "localhost" {
				t.Errorf("%+v, host %q, %s", r, host, proto)
			}
		})
	}
}

// serve runs a real server on a listener until the test ends.
func serve(t testing.TB, l net.Listener, protocol string, handler http.HandlerFunc) *http.Server {
	t.Helper()
	s := &http.Server{Handler: handler, Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(protocol != "h2c")
	s.Protocols.SetUnencryptedHTTP2(protocol == "h2c")
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { _ = s.Close(); wg.Wait() })
	return s
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestTLS(t *testing.T) {
	var requests atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	s.Config.ErrorLog = quiet
	s.StartTLS()
	defer s.Close()

	t.Run("unknown authority", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var seen error
		c := newClient(t, nil, func(st *setup) {
			st.config.URL = s.URL
			st.options.OnAppChange = func(up bool, err error) { seen = err; cancel() }
		})
		r := c.Forward(ctx, target(t, c, "POST"), message("x"))
		if r.Kind != policy.HandedBack || r.Sent || requests.Load() != 0 || seen == nil {
			t.Errorf("%+v, error %v", r, seen)
		}
	})
	t.Run("looked at", func(t *testing.T) {
		var told changes
		c := newClient(t, nil, func(st *setup) { st.config.URL, st.options.OnAppChange = s.URL, told.add })
		for range 3 {
			if err := c.Probe(t.Context()); err == nil || c.Up() {
				t.Errorf("up %v, %v", c.Up(), err)
			}
		}
		told.expect(t, "down")
	})
	t.Run("known authority", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "ca.pem")
		_ = os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600)
		c := newClient(t, nil, func(st *setup) { st.config.URL, st.config.CAFile = s.URL, file })
		if err := c.Probe(t.Context()); err != nil || !c.Up() {
			t.Errorf("up %v, %v", c.Up(), err)
		}
		tg := target(t, c, "POST")
		for range 3 {
			if r := c.Forward(t.Context(), tg, message("x")); r.Status != 200 {
				t.Errorf("%+v", r)
			}
		}
	})
}

// notConnected sends a message over a network that takes 5 s for no connection.
func notConnected(t *testing.T, n *network, c *Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := start(ctx, c, target(t, c, "POST"), message("x"))
	time.Sleep(29 * time.Second)
	synctest.Wait()
	if got := n.dialCount(); got < 4 || got > 6 {
		t.Errorf("%d connections in 29 s", got)
	}
	cancel()
	if r := <-done; r.Kind != policy.HandedBack || r.Sent {
		t.Errorf("%+v", r)
	}
}

// A handshake has 5 s, whatever the app's timeout, and none of it is an attempt.
func TestHandshakeHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{accept: hang}
		c := newClient(t, n, func(s *setup) { s.config.URL, s.config.Timeout = "https://app", time.Second })
		notConnected(t, n, c)
	})
}

// The time that a connection may take is not the app's: one that is slow to be had is had all the same.
func TestProbeOfASlowNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{accept: hang, dialed: func(context.Context) (net.Conn, bool, error) {
			time.Sleep(2 * time.Second)
			return nil, false, nil
		}}
		c := newClient(t, n, func(s *setup) { s.config.Timeout = time.Second })
		if err := c.Probe(t.Context()); err != nil || !c.Up() {
			t.Error(err)
		}
	})
}

func TestConnectHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{dialed: func(ctx context.Context) (net.Conn, bool, error) {
			<-ctx.Done()
			return nil, true, ctx.Err()
		}}
		c := newClient(t, n, func(s *setup) { s.config.Timeout = time.Second })
		notConnected(t, n, c)
	})
}

// At most as many connections as requests in flight.
func TestConnectionsAreBounded(t *testing.T) {
	const workers, requests = 16, 1000
	for _, c := range []struct {
		name, protocol string
		streams        int
	}{{"http1", "http1", 0}, {"h2c", "h2c", 250}, {"h2c, few streams", "h2c", 3}, {"h2c, one stream", "h2c", 1}} {
		t.Run(c.name, func(t *testing.T) {
			l := listen(t)
			var served, open, most, total atomic.Int32
			s := &http.Server{
				Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					served.Add(1)
					if wantMajor := map[string]int{"http1": 1, "h2c": 2}[c.protocol]; r.ProtoMajor != wantMajor {
						t.Errorf("protocol %s", r.Proto)
					}
					_, _ = io.Copy(io.Discard, r.Body)
					w.WriteHeader([]int{200, 404, 500}[served.Load()%3])
					_, _ = io.WriteString(w, "some text")
				}),
				Protocols: new(http.Protocols),
				HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: c.streams},
			}
			s.Protocols.SetHTTP1(c.protocol == "http1")
			s.Protocols.SetUnencryptedHTTP2(c.protocol == "h2c")
			var serving sync.WaitGroup
			serving.Go(func() { _ = s.Serve(l) })
			defer serving.Wait()
			defer s.Close()

			client := newClient(t, nil, func(s *setup) {
				s.config.URL, s.config.Protocol = "http://"+l.Addr().String(), c.protocol
				s.options.Connections = workers
			})
			client.dialer.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				nc, err := new(net.Dialer).DialContext(ctx, network, address)
				if err != nil {
					return nil, err
				}
				total.Add(1)
				now := open.Add(1)
				for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
				}
				return closing{nc, sync.OnceFunc(func() { open.Add(-1) })}, nil
			}
			tg := target(t, client, "POST")
			var wg sync.WaitGroup
			var next atomic.Int32
			for range workers {
				wg.Go(func() {
					for next.Add(1) <= requests {
						if r := client.Forward(t.Context(), tg, message("body")); r.Kind != policy.Answered || string(r.Response) != "some text" {
							t.Errorf("%+v", r)
						}
					}
				})
			}
			wg.Wait()
			if most.Load() > workers || served.Load() != requests {
				t.Errorf("%d connections at once, %d requests", most.Load(), served.Load())
			}
			t.Logf("%d connections at once, %d in all", most.Load(), total.Load())
		})
	}
}

// A connection over the bound waits for another to be closed, and asks for it.
func TestBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{accept: hang}
		defer n.wg.Wait()
		var first net.Conn
		asked := 0
		b := &bounded{dialer: &dialer{dial: n.dial}, slots: make(chan struct{}, 1), closeIdle: func() {
			if asked++; asked == 5 {
				_ = first.Close()
				_ = first.Close()
			}
		}}
		first, err := b.dialContext(t.Context(), "tcp", "app:80")
		if err != nil {
			t.Fatal(err)
		}
		second, err := b.dialContext(t.Context(), "tcp", "app:80")
		if err != nil || asked != 5 || len(b.slots) != 1 {
			t.Fatalf("%v, asked %d times, %d slots taken", err, asked, len(b.slots))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := b.dialContext(ctx, "tcp", "app:80"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("over the bound: %v", err)
		}
		_ = second.Close()
		n.set(nil)
		if _, err := b.dialContext(t.Context(), "tcp", "app:80"); err == nil || len(b.slots) != 0 {
			t.Errorf("refused: %v, %d slots taken", err, len(b.slots))
		}
	})
}

// closing tells when a connection is closed.
type closing struct {
	net.Conn
	closed func()
}

func (c closing) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

// SyscallConn makes it a socket still.
func (c closing) SyscallConn() (syscall.RawConn, error) { return c.Conn.(syscall.Conn).SyscallConn() }

// An answer's body is read, whatever its status, so that the connection is used again.
func TestConnectionIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{accept: always("HTTP/1.1 503 Busy\r\nContent-Length: 5\r\n\r\nbusy!")}
		c := newClient(t, n)
		tg := target(t, c, "POST")
		for range 100 {
			if r := c.Forward(t.Context(), tg, message("x")); r.Status != 503 || string(r.Response) != "busy!" {
				t.Fatalf("%+v", r)
			}
		}
		if n.dialCount() != 1 {
			t.Errorf("%d connections", n.dialCount())
		}
		time.Sleep(999 * time.Millisecond)
		c.Forward(t.Context(), tg, message("x"))
		if n.dialCount() != 1 {
			t.Error("the idle connection was closed early")
		}
		time.Sleep(1001 * time.Millisecond)
		synctest.Wait()
		c.Forward(t.Context(), tg, message("x"))
		if n.dialCount() != 2 {
			t.Error("the idle connection was not closed")
		}
	})
}

// One request that cannot connect does not cost the others their idle connections.
func TestFailureKeepsIdleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{accept: always(ok)}
		c := newClient(t, n)
		tg := target(t, c, "POST")
		c.Forward(t.Context(), tg, message("x"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c.Forward(ctx, tg, message("x"))
		c.Forward(t.Context(), tg, message("x"))
		if n.dialCount() != 1 {
			t.Errorf("%d connections", n.dialCount())
		}
	})
}
