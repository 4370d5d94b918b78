package test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/localnats"
	"github.com/jetsidecar/jetsidecar/policy"
)

const retryStream = "sidecar-retries"

// narrow lets a durable have few messages pending, of which long retries soon hold half.
func narrow(delay time.Duration) option {
	return consumer(func(c *config.Consumer) {
		c.MaxAckPending, c.Concurrency, c.Prefetch = 40, 8, 8
		c.Retry.Initial, c.Retry.Max, c.Retry.Jitter = delay, delay, 0.1
	})
}

// waiting is how many messages wait in the retry stream, or are due there. The server counts them at one moment: read one by
// one, a message that falls due meanwhile is seen neither where it was nor where it is.
func (w *world) waiting() int {
	w.t.Helper()
	var info struct {
		State struct {
			Subjects map[string]int
		}
		Error *natsjs.APIError
	}
	if !w.has("STREAM.INFO."+retryStream, []byte(`{"subjects_filter": ">"}`), &info, &info.Error) && info.Error == nil {
		return -1 // no answer is not "none"
	}
	n := 0
	for subject, messages := range info.State.Subjects {
		if !strings.Contains(subject, ".done.") {
			n += messages
		}
	}
	return n
}

// Messages that wait long for a retry, more than the durable may have pending, hold up no others, nor do they when a sidecar
// starts over.
func TestManyRetriesHoldUpNobody(t *testing.T) {
	for _, retention := range []natsjs.RetentionPolicy{natsjs.LimitsPolicy, natsjs.WorkQueuePolicy} {
		t.Run(retention.String(), func(t *testing.T) {
			w := newWorld(t, func(c *natsjs.StreamConfig) { c.Retention = retention })
			w.app.on(func(c *call) reply {
				if c.subject == "orders.bad" {
					return reply{status: 503}
				}
				return reply{status: 200}
			})
			const bad = 300
			for range bad {
				w.publish("orders.bad", "x")
			}
			s := w.running(narrow(time.Hour))
			dwindles(t, func() int { return bad - w.app.count() }, func() string { return fmt.Sprintf("%d calls, which are %d", bad, w.app.count()) })
			good := w.publish("orders.good", "x")
			eventually(t, func() bool { return len(w.app.of(good)) == 1 }, text("the good one to be called"))
			eventually(t, func() bool { return w.consumer(durable).NumAckPending+w.waiting() == bad }, func() string {
				return fmt.Sprintf("%d bad ones at the durable and %d in the retry stream to be %d", w.consumer(durable).NumAckPending, w.waiting(), bad)
			})
			if n := w.consumer(durable).NumAckPending; n > 36 {
				t.Errorf("%d of 40 are pending at the durable", n)
			}
			if err := s.stop(); err != nil {
				t.Error(err)
			}
			w.running(narrow(time.Hour))
			good = w.publish("orders.good", "x")
			eventually(t, func() bool { return len(w.app.of(good)) == 1 }, text("the good one to be called"))
			if w.app.count() != bad+2 {
				t.Errorf("%d calls, want %d", w.app.count(), bad+2)
			}
		})
	}
}

