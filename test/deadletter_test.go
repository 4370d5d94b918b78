package test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

func TestEntrySaysEverything(t *testing.T) {
	w := newWorld(t)
	w.app.on(always(reply{status: 422, header: map[string]string{"Sidecar-Reason": "no such customer"}, body: `{"field":"customer"}`}))
	before := time.Now()
	seq := w.publish("orders.eu.new", "the body", "Nats-Msg-Id: id-1", "X-Many: one", "X-Many: two", "x-many: three", "traceparent: 00-ab",
		"Dlq-Reason: forged", "Dlq-Sequence: 99", "Dlq-Anything: forged", "Content-Type: text/plain")
	w.running()
	w.balance()
	e, stamp := w.deadOf(seq), w.storedAt(seq)
	if e.subject != "dlq.ORDERS.worker.orders.eu.new" || e.body != "the body" {
		t.Errorf("subject %q, body %q", e.subject, e.body)
	}
	failed, err := time.Parse(time.RFC3339Nano, e.header.Get("Dlq-Failed-At"))
	if err != nil || failed.Before(before) || failed.After(time.Now()) {
		t.Errorf("Dlq-Failed-At %q", e.header.Get("Dlq-Failed-At"))
	}
	e.header.Del("Dlq-Failed-At")
	want := map[string][]string{
		"Nats-Msg-Id": {fmt.Sprintf("ORDERS:worker:%d:%d", seq, stamp.UnixNano())},
		"Dlq-Reason":  {"rejected"}, "Dlq-Status": {"422"}, "Dlq-Error": {"no such customer"}, "Dlq-Response": {`{"field":"customer"}`},
		"Dlq-Stream": {stream}, "Dlq-Consumer": {durable}, "Dlq-Subject": {"orders.eu.new"}, "Dlq-Sequence": {fmt.Sprint(seq)},
		"Dlq-Time-Stamp": {stamp.Format(time.RFC3339Nano)}, "Dlq-Msg-Id": {"id-1"}, "Dlq-Deliveries": {"1"},
		"X-Many": {"one", "two"}, "x-many": {"three"}, "traceparent": {"00-ab"}, "Content-Type": {"text/plain"},
	}
	for name := range e.header {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %q is too much", name, e.header[name])
		}
	}
	for name, values := range want {
		if !slices.Equal(e.header[name], values) {
			t.Errorf("%s: %q, want %q", name, e.header[name], values)
		}
	}
}

func TestDLQStreamIsMade(t *testing.T) {
	w := newWorld(t)
	w.running()
	info := w.streamInfo(dlq)
	if info == nil {
		t.Fatal("there is none")
	}
	c := info.Config
	if !slices.Equal(c.Subjects, []string{"dlq.ORDERS.*.>"}) || c.Storage != natsjs.FileStorage || c.MaxAge != 0 || c.Discard != natsjs.DiscardNew ||
		!c.AllowDirect || c.Duplicates != time.Hour || c.MaxMsgs > 0 || c.MaxBytes > 0 {
		t.Errorf("%+v", c)
	}
}

// The subjects are added to a DLQ stream that exists, which stays as it is otherwise.
func TestDLQStreamThatExists(t *testing.T) {
	w := newWorld(t)
	w.dlqOf(func(c *natsjs.StreamConfig) { c.Subjects, c.MaxAge = []string{"other.>"}, 48*time.Hour })
	w.app.on(always(reply{status: 400}))
	w.running()
	w.publish("orders.a", "x")
	w.balance()
	if c := w.streamInfo(dlq).Config; !slices.Equal(c.Subjects, []string{"other.>", "dlq.ORDERS.*.>"}) || c.MaxAge != 48*time.Hour {
		t.Errorf("%+v", c)
	}
}

func TestDLQNamesOfTheUser(t *testing.T) {
	w := newWorld(t)
	w.app.on(always(reply{status: 400}))
	w.running(consumer(func(c *config.Consumer) {
		c.DLQ.Stream, c.DLQ.Subject = "DEAD_{stream}_{consumer}", "dead.{consumer}.{stream}.{subject}"
	}))
	seq := w.publish("orders.a", "x")
	w.quiet(seq) // not in the usual DLQ
	w.balance()
	es := w.read("DEAD_ORDERS_worker")
	if len(es) != 1 || es[0].subject != "dead.worker.ORDERS.orders.a" || es[0].source() != seq {
		t.Errorf("%+v", es)
	}
}

// Headers that command the server are not copied: they would make the DLQ refuse, expire or purge.
func TestCommandsAreStripped(t *testing.T) {
	allow := func(c *natsjs.StreamConfig) { c.AllowRollup, c.AllowMsgTTL, c.AllowMsgCounter = true, true, false }
	w := newWorld(t, allow)
	w.dlqOf(allow)
	w.app.on(always(reply{status: 400}))
	first := w.publish("orders.first", "x")
	w.running()
	w.waitDead(1)
	commanding := []uint64{
		w.publish("orders.a", "x", "Nats-Rollup: sub", "Kept: yes"),
		w.publish("orders.b", "x", "Nats-TTL: 1h", "Kept: yes"),
		w.publish("orders.c", "x", "Nats-Expected-Stream: ORDERS", "Nats-Expected-Last-Subject-Sequence: 0", "Kept: yes"),
		w.publish("orders.d", "x", fmt.Sprintf("Nats-Expected-Last-Sequence: %d", first+3), "Kept: yes"),
		w.publish("orders.e", "x", "Nats-Expected-Last-Msg-Id: ", "nats-rollup: all", "nats-ttl: 1s", "NATS-EXPECTED-STREAM: none", "Kept: yes"),
		w.publish("orders.f", "x", "Nats-Pin-Id: 1", "Nats-Marker-Reason: Purge", "Kept: yes"),
	}
	w.balance()
	for _, seq := range commanding {
		for name, values := range w.deadOf(seq).header {
			lower := strings.ToLower(name)
			if strings.HasPrefix(lower, "nats-") && lower != "nats-msg-id" || lower == "nats-msg-id" && !strings.HasPrefix(values[0], "ORDERS:worker:") {
				t.Errorf("message %d: %s: %q", seq, name, values)
			}
		}
		if kept := w.deadOf(seq).header.Get("Kept"); kept != "yes" {
			t.Errorf("message %d: Kept: %q", seq, kept)
		}
	}
}

