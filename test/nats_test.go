package test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

func TestNATSAwayAtStart(t *testing.T) {
	w := newWorld(t)
	w.publish("orders.a", "x")
	w.nats.Shutdown()
	s := w.sidecar()
	s.waitCheck("nats", false)
	s.waitCheck("consumer", false)
	if live, ready := s.admin.status("/livez"), s.admin.status("/readyz"); live != 200 || ready != 503 {
		t.Errorf("/livez %d, /readyz %d", live, ready)
	}
	w.must(w.nats.Restart())
	s.waitReady()
	w.untouchedAtFirst()
}

// While NATS is away the log says so a few times a minute.
func TestLogWhileNATSIsAway(t *testing.T) {
	w := newWorld(t)
	s := w.running()
	w.nats.Shutdown()
	s.waitCheck("nats", false)
	warnings := func() int {
		return strings.Count(s.log.String(), `"level":"WARN"`) + strings.Count(s.log.String(), `"level":"ERROR"`)
	}
	throughout(t, 3*time.Second, func() bool { return warnings() <= 5 }, func() string { return "the log stays short:\n" + s.log.String() })
	if warnings() == 0 {
		t.Error("it is not said at all")
	}
	w.must(w.nats.Restart())
	s.waitReady()
}

func TestStreamMissingAtStart(t *testing.T) {
	w := newWorld(t)
	w.anew(stream)
	s := w.sidecar()
	s.waitTold("consumer", false, stream)
	w.makeStream()
	w.publish("orders.a", "x")
	s.waitReady()
	w.untouchedAtFirst()
}

// Restarts under load lose nothing, and what was answered is not asked again.
func TestRestartsUnderLoad(t *testing.T) {
	w := newWorld(t)
	w.app.on(func(c *call) reply {
		switch {
		case c.seq%17 == 0:
			return reply{status: 400}
		case c.seq%5 == 0 && c.nth == 1:
			return reply{status: 503}
		}
		return reply{status: 200, delay: time.Millisecond}
	})
	w.running(consumer(func(c *config.Consumer) { c.AckWait, c.Concurrency, c.MaxDeliver = time.Second, 4, 0 }))
	for i := range 300 {
		w.publish("orders.a", "x", fmt.Sprintf("Nats-Msg-Id: m-%d", i))
		if i%100 == 60 {
			w.must(w.nats.Restart())
		}
	}
	w.balance()
	if n := len(w.published); n != 300 {
		t.Errorf("%d messages were stored", n)
	}
}

// A durable that vanishes while a sidecar runs goes on where it was.
func TestDurableDeleted(t *testing.T) {
	for _, retention := range []natsjs.RetentionPolicy{natsjs.LimitsPolicy, natsjs.WorkQueuePolicy} {
		t.Run(retention.String(), func(t *testing.T) {
			w := newWorld(t, func(c *natsjs.StreamConfig) { c.Retention = retention })
			w.running(consumer(func(c *config.Consumer) { c.DeliverPolicy = "new" }), consumer(allFromStart(retention)))
			for range 10 {
				w.publish("orders.a", "x")
			}
			w.waitDone()
			w.flooredAt(10)
			open := make(chan struct{})
			w.app.on(func(*call) reply { return reply{status: 200, gate: open} })
			w.publish("orders.a", "held")
			eventually(t, func() bool { return w.app.inFlight() == 1 }, text("the call"))
			w.deleteDurable()
			eventually(t, func() bool { i := w.consumer(durable); return i != nil && i.NumAckPending == 1 }, text("the second delivery"))
			throughout(t, 200*time.Millisecond, func() bool { return w.app.inFlight() == 1 }, text("it waits for the first"))
			close(open)
			w.app.on(always(reply{status: 200}))
			for range 10 {
				w.publish("orders.a", "x")
			}
			w.balance()
			if c := w.consumer(durable).Config; retention == natsjs.LimitsPolicy && c.OptStartSeq != 11 {
				t.Errorf("it starts at %d", c.OptStartSeq)
			}
			for _, c := range w.app.all() {
				if c.nth > 1 {
					t.Errorf("message %d was called again", c.seq)
				}
			}
		})
	}
}

// allFromStart is what a work queue demands.
func allFromStart(r natsjs.RetentionPolicy) func(*config.Consumer) {
	return func(c *config.Consumer) {
		if r == natsjs.WorkQueuePolicy {
			c.DeliverPolicy = "all"
		}
	}
}

// flooredAt waits until the sidecar has seen an acknowledgement floor. It asks for the durable again and again. Where an answer
// takes long it asks twice or three times at once: it has read one when it asks for the fourth time.
func (w *world) flooredAt(floor uint64) {
	w.t.Helper()
	eventually(w.t, func() bool { return w.consumer(durable).AckFloor.Stream >= floor }, text("the floor"))
	questions, err := w.nc.SubscribeSync("$JS.API.CONSUMER.INFO." + stream + "." + durable)
	w.must(err)
	w.must(w.nc.Flush())
	eventually(w.t, func() bool { n, _, err := questions.Pending(); return err == nil && n >= 4 }, text("the sidecar to look again"))
	w.must(questions.Unsubscribe())
}

