package forward

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// slow answers each request after a time.
func slow(d time.Duration) func(net.Conn) {
	return raw(func(_ *http.Request, w io.Writer) bool {
		time.Sleep(d)
		_, err := io.WriteString(w, ok)
		return err == nil
	})
}

// One connection that cannot be made says nothing of an app that answers over others.
func TestFailedConnectionBesideAnswers(t *testing.T) {
	for name, path := range map[string]string{"connect": "", "ready path": "/ready"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &network{accept: slow(100 * time.Millisecond)}
				var told changes
				c := newClient(t, n, func(s *setup) {
					s.config.Ready = ReadyConfig{Path: path, Interval: 30 * time.Second}
					s.options.OnAppChange = told.add
				})
				stop := run(t, c)
				defer stop()
				tg := target(t, c, "POST")
				c.Forward(t.Context(), tg, message("x")) // its connection stays
				n.set(nil)
				busy := start(t.Context(), c, tg, message("x"))
				synctest.Wait()
				refused := start(t.Context(), c, tg, message("x"))
				for range 3 {
					if r := <-busy; r.Status != 200 {
						t.Errorf("%+v", r)
					}
					busy = start(t.Context(), c, tg, message("x"))
				}
				if r := <-refused; r.Status != 200 {
					t.Errorf("%+v", r)
				}
				<-busy
				told.expect(t, "up")

				time.Sleep(2 * time.Second) // nothing is left of what it answered over
				refused = start(t.Context(), c, tg, message("x"))
				synctest.Wait()
				told.expect(t, "up", "down")
				n.set(slow(0))
				if r := <-refused; r.Status != 200 {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}

// An app that was found away is there again when it answers a request that began after that, also over an old connection.
func TestAnswerAfterAFailedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{accept: slow(3 * time.Second)}
		var told changes
		c := newClient(t, n, func(s *setup) {
			s.config.Ready.Interval = time.Hour
			s.options.OnAppChange = told.add
		})
		tg := target(t, c, "POST")
		first := start(t.Context(), c, tg, message("x"))
		synctest.Wait()
		n.set(nil)
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		refused := start(ctx, c, tg, message("x"))
		synctest.Wait()
		told.expect(t, "up", "down")
		cancel()
		<-refused
		<-first
		synctest.Wait()
		told.expect(t, "up", "down") // it may be on its way out
		c.Forward(t.Context(), tg, message("x"))
		if told.expect(t, "up", "down", "up"); !c.Up() || c.LastError() != nil {
			t.Errorf("up %v, error %v", c.Up(), c.LastError())
		}
	})
}

// While no connection can be made the app is looked at every 2 s at least, however long the interval, so that one failure costs no more.
func TestLooksSoonAfterAFailedConnection(t *testing.T) {
	for name, path := range map[string]string{"connect": "", "ready path": "/ready"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &network{accept: slow(0)}
				var told changes
				c := newClient(t, n, func(s *setup) {
					s.config.Ready = ReadyConfig{Path: path, Interval: time.Hour}
					s.options.OnAppChange = told.add
				})
				stop := run(t, c)
				defer stop()
				synctest.Wait()
				n.set(nil)
				ctx, cancel := context.WithCancel(t.Context())
				gone := start(ctx, c, target(t, c, "POST"), message("x"))
				synctest.Wait()
				cancel()
				<-gone
				told.expect(t, "up", "down")
				time.Sleep(time.Minute)
				synctest.Wait()
				if dials := n.dialCount(); dials < 30 || dials > 45 {
					t.Errorf("%d looks in a minute", dials)
				}
				n.set(slow(0))
				time.Sleep(2 * time.Second)
				synctest.Wait()
				told.expect(t, "up", "down", "up")
				dials := n.dialCount()
				time.Sleep(50 * time.Minute)
				synctest.Wait()
				if got := n.dialCount(); got != dials {
					t.Errorf("%d looks more within the interval", got-dials)
				}
			})
		})
	}
}

// A unix socket whose queue is full refuses at once, where TCP waits: it is waited for as long, and the app is not away.
func TestBusyUnixSocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var busy atomic.Bool
		busy.Store(true)
		n := &network{accept: slow(0), dialed: func(context.Context) (net.Conn, bool, error) {
			return nil, busy.Load(), &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.EAGAIN)}
		}}
		var told changes
		c := newClient(t, n, func(s *setup) {
			s.config.URL, s.options.OnAppChange = "unix:///run/app.sock", told.add
		})
		stop := run(t, c)
		defer stop()
		tg := target(t, c, "POST")
		done := start(t.Context(), c, tg, message("x"))
		time.Sleep(4 * time.Second)
		synctest.Wait()
		told.expect(t)
		if got := n.dialCount(); got > 250 {
			t.Errorf("%d tries of two", got)
		}
		busy.Store(false)
		if r := <-done; r.Status != 200 {
			t.Errorf("%+v", r)
		}
		told.expect(t, "up")

		time.Sleep(2 * time.Second)
		busy.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		done = start(ctx, c, tg, message("x"))
		time.Sleep(time.Second)
		began := time.Now()
		cancel()
		if r := <-done; r.Sent || time.Since(began) > 0 {
			t.Errorf("%+v after %s", r, time.Since(began))
		}
		time.Sleep(10 * time.Second) // as with TCP
		synctest.Wait()
		told.expect(t, "up", "down")
	})
}
