package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jetsidecar/jetsidecar/policy"
)

var quiet = log.New(io.Discard, "", 0)

// An attempt is one request: what the app may have seen is never sent again, whatever the method, body and headers, on a
// connection that is new or was used before.
func TestNothingIsSentTwice(t *testing.T) {
	headers := map[string][]string{"X-Idempotency-Key": {"a"}, "x-idempotency-key": {"b"}, "Idempotency-Key": {"c"}, "Nats-Msg-Id": {"d"}}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "GET", "HEAD", "OPTIONS", "TRACE", "REPORT"} {
		for _, body := range []string{"", "body", strings.Repeat("b", 100_000)} {
			for _, used := range []bool{false, true} {
				for _, partial := range []string{"", "HTTP/1.1 20"} {
					synctest.Test(t, func(t *testing.T) {
						var requests atomic.Int32
						n := &network{accept: raw(func(_ *http.Request, w io.Writer) bool {
							if requests.Add(1) == 1 && used {
								_, _ = io.WriteString(w, ok)
								return true
							}
							_, _ = io.WriteString(w, partial)
							return false
						})}
						c := newClient(t, n, func(s *setup) { s.config.Headers = map[string]string{"X-Fixed": "1"} })
						tg := target(t, c, method)
						want := int32(1)
						if used {
							c.Forward(t.Context(), tg, message(""))
							want++
						}
						m := message(body)
						m.Header = headers
						r := c.Forward(t.Context(), tg, m)
						if r.Kind != policy.NoAnswer || !r.Sent || r.Error == "" || requests.Load() != want {
							t.Errorf("%s, %d bytes, used %v: %+v, %d requests", method, len(body), used, r, requests.Load())
						}
					})
				}
			}
		}
	}
}

// A redirect is a status.
func TestRedirectsAreNotFollowed(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, location := range []string{"/other", "http://app:8080/", "http://[::1/%zz", ""} {
			synctest.Test(t, func(t *testing.T) {
				var requests atomic.Int32
				n := &network{accept: raw(func(_ *http.Request, w io.Writer) bool {
					requests.Add(1)
					fmt.Fprintf(w, "HTTP/1.1 %d Go\r\nLocation: %s\r\nContent-Length: 2\r\n\r\nhi", status, location)
					return true
				})}
				c := newClient(t, n)
				r := c.Forward(t.Context(), target(t, c, "POST"), message("x"))
				if r.Kind != policy.Answered || r.Status != status || string(r.Response) != "hi" || requests.Load() != 1 {
					t.Errorf("%+v, %d requests", r, requests.Load())
				}
			})
		}
	}
}

// What a try that failed comes to.
func TestFail(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		x       *exchange
		h2      bool
		expired bool
		want    policy.Kind // 0: tried again
	}{
		"stopped":                        {&exchange{Context: gone, asked: true, had: true, result: Result{Sent: true}}, false, true, policy.HandedBack},
		"rejected by net/http":           {&exchange{Context: t.Context()}, false, false, policy.Undeliverable},
		"no connection":                  {&exchange{Context: t.Context(), asked: true}, false, false, 0},
		"nothing sent":                   {&exchange{Context: t.Context(), asked: true, had: true}, false, false, 0},
		"sent":                           {&exchange{Context: t.Context(), asked: true, had: true, result: Result{Sent: true}}, false, false, policy.NoAnswer},
		"late":                           {&exchange{Context: t.Context(), asked: true, had: true, result: Result{Sent: true}}, false, true, policy.NoAnswer},
		"late, sending":                  {&exchange{Context: t.Context(), asked: true, had: true}, false, true, policy.NoAnswer},
		"late over HTTP/2":               {&exchange{Context: t.Context(), asked: true, had: true, result: Result{Sent: true}}, true, true, policy.NoAnswer},
		"late over HTTP/2, nothing sent": {&exchange{Context: t.Context(), asked: true, had: true}, true, true, 0},
	} {
		x := c.x
		x.client = &Client{h2: c.h2, app: newApp(false, nil), late: "late"}
		x.expired.Store(c.expired)
		x.fail(errors.New("no\nluck"))
		if x.result.Kind != c.want || x.again != (c.want == 0) || !validValue(x.result.Error) {
			t.Errorf("%s: %+v, again %v", name, x.result, x.again)
		}
	}
}

// A server that resets the connection after the request, on real sockets.
func TestNothingIsSentTwiceOverTCP(t *testing.T) {
	l := listen(t)
	var requests atomic.Int32
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			handled := 0
			raw(func(_ *http.Request, w io.Writer) bool {
				requests.Add(1)
				if handled++; handled == 1 {
					_, _ = io.WriteString(w, ok)
					return true
				}
				_ = nc.(*net.TCPConn).SetLinger(0)
				return false
			})(nc)
			_ = nc.Close()
		}
	}()
	c := newClient(t, nil, func(s *setup) { s.config.URL = "http://" + l.Addr().String() })
	keepIdleLinks(c)
	tg := target(t, c, "POST")
	kinds := map[policy.Kind]int{}
	for i := range 200 {
		kinds[c.Forward(t.Context(), tg, message(strings.Repeat("x", i%2))).Kind]++
	}
	_ = l.Close()
	<-accepted
	if requests.Load() != 200 || kinds[policy.Answered] != 100 || kinds[policy.NoAnswer] != 100 {
		t.Errorf("%d requests, kinds %v", requests.Load(), kinds)
	}
}