// A message that waits in the retry stream is the same to the app and in the DLQ, and is tried as often as any.
func TestRetriesOfTheRetryStream(t *testing.T) {
	w := newWorld(t)
	w.app.on(func(c *call) reply {
		if c.subject == "orders.late" && c.nth == 3 {
			return reply{status: 200}
		}
		return reply{status: 503, body: "no"}
	})
	for i := range 30 {
		w.publish("orders.bad", fmt.Sprint("body ", i), "Nats-Msg-Id: id-"+fmt.Sprint(i), "X-Two: a", "X-Two: b", "Nats-Expected-Stream: ORDERS", "x-two: c: d ")
		w.publish("orders.late", "")
	}
	w.running(narrow(time.Second), consumer(func(c *config.Consumer) { c.MaxDeliver = 3 }))
	w.balance()
	seen := map[uint64][]call{}
	for _, c := range w.app.all() {
		seen[c.seq] = append(seen[c.seq], c)
	}
	for seq, calls := range seen {
		for i, c := range calls {
			if got := c.header.Get("Nats-Num-Delivered"); got != fmt.Sprint(i+1) {
				t.Errorf("message %d, call %d: delivered %s", seq, i+1, got)
			}
			first := calls[0]
			for _, h := range []string{"Nats-Subject", "Nats-Stream", "Nats-Consumer", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Msg-Id", "Idempotency-Key", "X-Two", "Nats-Max-Deliver", "Nats-Expected-Stream"} {
				if got, want := c.header.Values(h), first.header.Values(h); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("message %d, call %d: %s is %q, was %q", seq, i+1, h, got, want)
				}
			}
			if c.body != first.body {
				t.Errorf("message %d, call %d: body %q", seq, i+1, c.body)
			}
			if i > 0 && c.begun.Sub(calls[i-1].ended) < 900*time.Millisecond {
				t.Errorf("message %d, call %d came %s after the one before", seq, i+1, c.begun.Sub(calls[i-1].ended))
			}
		}
		if len(calls) != 3 {
			t.Errorf("message %d was called %d times", seq, len(calls))
		}
	}
	for _, e := range w.dead() {
		if e.header.Get("Dlq-Deliveries") != "3" || e.header.Get("Dlq-Reason") != "max_deliver" || e.header.Get("X-Two") == "" || e.subject != "dlq.ORDERS.worker.orders.bad" {
			t.Errorf("entry %s %v", e.subject, e.header)
		}
	}
}

// Sidecars that are killed while messages move to the retry stream and back lose nothing and dead-letter nothing twice, and
// call what was leased again, but no more.
func TestKillsAroundTheRetryStream(t *testing.T) {
	for _, retention := range []natsjs.RetentionPolicy{natsjs.LimitsPolicy, natsjs.WorkQueuePolicy} {
		t.Run(retention.String(), func(t *testing.T) {
			w := newWorld(t, func(c *natsjs.StreamConfig) { c.Retention = retention })
			w.app.on(mixed)
			w.publishMixed()
			env := w.environment("SIDECAR_CONSUMERS_0_ACK_WAIT=1s", "SIDECAR_CONSUMERS_0_MAX_DELIVER=3", "SIDECAR_CONSUMERS_0_CONCURRENCY=4",
				"SIDECAR_CONSUMERS_0_PREFETCH=4", "SIDECAR_LOG_LEVEL=warn", "SIDECAR_CONSUMERS_0_MAX_ACK_PENDING=16", "SIDECAR_CONSUMERS_0_DEDUPE_STORE=off",
				"SIDECAR_CONSUMERS_0_RETRY_INITIAL=1100ms", "SIDECAR_CONSUMERS_0_RETRY_MAX=1500ms", "SIDECAR_CONSUMERS_0_RETRY_JITTER=0")
			kills := 0
			for ; kills < 6 && !(w.done() && w.waiting() == 0); kills++ {
				one, two := start(t, env...), start(t, env...)
				calls := w.app.count() + 20 + rand.N(40)
				eventually(t, func() bool { return w.app.count() >= calls || w.done() && w.waiting() == 0 }, func() string { return "calls:\n" + one.log.String() })
				one.kill()
				calls = w.app.count() + rand.N(20) // the other goes on for a while
				eventually(t, func() bool { return w.app.count() >= calls || w.done() && w.waiting() == 0 }, func() string { return "calls:\n" + two.log.String() })
				two.kill()
			}
			w.running(narrow(time.Second), consumer(func(c *config.Consumer) { c.MaxDeliver, c.AckWait, c.MaxAckPending = 3, time.Second, 16 }))
			w.balanceAfterKills()
			w.fates()
			if len(w.read(retryStream)) == 0 {
				t.Error("nothing was in the retry stream")
			}
			extra := w.app.count() - (40 + 40 + 40 + 2*40 + 3*40) // good, bad, drop, flaky, dead
			if most := kills * 2 * 8; extra > most {
				t.Errorf("%d calls too many after %d kills of processes that lease 8 each", extra, 2*kills)
			}
		})
	}
}

