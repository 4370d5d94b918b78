package test

import (
	"strings"
	"testing"

	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

// A dead letter whose subject is too long for the server's max_control_line, over which it closes the connection for good, is stored all the
// same, and everything else goes on.
func TestDeadLetterThatEndsTheConnection(t *testing.T) {
	w := newWorldOn(t, localnats.Options{Config: "max_control_line: 1024"})
	w.app.on(func(c *call) reply {
		if strings.HasPrefix(c.subject, "orders.long") {
			return reply{status: 400}
		}
		return reply{status: 200}
	})
	s := w.running()
	subject := "orders.long" + strings.Repeat("x", 965)
	w.publish(subject, "a body")
	w.publish("orders.a", "another")
	w.balance()
	if dead := w.dead(); len(dead) != 1 || dead[0].header.Get("Dlq-Subject") != subject || !strings.Contains(dead[0].subject, "_long") {
		t.Errorf("%v", dead)
	}
	s.waitReady()
	why := func() bool { return strings.Contains(s.log.String(), "maximum control line exceeded") }
	eventually(t, why, text("the log to say why the connection was closed"))
}
