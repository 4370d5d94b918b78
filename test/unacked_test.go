package test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	sidecarapp "github.com/jetsidecar/jetsidecar/internal/app"
	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

// Verdicts that never arrive, here for want of a permission: what was answered is not called again by this process, and
// what was stored in the DLQ is there once, also after another process had to decide again.
func TestVerdictsThatDoNotArrive(t *testing.T) {
	w := newWorldOn(t, localnats.Options{Config: `
		authorization: {users: [
			{user: all, password: all},
			{user: some, password: some, permissions: {publish: {deny: "$JS.ACK.>"}}}
		]}
		no_auth_user: all`})
	w.app.on(badAndGood)
	short := consumer(func(c *config.Consumer) { c.AckWait = shortAckWait })
	s := w.sidecar(short, func(c *config.Config) { c.NATS.User, c.NATS.Password, c.ShutdownTimeout = "some", "some", time.Second })
	s.waitReady()
	good, bad := w.publish("orders.good", "x"), w.publish("orders.bad", "x")
	w.waitDead(1)
	redelivered := func() bool { return w.consumer(durable).NumRedelivered == 2 }
	eventually(t, redelivered, text("both to come again"))
	throughout(t, 500*time.Millisecond, func() bool { return w.app.count() == 2 && len(w.dead()) == 1 }, text("nothing is called or stored again"))
	if err := s.stop(); !errors.Is(err, sidecarapp.ErrUnconfirmed) {
		t.Errorf("the stop: %v", err)
	}
	w.running()
	w.balanceAfterKills()
	if n := len(w.dead()); n != 1 {
		t.Errorf("%d entries", n)
	}
	if a, b := len(w.app.of(good)), len(w.app.of(bad)); a != 2 || b != 2 {
		t.Errorf("%d and %d calls by two processes", a, b)
	}
}

// An answer that does not end is no answer: app.timeout is for the whole of it.
func TestAnswerThatDoesNotEnd(t *testing.T) {
	w := newWorld(t)
	w.app.on(func(c *call) reply {
		if c.nth > 1 {
			return reply{status: 200}
		}
		return reply{trickle: true}
	})
	s := w.running(func(c *config.Config) { c.App.Timeout = shortTimeout })
	seq := w.publish("orders.a", "x")
	w.balance()
	if n := len(w.app.of(seq)); n != 2 {
		t.Errorf("%d calls", n)
	}
	line := s.log.waitSettled(t, seq, 2)[0]
	if line["status"] != 0.0 || line["verdict"] != "retry" {
		t.Errorf("log line %v", line)
	}
	if took, err := time.ParseDuration(fmt.Sprint(line["duration"])); err != nil || took < shortTimeout {
		t.Errorf("the first attempt was given up after %v, the app had %s", line["duration"], shortTimeout)
	}
}
