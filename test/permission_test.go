package test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

// permitted is a server's configuration in which the sidecar's user may not publish to some subjects.
func permitted(deny ...string) string {
	return fmt.Sprintf(`
		authorization: {users: [
			{user: all, password: all},
			{user: some, password: some, permissions: {publish: {deny: [%s]}}}
		]}
		no_auth_user: all`, strings.Join(deny, ", "))
}

// some is the user whose permissions change.
func some(c *config.Config) { c.NATS.User, c.NATS.Password = "some", "some" }

// A permission that is taken under way is told, and when it is given back all goes on by itself: nothing is lost, and nothing is
// called a second time.
func TestPermissionTakenAndGivenBack(t *testing.T) {
	for name, c := range map[string]struct {
		deny  string
		names string // what the log or a failing check names
		check string // of /readyz, which fails meanwhile; empty: none does
		stuck func(w *world) bool
	}{
		"ack":                 {`"$JS.ACK.>"`, "$JS.ACK.", "", func(w *world) bool { return w.consumer(durable).NumAckPending >= 10 }},
		"pull":                {`"$JS.API.CONSUMER.MSG.NEXT.>"`, "CONSUMER.MSG.NEXT", "consumer", func(w *world) bool { return w.consumer(durable).NumPending > 0 }},
		"look at the durable": {`"$JS.API.CONSUMER.INFO.>"`, "CONSUMER.INFO", "consumer", func(*world) bool { return true }},
		"dead-letter":         {`"dlq.>"`, "dlq.", "dlq", func(w *world) bool { return w.consumer(durable).NumAckPending > 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorldOn(t, localnats.Options{Config: permitted()})
			w.app.on(badAndGood)
			s := w.running(some)
			load := func() {
				for i := range 40 { // more than one pull request asks for
					w.publish([]string{"orders.good", "orders.bad"}[i%2], "x")
				}
			}
			load()
			w.waitDone()
			w.must(w.nats.Reload(permitted(c.deny)))
			load()
			eventually(t, func() bool { return s.says(c.check, c.names) && c.stuck(w) }, func() string {
				return c.names + " to be named, and something to be stuck: " + s.admin.text("/readyz") + "\n" + s.log.end()
			})
			w.must(w.nats.Reload(permitted()))
			s.waitReady()
			w.balance()
			if n := w.app.count(); n != 80 {
				t.Errorf("%d calls for 80 messages", n)
			}
		})
	}
}

// says reports whether a check is failing, and it or the log names a word. Without a check the log must.
func (s *sidecar) says(name, word string) bool {
	c, _ := s.admin.readiness().check(name)
	return (name == "" || !c.OK) && (strings.Contains(c.Detail, word) || strings.Contains(s.log.String(), word))
}

// The inboxes of the sidecar may not be subscribed to for a moment. The server drops their subscriptions for good, also those that were there, so
// the sidecar asks for them again over another connection.
func TestInboxRefusedForAMoment(t *testing.T) {
	refusing := strings.Replace(permitted(), "publish: {deny: []}", `subscribe: {deny: ["_INBOX.>"]}`, 1)
	for name, atStart := range map[string]bool{"at start": true, "under way": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorldOn(t, localnats.Options{Config: permitted()})
			var s *sidecar
			if !atStart {
				s = w.running(some)
			}
			w.must(w.nats.Reload(refusing))
			if atStart {
				s = w.sidecar(some)
			}
			eventually(t, func() bool { return strings.Contains(s.log.String(), "_INBOX.") }, func() string { return "a refused inbox to be named:\n" + s.log.end() })
			w.must(w.nats.Reload(permitted()))
			for range 20 {
				w.publish("orders.good", "x")
			}
			s.waitReady()
			w.balance()
		})
	}
}