// An idle connection that the server closed costs no attempt.
func TestServerClosesIdleConnection(t *testing.T) {
	for _, method := range []string{"POST", "GET"} {
		for _, body := range []string{"", "body"} {
			synctest.Test(t, func(t *testing.T) {
				var requests atomic.Int32
				n := &network{accept: raw(func(_ *http.Request, w io.Writer) bool {
					requests.Add(1)
					_, _ = io.WriteString(w, ok)
					return false // without Connection: close
				})}
				c := newClient(t, n)
				tg := target(t, c, method)
				for i := range 20 {
					if i%2 == 0 {
						synctest.Wait() // the client has noticed
					}
					if r := c.Forward(t.Context(), tg, message(body)); r.Kind != policy.Answered {
						t.Fatalf("%s, request %d: %+v", method, i, r)
					}
				}
				if requests.Load() != 20 {
					t.Errorf("%d requests", requests.Load())
				}
			})
		}
	}
}

// brokenConn takes a number of writes and then refuses every one, while reading it still looks well.
type brokenConn struct {
	net.Conn
	writes atomic.Int32
}

func (b *brokenConn) Write(p []byte) (int, error) {
	if b.writes.Add(-1) < 0 {
		return 0, errors.New("broken pipe")
	}
	return b.Conn.Write(p)
}

// A request of which provably nothing was sent is sent again, at once or soon.
func TestNothingWritten(t *testing.T) {
	for _, method := range []string{"POST", "GET"} {
		for _, body := range []string{"", "body"} {
			for _, writes := range []int32{0, 1} { // a new connection, a used one
				synctest.Test(t, func(t *testing.T) {
					var requests, broken atomic.Int32
					n := &network{accept: raw(func(_ *http.Request, w io.Writer) bool {
						requests.Add(1)
						_, _ = io.WriteString(w, ok)
						return true
					})}
					n.dialed = func(context.Context) (net.Conn, bool, error) {
						if broken.Add(1) > 1 {
							return nil, false, nil
						}
						ours, theirs := net.Pipe()
						n.wg.Go(func() { defer theirs.Close(); n.accept(theirs) })
						b := &brokenConn{Conn: ours}
						b.writes.Store(writes)
						return b, true, nil
					}
					c := newClient(t, n)
					tg := target(t, c, method)
					for i := range writes + 1 {
						m := message(body)
						var told []bool
						m.Sending = func(now bool) { told = append(told, now) }
						r := c.Forward(t.Context(), tg, m)
						if want := []bool{true, false, true}; i == writes && !slices.Equal(told, want) {
							t.Errorf("%s %q after %d writes: told %v", method, body, writes, told)
						}
						if r.Kind != policy.Answered || r.Status != 200 {
							t.Fatalf("%s %q after %d writes: %+v", method, body, writes, r)
						}
					}
					if requests.Load() != writes+1 || n.dialCount() != 2 {
						t.Errorf("%d requests, %d connections", requests.Load(), n.dialCount())
					}
				})
			}
		}
	}
}

// When a request is sent again because nothing of it was sent, its time begins again too.
func TestTimeoutBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Int32
		n := &network{accept: raw(func(r *http.Request, w io.Writer) bool {
			if r.ContentLength > 0 {
				time.Sleep(29 * time.Second)
			}
			_, _ = io.WriteString(w, ok)
			return true
		})}
		n.dialed = func(context.Context) (net.Conn, bool, error) {
			if broken.Add(1) > 1 {
				time.Sleep(4 * time.Second)
				return nil, false, nil
			}
			ours, theirs := net.Pipe()
			n.wg.Go(func() { defer theirs.Close(); n.accept(theirs) })
			b := &brokenConn{Conn: ours}
			b.writes.Store(1)
			return b, true, nil
		}
		c := newClient(t, n)
		tg := target(t, c, "POST")
		c.Forward(t.Context(), tg, message(""))
		if r := c.Forward(t.Context(), tg, message("x")); r.Status != 200 || r.Duration != 29*time.Second {
			t.Errorf("%+v", r)
		}
	})
}

