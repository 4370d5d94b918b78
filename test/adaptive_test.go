package test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// adaptive is an option for a sidecar that finds out how many requests at a time the app can take.
func adaptive(most int, change ...func(*config.Consumer)) option {
	return consumer(func(c *config.Consumer) {
		c.Concurrency, c.Adaptive, c.Prefetch = most, true, 4
		c.Retry.Initial, c.Retry.Max, c.MaxDeliver = 20*time.Millisecond, 100*time.Millisecond, 0
		for _, f := range change {
			f(c)
		}
	})
}

// limit is the limit of requests at a time that the sidecar shows.
func (s *sidecar) limit() float64 {
	return s.admin.metric("sidecar_concurrency_limit")
}

// An app that breaks with more than some requests at a time gets all its messages, and never more at a time than the most.
func TestAdaptiveConcurrency(t *testing.T) {
	for name, broken := range map[string]reply{"503": {status: 503}, "reset": {reset: true}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.app.on(func(*call) reply {
				if w.app.inFlight() > 6 {
					return broken
				}
				return reply{status: 200, delay: 5 * time.Millisecond}
			})
			for range 600 {
				w.publish("orders.a", "x")
			}
			s := w.running(adaptive(32))
			w.waitDone()
			w.balance()
			if n := w.app.peak(); n > 32 {
				t.Errorf("%d calls at a time", n)
			}
			if n := s.limit(); n < 1 || n >= 32 {
				t.Errorf("the limit is %g", n)
			}
		})
	}
}

// Where the limit is not reached it does not grow, and no more than the limit are called at a time when a burst comes.
func TestAdaptiveConcurrencyIsExact(t *testing.T) {
	w := newWorld(t)
	s := w.running(adaptive(32))
	for range 30 { // one after the other
		w.publish("orders.a", "x")
		w.waitDone()
	}
	if n := s.limit(); n != 4 {
		t.Errorf("the limit is %g with one call at a time", n)
	}
	open := make(chan struct{})
	w.app.on(func(*call) reply { return reply{status: 200, gate: open} })
	for range 40 {
		w.publish("orders.a", "x")
	}
	// Room for less than an eighth is not asked for while there is work.
	eventually(t, func() bool { return w.consumer(durable).NumAckPending > 32 && w.app.inFlight() == 4 }, text("about all that may be leased"))
	throughout(t, 300*time.Millisecond, func() bool { return w.app.inFlight() == 4 && w.consumer(durable).NumAckPending <= 36 }, text("four calls"))
	close(open)
	w.balance()
}

// What waits for a place at the app when the sidecar stops is handed back at once.
func TestAdaptiveConcurrencyStop(t *testing.T) {
	w := newWorld(t)
	open := make(chan struct{})
	w.app.on(func(*call) reply { return reply{status: 200, gate: open} })
	for range 20 {
		w.publish("orders.a", "x")
	}
	s := w.running(adaptive(16))
	eventually(t, func() bool { return w.app.inFlight() == 4 && w.consumer(durable).NumAckPending > 6 }, text("calls and leases"))
	s.stopping()
	w.app.on(always(reply{status: 200}))
	w.running(adaptive(16))
	eventually(t, func() bool { return w.app.count() == 20 }, text("the others to be called by another sidecar"))
	close(open)
	if err := s.stop(); err != nil {
		t.Errorf("the stop: %v", err)
	}
	w.balance()
}

// Order holds with it, also over retries.
func TestAdaptiveConcurrencyWithOrder(t *testing.T) {
	w := newWorld(t)
	w.app.on(func(c *call) reply {
		if c.seq%7 == 0 && c.nth == 1 || w.app.inFlight() > 6 {
			return reply{status: 503}
		}
		return reply{status: 200, delay: 2 * time.Millisecond}
	})
	w.publishKeys(12, 25)
	w.running(adaptive(16, func(c *config.Consumer) { c.Order, c.AckWait = "subject", shortAckWait }))
	w.waitDone()
	w.balance()
	w.inOrder(bySubject)
}

// With batches it is requests that are counted: an app that breaks with more than some batches at a time gets all its messages.
func TestAdaptiveConcurrencyWithBatches(t *testing.T) {
	w := newWorld(t)
	a := w.batchApp(func(*batchCall) (reply, map[string]verdict) {
		if w.app.inFlight() > 6 {
			return reply{status: 503}, nil
		}
		return reply{status: 200, delay: 20 * time.Millisecond}, nil // longer than it takes to make the next one
	})
	w.publishMany(3000, func(int) string { return "x" })
	s := w.running(batched(10), adaptive(32, func(c *config.Consumer) { c.Prefetch = 400 }))
	a.balance(false)
	if n := w.app.peak(); n < 5 || n > 32 {
		t.Errorf("%d calls at a time", n)
	}
	if n := s.limit(); n < 1 || n >= 32 {
		t.Errorf("the limit is %g", n)
	}
}

// Messages past their limit are tried alone, also where they and others wait for a place at the app and the breaker is open.
func TestAdaptiveConcurrencyWithMessagesAlone(t *testing.T) {
	w := newWorld(t)
	var good atomic.Bool
	w.app.on(func(*call) reply {
		if good.Load() {
			return reply{status: 200}
		}
		return reply{status: 503}
	})
	for range 30 {
		w.publish("orders.a", "x")
	}
	few := adaptive(8, func(c *config.Consumer) {
		c.MaxDeliver = 1
		c.Breaker.Failures, c.Breaker.ProbeInterval, c.Breaker.ProbeMax = 5, 20*time.Millisecond, 50*time.Millisecond
	})
	for range 2 { // what is held at its limit is handed back, and so past it
		s := w.sidecar(few) // it may never be seen ready
		s.waitMetric("sidecar_breaker_open", atLeast(1))
		seen := w.app.count()
		eventually(t, func() bool { return w.app.count() > seen+10 }, text("probes"))
		if err := s.stop(); err != nil {
			t.Errorf("the stop: %v", err)
		}
	}
	w.sidecar(few)
	good.Store(true)
	w.waitDone()
	w.balance()
	if n := w.app.peak(); n > 4 {
		t.Errorf("%d calls at a time", n)
	}
}

// The rate holds over starts: a start saves nothing up.
func TestRateOverStarts(t *testing.T) {
	w := newWorld(t)
	for range 10 {
		w.publish("orders.a", "x")
	}
	slow := consumer(func(c *config.Consumer) { c.Rate = 0.001 })
	long := func(c *config.Config) { c.ShutdownTimeout = time.Hour } // no stop waits for its end
	for range 3 {
		s := w.running(slow, long)
		eventually(t, func() bool { return w.consumer(durable).NumAckPending == 10 }, text("leases"))
		if err := s.stop(); err != nil {
			t.Errorf("the stop: %v", err)
		}
	}
	if n := w.app.count(); n != 0 {
		t.Errorf("%d calls", n)
	}
	w.running()
	w.waitDone()
	for _, c := range w.app.all() {
		if c.nth != 1 {
			t.Errorf("message %d was called %d times", c.seq, c.nth)
		}
	}
	w.balance()
}
