package forward

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jetsidecar/jetsidecar/policy"
)

// turns lets one request go at a time, so long apart.
type turns struct {
	apart time.Duration
	mu    sync.Mutex
	last  time.Time
	asked atomic.Int32
}

func (s *turns) wait(ctx context.Context) error {
	s.asked.Add(1)
	s.mu.Lock()
	at := s.last.Add(s.apart)
	if now := time.Now(); at.Before(now) {
		at = now
	}
	s.last = at
	s.mu.Unlock()
	if !sleep(ctx, time.Until(at)) {
		return ctx.Err()
	}
	return nil
}

// accepting makes of a handler, as raw does, what serves it on a connection.
type accepting func(handle func(*http.Request, io.Writer) bool) func(net.Conn)

// ways are the ways to an app in a bubble, and how it accepts connections of each.
func ways(t *testing.T) map[string]func(*setup) accepting {
	s := httptest.NewUnstartedServer(nil)
	s.Config.ErrorLog = quiet
	s.StartTLS()
	s.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	_ = os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600)
	return map[string]func(*setup) accepting{
		"http1": func(*setup) accepting { return raw },
		"https": func(st *setup) accepting {
			st.config.URL, st.config.CAFile = "https://example.com", file
			return func(handle func(*http.Request, io.Writer) bool) func(net.Conn) {
				return func(nc net.Conn) {
					secured := tls.Server(nc, &tls.Config{Certificates: s.TLS.Certificates})
					defer secured.Close()
					raw(handle)(secured)
				}
			}
		},
		"h2c": func(st *setup) accepting {
			st.config.Protocol = "h2c"
			return func(handle func(*http.Request, io.Writer) bool) func(net.Conn) {
				return serveH2(func(_ http.ResponseWriter, r *http.Request) { handle(r, io.Discard) })
			}
		},
	}
}

// serveH2 serves HTTP/2 on a connection.
func serveH2(handle http.HandlerFunc) func(net.Conn) {
	return func(nc net.Conn) {
		l := &oneConn{nc: make(chan net.Conn, 1), done: make(chan struct{})}
		l.nc <- nc
		s := &http.Server{Handler: handle, Protocols: new(http.Protocols), ErrorLog: quiet}
		s.Protocols.SetUnencryptedHTTP2(true)
		s.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				_ = l.Close()
			}
		}
		_ = s.Serve(l)
	}
}

// oneConn is a listener that has one connection.
type oneConn struct {
	nc   chan net.Conn
	once sync.Once
	done chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case nc := <-l.nc:
		return nc, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// Those that waited for the app are not sent at once when it is back, whether connections are refused, or hang until then: each has
// another turn, without a connection, and is sent with that one.
func TestTurnsAfterTheAppWasAway(t *testing.T) {
	for name, way := range ways(t) {
		for _, hangs := range []bool{false, true} {
			t.Run(name+map[bool]string{false: " refused", true: " hanging"}[hangs], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n, s := &network{}, &turns{apart: 2 * time.Second}
					var accepts accepting
					c := newClient(t, n, func(st *setup) { accepts = way(st) })
					back := make(chan struct{})
					if hangs {
						n.dialed = func(ctx context.Context) (net.Conn, bool, error) {
							select {
							case <-back:
								return nil, false, nil
							case <-ctx.Done():
								return nil, true, ctx.Err()
							}
						}
					}
					tg := target(t, c, "POST")
					var results []<-chan Result
					for range 8 {
						m := message("x")
						m.Turn = s.wait
						results = append(results, start(t.Context(), c, tg, m))
					}
					time.Sleep(4 * time.Second)
					synctest.Wait()
					var mu sync.Mutex
					var at []time.Time
					n.set(accepts(func(_ *http.Request, w io.Writer) bool {
						mu.Lock()
						at = append(at, time.Now())
						mu.Unlock()
						_, _ = io.WriteString(w, ok)
						return true
					}))
					close(back)
					for _, done := range results {
						if r := <-done; r.Kind != policy.Answered || r.Status != 200 || !r.Sent || r.Duration > time.Second {
							t.Errorf("%+v", r)
						}
					}
					if len(at) != 8 {
						t.Fatalf("%d requests", len(at))
					}
					for i := 1; i < len(at); i++ {
						if d := at[i].Sub(at[i-1]); d < 2*time.Second-turnLasts {
							t.Errorf("request %d came %s after the one before", i, d)
						}
					}
				})
			})
		}
	}
}

