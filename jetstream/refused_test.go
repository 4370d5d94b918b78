package jetstream

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
)

// denial is what a server says that refuses something.
func denial(operation, subject string) []byte {
	return fmt.Appendf(nil, "-ERR 'Permissions Violation for %s to %q'\r\n", operation, subject)
}

// onWire runs f with a client that logs, over a wire to a server which says nothing of itself, in the time of a bubble.
func onWire(t *testing.T, f func(c *Conn, w *fakeWire, log *lockedText)) {
	bubble(t, func(t *testing.T) {
		var log lockedText
		w := &fakeWire{log: slog.New(slog.NewTextHandler(&log, nil)), take: func(*fakeWire, string, string, []byte) {}}
		c, err := w.client()
		if err != nil {
			t.Fatal(err)
		}
		defer w.set(true)
		defer hangUp(c)
		synctest.Wait()
		f(c, w, &log)
	})
}

// A refused inbox is asked for again over another connection, after 5 s and then after twice that, up to a minute. An advisory is not.
func TestRefusedSubscriptions(t *testing.T) {
	for name, c := range map[string]struct {
		operation, subject string
		serves             bool
		reconnects         uint64
	}{
		"inbox":                     {"Subscription", "_INBOX.a.*", true, 4 + 58}, // 5, 10, 20 and 40 s, then each minute
		"inbox, with its id":        {`Subscription to "_INBOX.a.*" (sid "1")' -ERR '`, "", true, 4 + 58},
		"inbox of who only looks":   {"Subscription", "_INBOX.a.*", false, 0},
		"advisory":                  {"Subscription", "$JS.EVENT.ADVISORY.CONSUMER.DELETED.S.d", true, 0},
		"publish to another's box ": {"Publish", "_INBOX.a.b", true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			onWire(t, func(conn *Conn, w *fakeWire, _ *lockedText) {
				if c.serves {
					defer conn.watch(func(bool) {})()
				}
				var last uint64
				for range 4 * 3600 { // an hour
					w.send(denial(c.operation, c.subject))
					time.Sleep(250 * time.Millisecond)
					synctest.Wait()
				}
				if last = conn.nc().Stats().Reconnects; last != c.reconnects {
					t.Errorf("%d reconnects, want %d", last, c.reconnects)
				}
				time.Sleep(time.Hour) // it is not refused any more
				if n := conn.nc().Stats().Reconnects; n > last+1 {
					t.Errorf("%d reconnects after it was given back", n-last)
				}
			})
		})
	}
}

// A refusal is complained of once in 30 s for all subjects of a kind.
func TestRefusalsOfAKind(t *testing.T) {
	onWire(t, func(conn *Conn, w *fakeWire, log *lockedText) {
		for i := range 900 { // 90 s
			for _, subject := range []string{
				"$JS.ACK.S.d.1.%d.7.8.0", "$JS.ACK.S.e.1.%d.7.8.0", "$KV.sidecar-dedupe.%d", "sidecar.retry.%d", "dlq.S.%d",
				"$JS.API.DIRECT.GET.KV_b.$KV.b.%d", "_INBOX.%d",
			} {
				w.send(denial("Publish", fmt.Sprintf(subject, i)))
			}
			w.send(denial("Subscription", fmt.Sprintf("$JS.EVENT.%d", i%2)))
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		if n := strings.Count(log.String(), "nats reported an error"); n != 9*3 {
			t.Errorf("%d lines of 9 kinds in 90 s:\n%s", n, log)
		}
	})
}

func TestRefusedKind(t *testing.T) {
	c := newConn(Config{Domain: "hub"}, quiet())
	for subject, want := range map[string]string{
		"$JS.hub.API.CONSUMER.MSG.NEXT.S.d":        "CONSUMER.MSG.NEXT.S.d",
		"$JS.hub.API.STREAM.INFO.S":                "STREAM.INFO.S",
		"$JS.hub.API.DIRECT.GET.KV_b.$KV.b.k":      "DIRECT.GET.KV_b",
		"$JS.hub.API.$KV.b.k":                      "$KV.b",
		"$KV.b.k.l":                                "$KV.b",
		"$JS.ACK.hub.account.S.d.1.2.3.4.5":        "$JS.ACK.hub.account",
		"$JS.EVENT.ADVISORY.CONSUMER.DELETED.S.d":  "$JS.EVENT.ADVISORY.CONSUMER.DELETED.S.d",
		nats.InboxPrefix + "aaa.*":                 nats.InboxPrefix,
		"dlq":                                      "dlq",
		"dlq.S.orders.a":                           "dlq.S",
		"$JS.hub.API.CONSUMER.CREATE.S.d.orders.>": "CONSUMER.CREATE.S.d.orders",
	} {
		if got := c.refusedKind(subject); got != want {
			t.Errorf("%s: %s, want %s", subject, got, want)
		}
	}
}
