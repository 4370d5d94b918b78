package forward

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jetsidecar/jetsidecar/policy"
)

// A message that is not to be sent any more when the app is back, after a wait, is handed back, and nothing of it is sent.
func TestNotWantedAnyMore(t *testing.T) {
	for name, change := range map[string]func(*setup){
		"http1": func(*setup) {}, "h2c": func(s *setup) { s.config.Protocol = "h2c" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &network{}
				c := newClient(t, n, change)
				m := message("x")
				var lost atomic.Bool
				m.Wanted = func() bool { return !lost.Load() }
				done := start(t.Context(), c, target(t, c, "POST"), m)
				time.Sleep(time.Minute)
				synctest.Wait()
				lost.Store(true)
				var requests atomic.Int32
				n.set(raw(func(*http.Request, io.Writer) bool { requests.Add(1); return false }))
				if r := <-done; r.Kind != policy.HandedBack || r.Sent || requests.Load() != 0 {
					t.Errorf("%+v, %d requests", r, requests.Load())
				}
			})
		})
	}
}

// One that waits for an app which is not ready is handed back while it waits.
func TestNotWantedWhileTheAppIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, &network{}, func(s *setup) { s.config.Ready.Path = "/ready" })
		m := message("x")
		since := time.Now()
		m.Wanted = func() bool { return time.Since(since) < time.Minute }
		r := c.Forward(t.Context(), target(t, c, "POST"), m)
		if took := time.Since(since); r.Kind != policy.HandedBack || r.Sent || took > time.Minute+2*askEvery {
			t.Errorf("%+v after %s", r, took)
		}
	})
}

// A connection that was had for a message that is not wanted any more serves the next one.
func TestNotWantedWhenTheConnectionIsHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int32
		n := &network{accept: raw(func(_ *http.Request, w io.Writer) bool {
			requests.Add(1)
			_, _ = io.WriteString(w, ok)
			return true
		})}
		c := newClient(t, n)
		m := message("x")
		asked := 0
		m.Wanted = func() bool { asked++; return asked == 1 }
		if r := c.Forward(t.Context(), target(t, c, "POST"), m); r.Kind != policy.HandedBack || requests.Load() != 0 {
			t.Errorf("%+v, %d requests", r, requests.Load())
		}
		r := c.Forward(t.Context(), target(t, c, "POST"), message("y"))
		if r.Kind != policy.Answered || requests.Load() != 1 || n.dialCount() != 1 {
			t.Errorf("%+v, %d requests, %d connections", r, requests.Load(), n.dialCount())
		}
	})
}