// Who waits for another turn holds no connection, and goes at once when it is to stop.
func TestWaitingForATurn(t *testing.T) {
	for name, way := range ways(t) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &network{}
				var requests, connected atomic.Int32
				var accepts accepting
				c := newClient(t, n, func(st *setup) { accepts = way(st) })
				serve := accepts(func(*http.Request, io.Writer) bool { requests.Add(1); return false })
				n.accept = func(nc net.Conn) {
					connected.Add(1)
					serve(nc)
					connected.Add(-1)
				}
				n.dialed = func(context.Context) (net.Conn, bool, error) {
					time.Sleep(turnLasts + time.Millisecond)
					return nil, false, nil
				}
				m, s := message("x"), &turns{apart: time.Hour}
				s.last = time.Now()
				m.Turn = s.wait
				ctx, cancel := context.WithCancel(t.Context())
				done := start(ctx, c, target(t, c, "POST"), m)
				time.Sleep(2*keepIdle + turnLasts)
				synctest.Wait()
				if s.asked.Load() != 1 || n.dialCount() != 1 || connected.Load() != 0 {
					t.Errorf("asked %d times for a turn, %d connections made, %d open", s.asked.Load(), n.dialCount(), connected.Load())
				}
				began := time.Now()
				cancel()
				if r := <-done; r.Kind != policy.HandedBack || r.Sent || requests.Load() != 0 || time.Since(began) != 0 {
					t.Errorf("%+v after %s, %d requests", r, time.Since(began), requests.Load())
				}
			})
		})
	}
}

// An app to which every connection takes long gets its requests all the same.
func TestTurnWithSlowConnections(t *testing.T) {
	for name, way := range ways(t) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &network{}
				var accepts accepting
				c := newClient(t, n, func(st *setup) { accepts = way(st) })
				var requests atomic.Int32
				n.accept = accepts(func(_ *http.Request, w io.Writer) bool {
					requests.Add(1)
					_, _ = io.WriteString(w, ok)
					return true
				})
				n.dialed = func(context.Context) (net.Conn, bool, error) {
					time.Sleep(3 * time.Second)
					return nil, false, nil
				}
				m, s := message("x"), &turns{apart: 10 * time.Second}
				s.last = time.Now()
				m.Turn = s.wait
				if r := c.Forward(t.Context(), target(t, c, "POST"), m); r.Kind != policy.Answered || requests.Load() != 1 || s.asked.Load() > 5 {
					t.Errorf("%+v, %d requests, asked %d times for a turn", r, requests.Load(), s.asked.Load())
				}
			})
		})
	}
}

// Where there is no other turn, nothing is sent. With a connection at once none is asked for.
func TestTurnedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{accept: always(ok)}
		c := newClient(t, n)
		m, asked := message("x"), 0
		m.Turn = func(context.Context) error { asked++; return errors.New("no turn") }
		if r := c.Forward(t.Context(), target(t, c, "POST"), m); r.Kind != policy.Answered || asked != 0 {
			t.Errorf("%+v, asked %d times", r, asked)
		}
		n.set(nil)
		time.Sleep(2 * keepIdle)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if r := c.Forward(ctx, target(t, c, "POST"), m); r.Kind != policy.HandedBack || r.Sent || asked != 1 {
			t.Errorf("%+v, asked %d times", r, asked)
		}
	})
}