func TestTimeout(t *testing.T) {
	for name, accept := range map[string]func(net.Conn){
		"no answer":     hang,
		"header starts": raw(func(_ *http.Request, w io.Writer) bool { _, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\n"); return true }),
		"only 1xx": raw(func(_ *http.Request, w io.Writer) bool {
			_, _ = io.WriteString(w, "HTTP/1.1 103 Early\r\n\r\n")
			return true
		}),
		"body is missing": raw(func(_ *http.Request, w io.Writer) bool {
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
			return true
		}),
		"body drips": raw(func(_ *http.Request, w io.Writer) bool {
			_, err := io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 500000\r\n\r\n")
			for err == nil {
				time.Sleep(time.Second)
				_, err = io.WriteString(w, "x")
			}
			return false
		}),
		"request is not read": func(nc net.Conn) { time.Sleep(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient(t, &network{accept: accept})
				began := time.Now()
				r := c.Forward(t.Context(), target(t, c, "POST"), message("x"))
				if r.Kind != policy.NoAnswer || r.Error != "no answer within 30s" || r.Duration != 30*time.Second || time.Since(began) != 30*time.Second {
					t.Errorf("%+v after %v", r, time.Since(began))
				}
				if r.Sent != (name != "request is not read") {
					t.Errorf("sent: %v", r.Sent)
				}
			})
		})
	}
}

// The app's time begins when there is a connection: waiting for one does not count.
func TestTimeoutStartsWithConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := raw(func(_ *http.Request, w io.Writer) bool {
			time.Sleep(20 * time.Second)
			_, _ = io.WriteString(w, ok)
			return true
		})
		n := &network{accept: slow, dialed: func(context.Context) (net.Conn, bool, error) {
			time.Sleep(4 * time.Second)
			return nil, false, nil
		}}
		c := newClient(t, n, func(s *setup) { s.options.Connections = 1; s.config.Timeout = 21 * time.Second })
		tg := target(t, c, "POST")
		a, b := start(t.Context(), c, tg, message("x")), start(t.Context(), c, tg, message("x"))
		for _, done := range []<-chan Result{a, b} {
			if r := <-done; r.Status != 200 || r.Duration != 20*time.Second {
				t.Errorf("%+v", r)
			}
		}
		if n.dialCount() != 1 {
			t.Errorf("%d connections", n.dialCount())
		}
	})
}

// What the caller cuts off is handed back, at every stage and at once.
func TestCancel(t *testing.T) {
	for name, c := range map[string]struct {
		network *network
		ready   string
		sent    bool
	}{
		"waiting for the ready path": {&network{}, "/ready", false},
		"waiting to try again":       {&network{}, "", false},
		"connecting": {&network{dialed: func(ctx context.Context) (net.Conn, bool, error) {
			<-ctx.Done()
			return nil, true, ctx.Err()
		}}, "", false},
		"sending": {&network{accept: func(net.Conn) { time.Sleep(time.Hour) }}, "", false},
		"waiting": {&network{accept: hang}, "", true},
		"reading headers": {&network{accept: raw(func(_ *http.Request, w io.Writer) bool {
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nA: b\r\n")
			return true
		})}, "", true},
		"reading the body": {&network{accept: raw(func(_ *http.Request, w io.Writer) bool {
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab")
			return true
		})}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := newClient(t, c.network, func(s *setup) { s.config.Ready.Path = c.ready })
				tg := target(t, client, "POST")
				ctx, cancel := context.WithCancel(t.Context())
				done := start(ctx, client, tg, message("x"))
				time.Sleep(1500 * time.Millisecond)
				synctest.Wait()
				began := time.Now()
				cancel()
				r := <-done
				if r.Kind != policy.HandedBack || r.Sent != c.sent || time.Since(began) != 0 {
					t.Errorf("%+v after %v", r, time.Since(began))
				}
				if r := client.Forward(ctx, tg, message("x")); r.Kind != policy.HandedBack || r.Sent {
					t.Errorf("cancelled before: %+v", r)
				}
			})
		})
	}
}

// A cancel that comes at the same moment as an error is a hand-back.
func TestCancelRacesWithError(t *testing.T) {
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		n := &network{accept: raw(func(*http.Request, io.Writer) bool { cancel(); return false })}
		c := newClient(t, n)
		if r := c.Forward(ctx, target(t, c, "POST"), message("x")); r.Kind != policy.HandedBack || !r.Sent {
			t.Fatalf("%+v", r)
		}
	}
}

// Small requests go out in one write.
func TestOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var writes *brokenConn
		n := &network{accept: always(ok)}
		n.dialed = func(context.Context) (net.Conn, bool, error) {
			ours, theirs := net.Pipe()
			n.wg.Go(func() { defer theirs.Close(); n.accept(theirs) })
			writes = &brokenConn{Conn: ours}
			writes.writes.Store(100)
			return writes, true, nil
		}
		c := newClient(t, n)
		tg := target(t, c, "POST")
		c.Forward(t.Context(), tg, message(strings.Repeat("x", 1024)))
		c.Forward(t.Context(), tg, message(""))
		if used := 100 - writes.writes.Load(); used != 2 {
			t.Errorf("%d writes for 2 requests", used)
		}
	})
}
