package test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/policy"
)

// breaking is a consumer with a breaker that is quick, and messages that are at their limit after two attempts.
func breaking(change ...func(*config.Consumer)) option {
	return consumer(func(c *config.Consumer) {
		c.Breaker = policy.BreakerConfig{Failures: 3, ProbeInterval: 50 * time.Millisecond, ProbeMax: 200 * time.Millisecond, Hold: time.Hour}
		c.MaxDeliver, c.Concurrency = 2, 4
		for _, f := range change {
			f(c)
		}
	})
}

// An app that fails for much longer than the retries of a message last puts fewer messages into the DLQ than open the
// breaker, and everything is delivered when it is back.
func TestOutageOfTheAppIsNotTheMessagesFault(t *testing.T) {
	w := newWorld(t)
	w.app.on(always(reply{status: 503}))
	s := w.running(breaking())
	for range 30 {
		w.publish("orders.new", "x")
	}
	s.waitMetric("sidecar_breaker_open", atLeast(1))
	s.waitTold("app", false, "breaker open since", "status 503")
	before := w.app.count()
	eventually(t, func() bool { return w.app.count() >= before+8 }, text("it probes"))
	if n := len(w.dead()); n >= 3 {
		t.Errorf("%d dead letters by an outage of the app", n)
	}
	w.app.on(always(reply{status: 200}))
	s.waitReady()
	w.waitDone()
	w.balance()
	eventually(t, func() bool { return len(s.log.lines("the breaker is closed")) == 1 }, text("the log says that it closed"))
}

// While it is open one request at a time is tried, spaced like the probes, and a message at its limit is tried without
// spending deliveries.
func TestProbesComeOneAtATime(t *testing.T) {
	w := newWorld(t)
	w.app.on(always(reply{status: 500}))
	s := w.running(breaking(func(c *config.Consumer) { c.MaxDeliver = 1 }))
	for range 20 {
		w.publish("orders.new", "x")
	}
	s.waitMetric("sidecar_breaker_open", atLeast(1))
	// Up to as many as there are workers were on their way when it opened.
	eventually(t, func() bool { return w.app.count() >= 3+4 }, text("probes alone"))
	first := w.app.count()
	eventually(t, func() bool { return w.app.count() >= first+10 }, text("ten probes"))
	calls := w.app.all()[first : first+10]
	for i, c := range calls {
		if c.delivered != "1" {
			t.Errorf("a probe is delivery %s", c.delivered)
		}
		if i > 0 && c.begun.Before(calls[i-1].ended) {
			t.Error("two probes at a time")
		}
		if i > 3 && c.begun.Sub(calls[i-1].ended) < 100*time.Millisecond {
			t.Errorf("a probe %s after the one before", c.begun.Sub(calls[i-1].ended))
		}
	}
	w.app.on(always(reply{status: 200}))
	w.waitDone()
	w.balance()
}

// One poison message among good ones is dead-lettered on its exact attempt, with the breaker closed.
func TestPoisonAmongGoodOnes(t *testing.T) {
	w := newWorld(t)
	w.app.on(func(c *call) reply {
		if c.body == "poison" {
			return reply{status: 500}
		}
		return reply{status: 200}
	})
	s := w.running(breaking(func(c *config.Consumer) { c.MaxDeliver = 4 }))
	poison := w.publish("orders.new", "poison")
	for range 50 {
		w.publish("orders.new", "good")
	}
	if e := w.deadOf(poison); e.header.Get("Dlq-Reason") != "max_deliver" || e.header.Get("Dlq-Deliveries") != "4" {
		t.Errorf("headers %v", e.header)
	}
	w.waitDone()
	w.balance()
	if n := len(w.app.of(poison)); n != 4 {
		t.Errorf("%d attempts", n)
	}
	if len(s.log.lines("the breaker is open: the app fails message after message, pulling waits")) != 0 {
		t.Error("one poison message opened the breaker")
	}
}

