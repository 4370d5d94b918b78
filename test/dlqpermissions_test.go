package test

import (
	"os"
	"strings"
	"testing"

	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

// The permissions that docs/dlq.md lists are all that the tools need.
func TestDLQPermissions(t *testing.T) {
	text, err := os.ReadFile("../docs/dlq.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(text), "```text\npublish:\n")
	block, _, ok2 := strings.Cut(after, "subscribe:")
	if !ok || !ok2 {
		t.Fatal("docs/dlq.md lists no permissions")
	}
	var allowed []string
	for line := range strings.Lines(block) {
		if fields := strings.Fields(line); len(fields) > 0 {
			allowed = append(allowed, strings.ReplaceAll(fields[0], "orders-worker", durable))
		}
	}
	w := newWorldOn(t, localnats.Options{Config: `
		no_auth_user: test
		authorization { users = [{user: "test", password: "test"}, {user: "tool", password: "tool", permissions: {
			publish: {allow: ["` + strings.Join(allowed, `", "`) + `"]}, subscribe: {allow: ["_INBOX.>"]}}}] }`})
	w.bury(4)
	env := w.environment("SIDECAR_NATS_USER=tool", "SIDECAR_NATS_PASSWORD=tool")
	for _, args := range []string{"list", "list --subject orders.k1", "stats --consumer worker", "show 1", "replay 1", "replay 2 --to stream", "rm --seq 3 --yes"} {
		if s := w.dlqWith(env, strings.Fields(args)...); s.code != 0 || s.err != "" {
			t.Errorf("%s: %+v", args, s)
		}
	}
	w.app.on(always(reply{status: 400}))
	if s := w.dlqWith(env, "replay", "4"); s.code != 1 || !strings.Contains(s.out, "1 failed again") {
		t.Errorf("%+v", s)
	}
	if es := w.dead(); len(es) != 1 || es[0].header.Get("Dlq-Replays") != "1" {
		t.Errorf("%v", es)
	}
}

// Who lacks a permission that every entry needs is told which, once, and the run ends there.
func TestDLQPermissionThatIsMissing(t *testing.T) {
	for _, c := range []struct{ deny, args, out, err string }{
		{"$JS.API.STREAM.MSG.DELETE.>", "rm --yes", "0 of 20 entries removed, 20 not tried", "the user may not publish to $JS.API.STREAM.MSG.DELETE.ORDERS_DLQ"},
		{"dlq.>", "replay --yes", "0 of 20 entries replayed, 1 left as they were, 19 not tried", "the user may not publish to dlq.ORDERS.worker.orders."},
	} {
		t.Run(c.args, func(t *testing.T) {
			w := newWorldOn(t, localnats.Options{Config: `
				no_auth_user: test
				authorization { users = [{user: "test", password: "test"}, {user: "tool", password: "tool", permissions: {publish: {deny: "` + c.deny + `"}}}] }`})
			w.bury(20)
			w.app.on(always(reply{status: 400}))
			s := w.dlqWith(w.environment("SIDECAR_NATS_USER=tool", "SIDECAR_NATS_PASSWORD=tool"), strings.Fields(c.args)...)
			if s.code != 1 || !strings.Contains(s.out, c.out) || strings.Count(s.err, "sidecar dlq ") != 1 || !strings.Contains(s.err, c.err) {
				t.Errorf("%s: %+v", c.args, s)
			}
			if n := len(w.dead()); n != 20 {
				t.Errorf("%s: %d entries are left", c.args, n)
			}
		})
	}
}
