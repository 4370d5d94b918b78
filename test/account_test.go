package test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

// account is a server's configuration with one account and its JetStream limits.
func account(limits string) string {
	return fmt.Sprintf(`
		accounts: {ORDERS: {jetstream: {%s}, users: [{user: all, password: all}]}, SYS: {users: [{user: sys, password: sys}]}}
		system_account: SYS
		no_auth_user: all`, limits)
}

const unlimited = "max_store: 1GB, max_mem: 1GB, max_streams: 100, max_consumers: 100"

// An account that may have no more streams: the DLQ cannot be made until it may. Dead letters wait, and others flow.
func TestAccountMayHaveNoMoreStreams(t *testing.T) {
	w := newWorldOn(t, localnats.Options{Config: account(unlimited)})
	w.must(w.nats.Reload(account("max_store: 1GB, max_mem: 1GB, max_streams: 1, max_consumers: 100")))
	w.app.on(badAndGood)
	s := w.sidecar()
	held := w.publish("orders.bad", "x")
	w.heldBack(s, held)
	if c, _ := s.admin.readiness().check("dlq"); !strings.Contains(c.Detail, "maximum number of streams") {
		t.Errorf("the cause is not told: %q", c.Detail)
	}
	w.must(w.nats.Reload(account(unlimited)))
	w.recovered(s, held)
}

// An account whose storage is used up: the DLQ cannot take an entry until there is room.
func TestAccountHasNoMoreStorage(t *testing.T) {
	w := newWorldOn(t, localnats.Options{Config: account(unlimited)})
	w.app.on(badAndGood)
	s := w.running()
	before := w.publish("orders.bad", "x")
	w.waitDone()
	w.deadOf(before)
	stop := make(chan struct{})
	w.app.on(func(c *call) reply {
		r := badAndGood(c)
		r.gate = stop
		return r
	})
	held := w.publish("orders.bad", "x")
	for range 20 {
		w.publish("orders.good", "x")
	}
	eventually(t, func() bool { return w.app.inFlight() > 0 }, text("a call"))
	w.must(w.nats.Reload(account("max_store: 1KB, max_mem: 1GB, max_streams: 100, max_consumers: 100")))
	close(stop)
	s.waitMetric("sidecar_dlq_publish_failures_total", atLeast(2))
	if detail := s.waitCheck("dlq", false); !strings.Contains(detail, "resource") && !strings.Contains(detail, "storage") {
		t.Errorf("the cause is not told: %q", detail)
	}
	eventually(t, func() bool { return s.admin.verdicts("ack") >= 20 }, text("others to flow"))
	w.must(w.nats.Reload(account(unlimited)))
	w.recovered(s, held)
}

// An account that may have no more consumers: the durable cannot be made until it may.
func TestAccountMayHaveNoMoreConsumers(t *testing.T) {
	w := newWorldOn(t, localnats.Options{Config: account(unlimited)})
	w.try("make another durable", func(ctx context.Context) error {
		_, err := w.js.CreateConsumer(ctx, stream, natsjs.ConsumerConfig{Durable: "other", AckPolicy: natsjs.AckExplicitPolicy})
		return err
	})
	w.must(w.nats.Reload(account("max_store: 1GB, max_mem: 1GB, max_streams: 100, max_consumers: 1")))
	s := w.sidecar()
	for range 10 {
		w.publish("orders.a", "x")
	}
	eventually(t, func() bool { return s.says("consumer", "maximum consumers") }, func() string { return "the limit to be told: " + s.admin.text("/readyz") })
	w.must(w.nats.Reload(account(unlimited)))
	s.waitReady()
	w.untouchedAtFirst()
}