// After hold the limits count again.
func TestHoldEnds(t *testing.T) {
	w := newWorld(t)
	w.app.on(always(reply{status: 503}))
	w.running(breaking(func(c *config.Consumer) {
		c.MaxDeliver, c.Breaker.Hold, c.Breaker.ProbeMax = 1, 300*time.Millisecond, 50*time.Millisecond
	}))
	for range 8 {
		w.publish("orders.new", "x")
	}
	w.waitDead(8)
	w.waitDone()
	w.balance()
}

// With a ready path that fails, the app is not called to probe it.
func TestBreakerProbesTheReadyPath(t *testing.T) {
	w := newWorld(t)
	w.app.on(always(reply{status: 503}))
	s := w.running(breaking(), func(c *config.Config) { c.App.Ready.Path = "/healthz" })
	for range 10 {
		w.publish("orders.new", "x")
	}
	s.waitMetric("sidecar_breaker_open", atLeast(1))
	w.app.setReady(503)
	eventually(t, func() bool { return w.app.inFlight() == 0 }, text("nothing is in flight"))
	s.waitMetric("sidecar_app_up", func(v float64) bool { return v == 0 })
	n, probes := w.app.count(), w.app.probed()
	eventually(t, func() bool { return w.app.probed() >= probes+5 }, text("the ready path is probed"))
	if got := w.app.count(); got > n+1 {
		t.Errorf("%d calls while the ready path fails", got-n)
	}
	w.app.on(always(reply{status: 200}))
	w.app.setReady(200)
	w.waitDone()
	w.balance()
}

// A stop while the breaker is open hands everything back at once, as if nothing had failed.
func TestStopWhileTheBreakerIsOpen(t *testing.T) {
	w := newWorld(t)
	w.app.on(always(reply{status: 503}))
	s := w.running(breaking(func(c *config.Consumer) {
		c.MaxDeliver, c.AckWait, c.Breaker.ProbeInterval, c.Breaker.ProbeMax = 1, time.Hour, time.Hour, time.Hour
	}), func(c *config.Config) { c.ShutdownTimeout = time.Hour })
	for range 20 {
		w.publish("orders.new", "x")
	}
	s.waitMetric("sidecar_breaker_open", atLeast(1))
	w.must(s.stop())
	w.app.on(always(reply{status: 200}))
	w.running(breaking())
	w.waitDone()
	w.balance()
}

// When the messages that failed are the cause, others close the breaker: it never probes for ever with the same ones.
func TestPoisonInARowDoesNotLockOut(t *testing.T) {
	for _, limit := range []int{1, 4} {
		t.Run(fmt.Sprint("max_deliver ", limit), func(t *testing.T) {
			w := newWorld(t)
			w.app.on(func(c *call) reply {
				if c.body == "poison" {
					return reply{status: 503}
				}
				return reply{status: 200}
			})
			for range 6 {
				w.publish("orders.new", "poison")
			}
			w.sidecar(breaking(func(c *config.Consumer) { c.MaxDeliver, c.Concurrency = limit, 8 })) // not ready with poison alone
			for range 40 {
				w.publish("orders.new", "good")
			}
			eventually(t, func() bool { w.publish("orders.new", "good"); return len(w.dead()) == 6 }, text("the poison is dead-lettered while good ones come"))
			w.waitDone()
			w.balance()
		})
	}
}

// Messages that wait in place for another try, with an order, do not keep an app that is back from being tried with another one.
func TestProbeBesideRetriesInPlace(t *testing.T) {
	w := newWorld(t)
	w.durableOf(func(c *natsjs.ConsumerConfig) { c.MaxRequestExpires = time.Second })
	w.app.on(always(reply{status: 503, header: map[string]string{"Retry-After": "600"}}))
	s := w.running(breaking(func(c *config.Consumer) { c.Order, c.MaxDeliver, c.Prefetch = "subject", 0, 8 }))
	for _, key := range []string{"a", "b", "c", "d"} {
		w.publish("orders."+key, "x")
	}
	s.waitMetric("sidecar_breaker_open", atLeast(1))
	var asked atomic.Int32
	_, err := w.nc.Subscribe("$JS.API.CONSUMER.MSG.NEXT."+stream+"."+durable, func(*nats.Msg) { asked.Add(1) })
	w.must(err)
	eventually(t, func() bool { return asked.Load() >= 2 }, text("two requests, since the first may be of before"))
	w.app.on(always(reply{status: 200}))
	seq := w.publish("orders.new", "x")
	eventually(t, func() bool { return len(w.app.of(seq)) == 1 }, text("the app to be tried"))
}

