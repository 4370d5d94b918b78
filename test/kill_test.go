package test

import (
	"math/rand/v2"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// mixed is an app of all sorts of messages. What it does with each is always the same, but for the flaky ones.
func mixed(c *call) reply {
	r := map[string]reply{
		"orders.good": {status: 200},
		"orders.bad":  {status: 422},
		"orders.dead": {status: 500},
		"orders.drop": {status: 200, header: map[string]string{"Sidecar-Action": "drop"}},
	}[c.subject]
	if c.subject == "orders.flaky" {
		r = reply{status: 503}
		if c.nth > 1 {
			r = reply{status: 200}
		}
	}
	r.delay = time.Millisecond
	return r
}

// publishMixed publishes 40 messages of each kind that mixed knows.
func (w *world) publishMixed() {
	w.t.Helper()
	for range 40 {
		for _, kind := range []string{"good", "bad", "flaky", "dead", "drop"} {
			w.publish("orders."+kind, "x")
		}
	}
}

// A sidecar that is killed at any moment, again and again, loses nothing and dead-letters nothing twice.
func TestKills(t *testing.T) {
	for _, retention := range []natsjs.RetentionPolicy{natsjs.LimitsPolicy, natsjs.WorkQueuePolicy} {
		t.Run(retention.String(), func(t *testing.T) {
			w := newWorld(t, func(c *natsjs.StreamConfig) { c.Retention = retention })
			w.app.on(mixed)
			w.publishMixed()
			env := w.environment("SIDECAR_CONSUMERS_0_ACK_WAIT=1s", "SIDECAR_CONSUMERS_0_MAX_DELIVER=4", "SIDECAR_CONSUMERS_0_CONCURRENCY=4",
				"SIDECAR_CONSUMERS_0_PREFETCH=8", "SIDECAR_LOG_LEVEL=warn")
			for kill := range 5 {
				p := start(t, env...)
				calls := w.app.count() + 20 + rand.N(20)
				eventually(t, func() bool { return w.app.count() >= calls || w.done() }, func() string { return "calls:\n" + p.log.String() })
				if w.done() {
					t.Logf("all was done before kill %d", kill+1)
				}
				p.kill()
			}
			w.running()
			w.balanceAfterKills()
			w.fates()
		})
	}
}

// done reports whether nothing is left to do.
func (w *world) done() bool {
	info := w.consumer(durable)
	return info != nil && info.Delivered.Stream >= w.last() && info.NumPending == 0 && info.NumAckPending == 0
}

// fates holds that each message went where its kind goes.
func (w *world) fates() {
	w.t.Helper()
	dead := map[uint64]bool{}
	for _, e := range w.dead() {
		dead[e.source()] = true
		switch e.header.Get("Dlq-Subject") {
		case "orders.good", "orders.drop":
			w.t.Errorf("message %d is dead for %s, and was good", e.source(), e.header.Get("Dlq-Reason"))
		}
	}
	for _, c := range w.app.all() {
		if (c.subject == "orders.bad" || c.subject == "orders.dead") && !dead[c.seq] {
			w.t.Errorf("message %d of %s is not dead", c.seq, c.subject)
		}
	}
}

// Of two sidecars one is killed: the other takes over what it had, and neither calls what the other's app accepted.
func TestKillOfOneOfTwo(t *testing.T) {
	w := newWorld(t)
	w.app.on(always(reply{status: 200, delay: 5 * time.Millisecond}))
	env := w.environment("SIDECAR_CONSUMERS_0_ACK_WAIT="+shortAckWait.String(), "SIDECAR_CONSUMERS_0_CONCURRENCY=4",
		"SIDECAR_CONSUMERS_0_PREFETCH=4")
	one, two := start(t, env...), start(t, env...)
	for range 100 {
		w.publish("orders.a", "x")
	}
	eventually(t, func() bool { return w.app.count() > 20 }, func() string { return "calls:\n" + one.log.String() + two.log.String() })
	one.kill()
	w.balanceAfterKills()
	if n := w.app.count() - 100; n > 8 {
		t.Errorf("%d messages were called twice; eight were leased", n)
	}
}
