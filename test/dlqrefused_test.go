package test

import (
	"strings"
	"testing"

	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

// A user that may not publish to the DLQ: the message is held back, others flow, nothing is lost.
func TestDLQWithoutPermission(t *testing.T) {
	w := newWorldOn(t, localnats.Options{Config: `
		authorization: {users: [
			{user: all, password: all},
			{user: some, password: some, permissions: {publish: {deny: "dlq.>"}}}
		]}
		no_auth_user: all`})
	w.app.on(badAndGood)
	s := w.sidecar(func(c *config.Config) { c.NATS.User, c.NATS.Password = "some", "some" })
	s.waitReady()
	held := w.publish("orders.bad", "x")
	w.heldBack(s, held)
	if strings.Contains(s.log.String(), `"password"`) {
		t.Error("the password is logged")
	}
	w.must(s.stop())
	w.running() // with another user
	w.balance()
	w.deadOf(held)
}

// A subject may be so long that the entry's would not be taken.
func TestDLQOfALongSubject(t *testing.T) {
	w := newWorld(t)
	w.app.on(always(reply{status: 400}))
	w.running()
	subject := "orders." + strings.Repeat("long.", 690) + "end"
	seq := w.publish(subject, "x")
	w.balance()
	if e := w.deadOf(seq); e.header.Get("Dlq-Subject") != subject || !strings.HasPrefix(e.subject, "dlq.ORDERS.worker.") {
		t.Errorf("stored as %q", e.subject)
	}
}