// An app whose ready path says that it is back counts as back, also when no message is left to try it with; one that fails the messages that
// are left does not, whatever its path says.
func TestBreakerWithNothingToTry(t *testing.T) {
	w := newWorld(t)
	w.app.on(always(reply{status: 503, header: map[string]string{"Retry-After": "3600"}}))
	w.app.setReady(200)
	s := w.running(breaking(func(c *config.Consumer) { c.MaxDeliver = 0 }),
		func(c *config.Config) { c.App.Ready.Path = "/ready" })
	for range 3 {
		w.publish("orders.new", "x")
	}
	s.waitMetric("sidecar_breaker_open", atLeast(1))
	half := func() bool {
		return len(s.log.lines("the breaker is half open: the app is ready, and the next message is tried alone")) == 1
	}
	eventually(t, half, text("the app to be asked whether it is ready"))
	s.waitTold("app", false, "it waits for a message to try the app with") // while messages wait for their retry
	w.app.setReady(500)
	before := w.app.probed()
	eventually(t, func() bool { return w.app.probed() >= before+2 }, text("the app is asked again"))
	w.purge()
	eventually(t, func() bool { return w.consumer(durable).NumAckPending == 0 }, text("nothing to wait for its retry"))
	s.waitCheck("app", false)

	w.app.setReady(200)
	s.waitReady()
	s.waitMetric("sidecar_breaker_open", func(v float64) bool { return v == 0 })
	w.publish("orders.new", "x")
	s.waitCheck("app", false) // it failed
	w.app.on(always(reply{status: 200}))
	if len(s.log.lines("the breaker is closed")) != 0 {
		t.Error("it closed with no message that passed")
	}
	seq := w.publish("orders.new", "x")
	eventually(t, func() bool { return len(w.app.of(seq)) == 1 && len(s.log.lines("the breaker is closed")) == 1 }, text("it closes"))
	if n := len(s.log.lines("the breaker is open: the app fails message after message, pulling waits")); n != 1 {
		t.Errorf("it opened %d times: hold began anew", n)
	}
}

// An outage that comes when the breaker had counted as closed for as long as hold opens it anew: hold counts from then on.
func TestOutageAfterTheBreakerCountedAsClosed(t *testing.T) {
	w := newWorld(t)
	w.app.on(always(reply{status: 503, header: map[string]string{"Retry-After": "3600"}}))
	w.app.setReady(200)
	hold := time.Second
	s := w.running(breaking(func(c *config.Consumer) { c.MaxDeliver, c.Breaker.Hold = 0, hold }), func(c *config.Config) {
		c.App.Ready.Path, c.App.Ready.Interval = "/ready", time.Hour // it is asked for the breaker alone
	})
	for range 3 {
		w.publish("orders.new", "x")
	}
	s.waitMetric("sidecar_breaker_open", atLeast(1))
	w.purge()
	s.waitMetric("sidecar_breaker_open", func(v float64) bool { return v == 0 })
	before := w.app.probed()
	eventually(t, func() bool { return w.app.probed() >= before+3 }, text("the app to be asked when nothing is left")) // the first may have begun before, the last may not be done
	asked := time.Now()
	eventually(t, func() bool { return time.Since(asked) > hold }, text("hold to pass"))

	w.app.on(always(reply{status: 500, header: map[string]string{"Retry-After": "3600"}}))
	w.publish("orders.new", "x")
	const line = "the breaker is open: the app fails message after message, pulling waits"
	eventually(t, func() bool { return len(s.log.lines(line)) == 2 }, text("it opens anew"))
	s.waitTold("app", false, "status 500") // not the cause of the outage before
}