// Where the retry stream may not be used, retries wait at the durable.
func TestRetriesWithoutTheRetryStream(t *testing.T) {
	w := newWorld(t)
	w.app.on(func(c *call) reply {
		if c.nth == 1 {
			return reply{status: 503}
		}
		return reply{status: 200}
	})
	w.streamOf(natsjs.StreamConfig{Name: retryStream, Subjects: []string{"sidecar.retry.>"}}) // without schedules
	for range 100 {
		w.publish("orders.a", "x")
	}
	s := w.running(narrow(time.Second))
	w.balance()
	eventually(t, func() bool { return strings.Contains(s.log.String(), "allow_msg_schedules") }, text("the log to say what the retry stream lacks"))
}

// Without permission for the retry stream retries wait at the durable too, and none of them longer.
func TestRetriesWithoutPermissionForTheRetryStream(t *testing.T) {
	w := newWorldOn(t, localnats.Options{Config: `
		authorization { users = [
			{user: test, password: test}
			{user: some, password: some, permissions: {publish: {deny: ["sidecar.retry.>", "$JS.API.STREAM.*.sidecar-retries", "$JS.API.STREAM.MSG.GET.sidecar-retries"]}}}
		] }
		no_auth_user: test`})
	w.app.on(func(c *call) reply {
		if c.nth == 1 {
			return reply{status: 503}
		}
		return reply{status: 200}
	})
	for range 100 {
		w.publish("orders.a", "x")
	}
	w.running(narrow(time.Second), func(c *config.Config) { c.NATS.User, c.NATS.Password = "some", "some" })
	w.balance()
	if w.streamInfo(retryStream) != nil {
		t.Error("there is a retry stream")
	}
}

// A breaker that is half open counts as open while messages wait in the retry stream, whoever moved them, and as closed when none does, whatever was
// moved before.
func TestHalfOpenAndTheRetryStream(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			w := newWorld(t)
			w.app.setReady(200)
			w.app.on(func(c *call) reply {
				if c.subject == "orders.bad" {
					return reply{status: 503}
				}
				return reply{status: 200}
			})
			run := func() *sidecar {
				return w.running(narrow(time.Hour), consumer(func(c *config.Consumer) {
					c.MaxDeliver, c.Concurrency, c.Prefetch = 0, 2, 2
					c.Breaker = policy.BreakerConfig{Failures: 10, ProbeInterval: 50 * time.Millisecond, ProbeMax: 200 * time.Millisecond, Hold: time.Hour}
				}), func(c *config.Config) {
					c.App.Ready.Path, c.App.Ready.Interval = "/ready", time.Hour // it is asked for the breaker alone
				})
			}
			s := run()
			for range 35 {
				w.publish("orders.bad", "x")
				w.publish("orders.good", "x")
			}
			eventually(t, func() bool { return w.app.count() == 70 && w.waiting() > 0 }, text("some to be moved"))
			if restart {
				w.must(s.stop())
				s = run()
			}
			w.purge() // so that no more are moved
			s.waitMetric("sidecar_ack_pending", func(v float64) bool { return v == 0 && w.consumer(durable).NumAckPending == 0 })

			w.app.on(always(reply{status: 503}))
			for range 10 {
				w.publish("orders.new", "x")
			}
			s.waitMetric("sidecar_breaker_open", atLeast(1))
			w.purge()
			eventually(t, func() bool {
				return len(s.log.lines("the breaker is half open: the app is ready, and the next message is tried alone")) == 1
			}, text("half open"))
			for _, name := range []string{"sidecar_pending", "sidecar_ack_pending"} {
				s.waitMetric(name, func(v float64) bool { return v == 0 })
			}
			before := w.app.probed()
			eventually(t, func() bool { return w.app.probed() >= before+3 }, text("the app to be asked when nothing is left at the durable"))
			if s.admin.metric("sidecar_breaker_open") != 1 || w.waiting() <= 0 {
				t.Error("it counts as closed while messages wait in the retry stream")
			}
			w.purgeOf(retryStream)
			s.waitReady()
			s.waitMetric("sidecar_breaker_open", func(v float64) bool { return v == 0 })
		})
	}
}