// A schedule is stored as a message. Its headers would make the DLQ schedule too.
func TestScheduleIsStripped(t *testing.T) {
	w := newWorld(t, func(c *natsjs.StreamConfig) { c.AllowMsgSchedules, c.AllowMsgTTL = true, true })
	w.app.on(always(reply{status: 400}))
	at := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	seq := w.publish("orders.later", "x", "Nats-Schedule: @at "+at, "Nats-Schedule-Target: orders.now", "Nats-Schedule-TTL: 5m", "Kept: yes")
	w.running()
	w.balance()
	e := w.deadOf(seq)
	for name := range e.header {
		if strings.HasPrefix(name, "Nats-Schedule") {
			t.Errorf("%s: %q", name, e.header[name])
		}
	}
	if e.header.Get("Kept") != "yes" {
		t.Errorf("%v", e.header)
	}
}

func TestHostileAnswers(t *testing.T) {
	nasty := "first\nsecond\r\nNats-Rollup: all\x00\x1b[31m\x7f\xff\xfe\xc3\x28 \u2028 \u0085 end"
	head := func(status, reason, body string) string {
		return fmt.Sprintf("HTTP/1.1 %s\r\nSidecar-Reason: %s\r\nContent-Length: %d\r\n\r\n%s", status, reason, len(body), body)
	}
	oneLine := strings.NewReplacer("\n", "", "\r", "", "\x00", "").Replace(nasty)
	for name, r := range map[string]reply{
		"body":        {status: 400, body: nasty},
		"large body":  {status: 400, body: strings.Repeat(nasty, 100<<10/len(nasty))},
		"runes":       {status: 400, body: strings.Repeat("€", 1000)},
		"binary body": {status: 400, body: strings.Repeat("\xff\x00\n", 1000)},
		"blank body":  {status: 400, body: strings.Repeat(" \n", 1000)},
		"reason":      {raw: head("400 Bad", oneLine, nasty)},
		"long reason": {raw: head("400 Bad", strings.Repeat("ü", 5000), "x")},
		"tabs":        {raw: head("400 Bad", "a\tb\t", "\t")},
		"huge reason": {status: 400, header: map[string]string{"Sidecar-Reason": strings.Repeat("x", 100<<10)}},
		"nul reason":  {raw: head("400 Bad", "a\x00b", "x")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.app.on(always(r))
			w.running(consumer(func(c *config.Consumer) { c.MaxDeliver = 2 }))
			seq := w.publish("orders.a", "the body", "Kept: yes")
			w.balance()
			e := w.deadOf(seq)
			for _, name := range []string{"Dlq-Error", "Dlq-Response"} {
				v := e.header.Get(name)
				if len(v) > 1024 || !utf8.ValidString(v) || strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' }) {
					t.Errorf("%s has %d bytes: %q", name, len(v), v)
				}
			}
			if e.body != "the body" || e.header.Get("Kept") != "yes" || e.header.Get("Nats-Rollup") != "" {
				t.Errorf("%q, %v", e.body, e.header)
			}
		})
	}
}

func TestDLQDisabled(t *testing.T) {
	w := newWorld(t)
	w.app.on(always(reply{status: 400}))
	s := w.running(consumer(func(c *config.Consumer) { c.DLQ.Enabled = false }))
	seq := w.publish("orders.a", "x")
	w.quiet(seq)
	w.balance()
	if w.streamInfo(dlq) != nil {
		t.Error("there is a DLQ stream")
	}
	if n := len(w.app.of(seq)); n != 1 {
		t.Errorf("%d calls", n)
	}
	errors := 0
	for l := range strings.Lines(s.log.String()) {
		if strings.Contains(l, `"level":"ERROR"`) && strings.Contains(l, fmt.Sprintf(`"sequence":%d`, seq)) {
			errors++
		}
	}
	if errors != 1 {
		t.Errorf("%d lines of level error:\n%s", errors, s.log)
	}
}

// A message that was dead-lettered does not stand in the way of a corrected one under the same id.
func TestCorrectedMessageUnderTheSameId(t *testing.T) {
	w := newWorld(t, func(c *natsjs.StreamConfig) { c.Duplicates = 100 * time.Millisecond })
	w.app.on(func(c *call) reply {
		if c.body == "wrong" {
			return reply{status: 400}
		}
		return reply{status: 200}
	})
	w.running()
	wrong := w.publish("orders.a", "wrong", "Nats-Msg-Id: id-1")
	w.waitDead(1)
	again := w.publishAfterWindow("orders.a", "wrong", "id-1")
	w.waitDead(2)
	right := w.publishAfterWindow("orders.a", "right", "id-1")
	w.balance()
	for _, seq := range []uint64{wrong, again, right} {
		if n := len(w.app.of(seq)); n != 1 {
			t.Errorf("message %d was called %d times", seq, n)
		}
	}
}
