package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// changes collects what OnAppChange is told.
type changes struct {
	mu  sync.Mutex
	all []string
}

func (c *changes) add(up bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if (err == nil) != up {
		c.all = append(c.all, fmt.Sprintf("up %v with %v", up, err))
		return
	}
	c.all = append(c.all, map[bool]string{true: "up", false: "down"}[up])
}

func (c *changes) expect(t *testing.T, want ...string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.all, want) {
		t.Errorf("changes %v, want %v", c.all, want)
	}
}

// run probes until the function returned is called.
func run(t *testing.T, c *Client) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { c.Run(ctx) })
	return func() { cancel(); wg.Wait() }
}

// With a ready path, it decides: requests wait for it, and go as soon as it passes.
func TestReadyPath(t *testing.T) {
	for _, protocol := range []string{"http1"} {
		synctest.Test(t, func(t *testing.T) {
			var status, probes, posts atomic.Int32
			var secret atomic.Bool
			secret.Store(true)
			status.Store(503)
			n := &network{accept: raw(func(r *http.Request, w io.Writer) bool {
				if r.URL.Path == "/ready" {
					probes.Add(1)
					secret.Store(secret.Load() && r.Header.Get("Authorization") == "Bearer secret" && r.Method == "GET")
					fmt.Fprintf(w, "HTTP/1.1 %d Ready\r\nContent-Length: 100000\r\n\r\nstart", status.Load())
					return true
				}
				posts.Add(1)
				_, _ = io.WriteString(w, ok)
				return true
			})}
			var told changes
			c := newClient(t, n, func(s *setup) {
				s.config.Protocol, s.config.BearerToken = protocol, "secret"
				s.config.Ready = ReadyConfig{Path: "/ready", Interval: time.Second}
				s.options.OnAppChange = told.add
			})
			tg := target(t, c, "POST")
			if c.Up() || !errors.Is(c.LastError(), errNotProbed) {
				t.Error("up before the first probe")
			}
			first := start(t.Context(), c, tg, message("x"))
			time.Sleep(time.Minute)
			synctest.Wait()
			if n.dialCount() != 0 {
				t.Error("a request connected before a probe passed")
			}
			stop := run(t, c)
			defer stop()
			time.Sleep(time.Minute)
			synctest.Wait()
			if posts.Load() != 0 || c.Up() {
				t.Error("a request was sent although the probe fails")
			}
			if got := probes.Load(); got < 54 || got > 67 {
				t.Errorf("%d probes in a minute", got)
			}
			told.expect(t, "down")

			status.Store(204)
			time.Sleep(1100 * time.Millisecond)
			synctest.Wait()
			if r := <-first; r.Status != 200 || posts.Load() != 1 || !c.Up() || c.LastError() != nil {
				t.Errorf("%+v, %d posts", r, posts.Load())
			}
			told.expect(t, "down", "up")

			time.Sleep(2 * time.Second) // idle connections end
			n.set(nil)                  // refused: down at once, and up only by the probe
			second := start(t.Context(), c, tg, message("x"))
			synctest.Wait()
			if c.Up() || c.LastError() == nil {
				t.Error("up although refused")
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			dials := n.dialCount()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if got := n.dialCount() - dials; got > 12 {
				t.Errorf("%d connections tried in 10 s: requests try by themselves", got)
			}
			n.set(raw(func(r *http.Request, w io.Writer) bool { _, _ = io.WriteString(w, ok); return true }))
			time.Sleep(1100 * time.Millisecond)
			synctest.Wait()
			select {
			case r := <-second:
				if r.Status != 200 {
					t.Errorf("%+v", r)
				}
			default:
				t.Error("not woken by the probe")
			}
			told.expect(t, "down", "up", "down", "up")

			n.set(nil) // a probe finds out too
			time.Sleep(5 * time.Second)
			synctest.Wait()
			told.expect(t, "down", "up", "down", "up", "down")
			if !secret.Load() {
				t.Error("a probe lacks the configured headers")
			}
		})
	}
}

// A probe that hangs has 5 s.
func TestProbeHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{accept: hang}
		c := newClient(t, n, func(s *setup) { s.config.Ready.Path = "/ready" })
		began := time.Now()
		if err := c.Probe(t.Context()); err == nil || time.Since(began) != 5*time.Second || c.Up() {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Probe(ctx); !errors.Is(err, context.Canceled) || errors.Is(c.LastError(), context.Canceled) {
			t.Errorf("a stop is taken for a fault: %v, %v", err, c.LastError())
		}
	})
}

// Without a ready path a connection is enough, made by a probe or a request; answers stand in for probes.
func TestNoReadyPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		var told changes
		c := newClient(t, n, func(s *setup) { s.options.OnAppChange = told.add })
		stop := run(t, c)
		defer stop()
		tg := target(t, c, "POST")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		told.expect(t, "down")
		n.set(always(ok))
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		told.expect(t, "down", "up")

		time.Sleep(2 * time.Second)
		dials := n.dialCount()
		for range 100 {
			c.Forward(t.Context(), tg, message("x"))
			time.Sleep(100 * time.Millisecond)
		}
		if got := n.dialCount() - dials; got > 2 {
			t.Errorf("%d connections while requests are answered", got)
		}
		n.set(nil)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		told.expect(t, "down", "up", "down")

		done := start(t.Context(), c, tg, message("x"))
		time.Sleep(time.Minute)
		n.set(always(ok))
		if r := <-done; r.Status != 200 || !c.Up() {
			t.Errorf("%+v, up %v", r, c.Up())
		}
		told.expect(t, "down", "up", "down", "up")
	})
}

// Answers over old connections say nothing of new ones once one was refused.
func TestProbeDue(t *testing.T) {
	c := newClient(t, &network{})
	for _, step := range []struct {
		found     error
		exchanged bool
		due       bool
	}{{nil, true, false}, {nil, false, true}, {io.EOF, true, true}, {io.EOF, false, true}} {
		c.app.set(step.found)
		c.app.exchanged.Store(step.exchanged)
		if got := c.probeDue(); got != step.due {
			t.Errorf("%+v: due %v", step, got)
		}
	}
}

// With a ready path a connection alone shows nothing.
func TestConnectedIsNotReady(t *testing.T) {
	for _, gated := range []bool{true, false} {
		a := newApp(gated, nil)
		if a.connected(); a.up.Load() == gated {
			t.Errorf("ready path %v: up %v", gated, !gated)
		}
	}
}

func TestProbeInterval(t *testing.T) {
	for _, random := range []float64{0, 0.5, 0.999999} {
		if d := probeInterval(time.Second, random); d < 900*time.Millisecond || d > 1100*time.Millisecond {
			t.Errorf("%v", d)
		}
	}
	if longest := time.Duration(math.MaxInt64); probeInterval(longest, 0.99) < longest/4 {
		t.Errorf("the longest interval becomes %v", probeInterval(longest, 0.99))
	}
	if probeInterval(1, 0) < 1 {
		t.Error("a loop without a pause")
	}
}

// A ready path over HTTP/2, and over a real socket.
func TestReadyPathOverH2(t *testing.T) {
	l := listen(t)
	serve(t, l, "h2c", func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			w.WriteHeader(500)
		}
	})
	c := newClient(t, nil, func(s *setup) {
		s.config.URL, s.config.Protocol, s.config.Ready.Path = "http://"+l.Addr().String(), "h2c", "/ready"
	})
	for range 5 {
		if err := c.Probe(t.Context()); err != nil || !c.Up() {
			t.Fatal(err)
		}
	}
}
