package test

import (
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/policy"
)

const (
	perSecond = 5 // requests
	rated     = 8 // at a time
)

// away takes the app away from a sidecar with a rate, and returns once all that can be sent waits for it.
func (w *world) away(change ...func(*config.Consumer)) *sidecar {
	w.publishMany(100, func(int) string { return "x" })
	s := w.running(consumer(func(c *config.Consumer) {
		c.Rate, c.Concurrency, c.Prefetch = perSecond, rated, rated
		for _, f := range change {
			f(c)
		}
	}))
	eventually(w.t, func() bool { return w.app.count() > 0 }, text("a call"))
	w.app.down()
	s.waitMetric("sidecar_in_flight", func(v float64) bool { return v == rated })
	return s
}

func small(c *config.Consumer) { c.Batch.MaxMessages, c.Batch.MaxWait = 2, 10*time.Millisecond }

// The rate holds when the app is back, whatever waits for it.
func TestRateWhenTheAppIsBack(t *testing.T) {
	for name, change := range map[string]func(*config.Consumer){"one": func(*config.Consumer) {}, "batches": small} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.away(change)
			before := w.app.count()
			back := time.Now()
			w.app.up()
			eventually(t, func() bool { return w.app.count() >= before+rated+4 }, text("calls"))
			calls := w.app.all()[before:]
			for i, c := range calls {
				// One is saved up, and the turns of two may have come just before.
				if most := perSecond*c.begun.Sub(back).Seconds() + 3; float64(i+1) > most {
					t.Fatalf("%d calls within %s", i+1, c.begun.Sub(back))
				}
			}
			if err := s.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Who waits for the rate since the app was away is not sent when the breaker opens, and goes when the sidecar stops.
func TestRateAndBreakerWhenTheAppIsBack(t *testing.T) {
	for name, change := range map[string]func(*config.Consumer){"one": func(*config.Consumer) {}, "batches": small} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.away(change, func(c *config.Consumer) {
				c.Breaker = policy.BreakerConfig{Failures: 2, ProbeInterval: time.Hour, ProbeMax: time.Hour, Hold: time.Hour}
			})
			before := w.app.count()
			w.app.on(always(reply{status: 503}))
			w.app.up()
			s.waitMetric("sidecar_breaker_open", func(v float64) bool { return v == 1 })
			s.waitMetric("sidecar_in_flight", func(v float64) bool { return v == 0 })
			if n := w.app.count() - before; n >= rated {
				t.Errorf("%d calls, and two open the breaker", n)
			}
			if err := s.stop(); err != nil {
				t.Error(err)
			}
			w.app.on(always(reply{status: 200}))
			w.running(func(c *config.Config) { c.Consumers[0].Batch.MaxMessages = 1 })
			w.waitDone()
		})
	}
}