func (w *world) deleteDurable() {
	w.t.Helper()
	w.try("delete the durable", func(ctx context.Context) error { return w.js.DeleteConsumer(ctx, stream, durable) })
}

// A stream that is made anew under way is served again, and a verdict over an old message settles none of the new.
func TestStreamMadeAnewUnderWay(t *testing.T) {
	w := newWorld(t, func(c *natsjs.StreamConfig) { c.Retention = natsjs.WorkQueuePolicy })
	open := make(chan struct{})
	w.app.on(func(c *call) reply {
		if c.body == "old" {
			return reply{status: 200, gate: open}
		}
		return reply{status: 503, gate: open}
	})
	s := w.running()
	w.publish("orders.a", "old")
	eventually(t, func() bool { return w.app.inFlight() == 1 }, text("the old message to be called"))
	w.anew(stream)
	w.published = nil
	w.makeStream(func(c *natsjs.StreamConfig) { c.Retention = natsjs.WorkQueuePolicy })
	seq := w.publish("orders.a", "new") // the same sequence as the old one
	eventually(t, func() bool { return w.app.inFlight() == 2 }, text("the new message to be called"))
	close(open)
	eventually(t, func() bool { return s.admin.verdicts("retry") >= 1 }, text("the new message to be retried"))
	if _, ok := w.message(stream, seq); !ok {
		t.Fatal("the new message is gone, which nobody accepted")
	}
	w.app.on(always(reply{status: 200}))
	w.waitDone()
	if calls := w.app.all(); calls[len(calls)-1].body != "new" || calls[len(calls)-1].reply.status != 200 {
		t.Errorf("the last call was of %q", calls[len(calls)-1].body)
	}
}

func TestDurableIsServedAsItIs(t *testing.T) {
	w := newWorld(t)
	w.durableOf(func(c *natsjs.ConsumerConfig) {
		c.AckWait, c.MaxAckPending, c.FilterSubject = 7*time.Second, 3, "orders.a"
	})
	was := w.consumer(durable).Config
	open := make(chan struct{})
	w.app.on(func(*call) reply { return reply{status: 200, gate: open} })
	s := w.running()
	for range 10 {
		w.publish("orders.a", "x")
	}
	eventually(t, func() bool { return w.app.inFlight() == 3 }, text("three calls"))
	throughout(t, 200*time.Millisecond, func() bool { return w.app.inFlight() == 3 }, text("the server's bound holds"))
	close(open)
	w.balance()
	if now := w.consumer(durable).Config; fmt.Sprint(now) != fmt.Sprint(was) {
		t.Errorf("the durable was changed to %+v", now)
	}
	for _, field := range []string{"ack_wait", "max_ack_pending", "filter_subjects"} {
		if !strings.Contains(s.log.String(), field+" is") {
			t.Errorf("no warning of %s:\n%s", field, s.log)
		}
	}
}

// A short ack wait of the server's is what keeps leases alive, not the configured one.
func TestLeasesGoByTheServersAckWait(t *testing.T) {
	w := newWorld(t)
	w.durableOf(func(c *natsjs.ConsumerConfig) { c.AckWait = shortAckWait })
	open := make(chan struct{})
	w.app.on(func(*call) reply { return reply{status: 200, gate: open} })
	w.running(consumer(func(c *config.Consumer) { c.AckWait = time.Minute }))
	w.publish("orders.a", "x")
	w.staysLeased(1)
	close(open)
	w.untouchedAtFirst()
}

func TestDurableThatIsRefused(t *testing.T) {
	for name, change := range map[string]func(*natsjs.ConsumerConfig){
		"push":     func(c *natsjs.ConsumerConfig) { c.DeliverSubject = "deliver.here" },
		"ack none": func(c *natsjs.ConsumerConfig) { c.AckPolicy = natsjs.AckNonePolicy },
		"ack all":  func(c *natsjs.ConsumerConfig) { c.AckPolicy = natsjs.AckAllPolicy },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			cfg := natsjs.ConsumerConfig{Durable: durable, AckPolicy: natsjs.AckExplicitPolicy}
			change(&cfg)
			ctx, cancel := within()
			defer cancel()
			var err error
			if cfg.DeliverSubject != "" {
				_, err = w.js.CreatePushConsumer(ctx, stream, cfg)
			} else {
				_, err = w.js.CreateConsumer(ctx, stream, cfg)
			}
			w.must(err)
			s := w.sidecar()
			word := strings.Fields(name)[0]
			eventually(t, func() bool {
				c, _ := s.admin.readiness().check("consumer")
				return !c.OK && strings.Contains(c.Detail, "cannot be served") && strings.Contains(c.Detail, word)
			}, func() string { return "the durable to be refused: " + s.admin.text("/readyz") })
			w.publish("orders.a", "x")
			throughout(t, 300*time.Millisecond, func() bool { return w.app.count() == 0 }, text("nothing is called"))
			if w.consumer(durable) == nil {
				t.Error("the durable was deleted")
			}
			w.deleteDurable()
			s.waitReady()
			w.untouched()
		})
	}
}

// With manage: none there is no create or update call at all.
func TestManageNone(t *testing.T) {
	w := newWorld(t)
	calls, err := w.nc.SubscribeSync("$JS.API.CONSUMER.*.>")
	w.must(err)
	w.must(w.nc.Flush())
	t.Cleanup(func() { _ = calls.Unsubscribe() })
	s := w.sidecar(consumer(func(c *config.Consumer) { c.Manage = "none" }))
	s.waitCheck("consumer", false)
	w.publish("orders.a", "x")
	throughout(t, 1500*time.Millisecond, func() bool { return w.consumer(durable) == nil }, text("the durable is not made"))
	created := 0
	for m, err := calls.NextMsg(time.Millisecond); err == nil; m, err = calls.NextMsg(time.Millisecond) {
		if strings.Contains(m.Subject, "CREATE") {
			created++
		}
	}
	if created > 0 {
		t.Errorf("%d calls to create", created)
	}
	w.durableOf(func(c *natsjs.ConsumerConfig) { c.AckWait = 5 * time.Second })
	s.waitReady()
	w.balance()
	if got := w.consumer(durable).Config.AckWait; got != 5*time.Second {
		t.Errorf("the ack wait was changed to %s", got)
	}
}

func TestManageUpdate(t *testing.T) {
	w := newWorld(t)
	w.durableOf(func(c *natsjs.ConsumerConfig) {
		c.AckWait, c.MaxDeliver, c.Metadata = 5*time.Second, 3, map[string]string{"owner": "us"}
	})
	w.running(consumer(func(c *config.Consumer) { c.Manage, c.FilterSubjects = "update", []string{"orders.>"} }))
	w.publish("orders.a", "x")
	w.balance()
	c := w.consumer(durable).Config
	if c.AckWait != 30*time.Second || c.MaxDeliver > 0 || c.FilterSubject != "orders.>" || c.Metadata["owner"] != "us" {
		t.Errorf("%+v", c)
	}
}

// A durable made here has no limit and no backoff on the server.
func TestDurableMadeHere(t *testing.T) {
	w := newWorld(t)
	w.publish("orders.b", "before")
	w.running(consumer(func(c *config.Consumer) {
		c.AckWait, c.MaxAckPending, c.FilterSubjects, c.DeliverPolicy = 9*time.Second, 77, []string{"orders.a", "orders.b"}, "new"
	}))
	c := w.consumer(durable).Config
	if c.MaxDeliver > 0 || len(c.BackOff) > 0 || c.AckWait != 9*time.Second || c.MaxAckPending != 77 || len(c.FilterSubjects) != 2 ||
		c.DeliverPolicy != natsjs.DeliverNewPolicy || c.AckPolicy != natsjs.AckExplicitPolicy || c.DeliverSubject != "" {
		t.Errorf("%+v", c)
	}
	seq := w.publish("orders.a", "after")
	w.waitDone()
	if calls := w.app.all(); len(calls) != 1 || calls[0].seq != seq {
		t.Errorf("%d calls", len(calls))
	}
}

func TestAckAsync(t *testing.T) {
	w := newWorld(t)
	w.app.on(each(reply{status: 503}, reply{status: 200}))
	s := w.running(consumer(func(c *config.Consumer) { c.Ack = "async" }))
	for range 50 {
		w.publish("orders.a", "x")
	}
	w.balance()
	w.must(s.stop())
}

// A durable that is deleted again and again fills no log, and is served all the same.
func TestLogOfADurableDeletedAgainAndAgain(t *testing.T) {
	w := newWorld(t)
	s := w.running()
	begun := time.Now()
	for range 8 {
		before := w.consumer(durable).Created
		w.deleteDurable()
		eventually(t, func() bool { i := w.consumer(durable); return i != nil && i.Created.After(before) }, text("the durable to be made anew"))
		s.waitCheck("consumer", true)
	}
	minutes := 1 + int(time.Since(begun)/time.Minute)
	lost, created := len(s.log.lines("the durable is lost, looking for it")), len(s.log.lines("created the durable"))
	asItIs := len(s.log.lines("the durable is served as it is")) // it starts elsewhere each time
	if lost == 0 || lost > 3*minutes || created > 1+3*minutes || asItIs > 1+3*minutes {
		t.Errorf("%d lines that it is lost, %d that it is made:\n%s", lost, created, s.log)
	}
	w.publish("orders.a", "x")
	w.balance()
}
