package test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// rawPublish stores a message with a header block as it is, which no client library would send.
func (w *world) rawPublish(subject, block, body string) uint64 {
	w.t.Helper()
	before := w.streamInfo(stream).State.LastSeq
	w.rawPublishTo(subject, block, body)
	eventually(w.t, func() bool { return w.streamInfo(stream).State.LastSeq == before+1 }, text("the message to be stored"))
	w.stored(before + 1)
	return before + 1
}

// rawPublishTo publishes so to a subject of any stream, which has it when this returns, or soon after.
func (w *world) rawPublishTo(subject, block, body string) {
	w.t.Helper()
	nc, err := net.Dial("tcp", strings.TrimPrefix(w.urls[0], "nats://"))
	w.must(err)
	defer nc.Close()
	w.must(nc.SetDeadline(time.Now().Add(patience)))
	fmt.Fprintf(nc, "CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\n")
	fmt.Fprintf(nc, "HPUB %s %d %d\r\n%s%s\r\nPING\r\n", subject, len(block), len(block)+len(body), block, body)
	in := bufio.NewScanner(nc)
	for in.Scan() && in.Text() != "PONG" {
		if strings.HasPrefix(in.Text(), "-ERR") {
			w.t.Fatal(in.Text())
		}
	}
}

func headerBlock(lines ...string) string {
	return "NATS/1.0\r\n" + strings.Join(append(lines, "", ""), "\r\n")
}

// hostile are header blocks, with an empty body or one, that have stopped clients or requests before.
var hostile = []struct{ name, block, body string }{
	{"status 100", headerBlock("Status: 100"), ""},
	{"status 100 with a description", headerBlock("Status: 100", "Description: FlowControl Request"), ""},
	{"status 200", headerBlock("Status: 200"), ""},
	{"status 400", headerBlock("Status: 400", "Description: Bad Request"), ""},
	{"status 404", headerBlock("Status: 404", "Description: No Messages"), ""},
	{"status 408", headerBlock("Status: 408", "Description: Request Timeout"), ""},
	{"status 409", headerBlock("Status: 409", "Description: Consumer Deleted"), ""},
	{"status 409 leader", headerBlock("Status: 409", "Description: Leadership Change"), ""},
	{"status 409 with pending", headerBlock("Status: 409", "Description: Message Size Exceeds MaxBytes", "Nats-Pending-Messages: 100"), ""},
	{"status 423", headerBlock("Status: 423", "Description: Nats-Pin-Id mismatch"), ""},
	{"status 503", headerBlock("Status: 503"), ""},
	{"status with a body", headerBlock("Status: 503"), "body"},
	{"status line", "NATS/1.0 503\r\n\r\n", ""},
	{"status line with a description", "NATS/1.0 409 Consumer Deleted\r\n\r\n", ""},
	{"no version", "nonsense\r\n\r\n", "body"},
	{"no colon", headerBlock("nonsense"), "body"},
	{"no end", "NATS/1.0\r\nA: b", "body"},
	{"no end, empty", "NATS/1.0\r\nA: b", ""},
	{"bytes", "\x00\xff\xfe\r\n\r\n", "body"},
	{"no header at all", "NATS/1.0\r\n\r\n", "body"},
	{"name with a blank", headerBlock("X Y: z", "Kept: yes"), "body"},
	{"name with a slash", headerBlock("X/Y: z", "Kept: yes"), "body"},
	{"name of another script", headerBlock("Größe: 1", "Kept: yes"), "body"},
	{"name of a control", headerBlock("X\x01: 1", "Kept: yes"), "body"},
	{"empty name", headerBlock(": 1", "Kept: yes"), "body"},
	{"leading blank", headerBlock(" X: 1", "Kept: yes"), "body"},
	{"value with a NUL", headerBlock("X: a\x00b", "Kept: yes"), "body"},
	{"value with a control", headerBlock("X: a\x01\x1b[31mb", "Kept: yes"), "body"},
	{"value with a return", headerBlock("X: a\rTransfer-Encoding: chunked", "Kept: yes"), "body"},
	{"value with a delete", headerBlock("X: a\x7f", "Kept: yes"), "body"},
	{"value of bytes", headerBlock("X: \xff\xfe", "Kept: yes"), "body"},
	{"line feed alone", headerBlock("X: a\nTransfer-Encoding: chunked\nKept: yes"), "body"},
	{"framing in lower case", headerBlock("transfer-encoding: chunked", "content-length: 1", "host: evil", "Kept: yes"), "body"},
	{"framing in capitals", headerBlock("TRANSFER-ENCODING: chunked", "CONTENT-LENGTH: 99", "Kept: yes"), "body"},
	{"protocol change", headerBlock("Connection: Upgrade", "Upgrade: h2c", "HTTP2-Settings: x", "Kept: yes"), "body"},
	{"expect", headerBlock("Expect: 100-continue", "Kept: yes"), "body"},
	{"bad content type", headerBlock("Content-Type: \x01", "Kept: yes"), "body"},
	{"id with a control", headerBlock("Nats-Msg-Id: a\x01b", "Kept: yes"), "body"},
	{"id of bytes", headerBlock("Nats-Msg-Id: \xff\xfe", "Kept: yes"), "body"},
	{"id twice", headerBlock("Nats-Msg-Id: one", "Nats-Msg-Id: two", "Kept: yes"), "body"},
}

// Hostile messages among good ones are delivered, body unchanged, and hold up nobody.
func TestHostileMessagesAreDelivered(t *testing.T) {
	w := newWorld(t)
	s := w.running()
	for _, h := range hostile {
		seq := w.rawPublish("orders.hostile", h.block, h.body)
		good := w.publish("orders.good", "x")
		eventually(t, func() bool { return len(w.app.of(seq)) == 1 && len(w.app.of(good)) == 1 }, func() string {
			return fmt.Sprintf("%s: the message and the one behind it\n%s", h.name, s.log)
		})
		c := w.app.of(seq)[0]
		if c.body != h.body || c.length != int64(len(h.body)) || len(c.encoding) > 0 || c.host != w.app.address {
			t.Errorf("%s: body %q, length %d, encoding %q, host %q", h.name, c.body, c.length, c.encoding, c.host)
		}
		if strings.Contains(h.block, "Kept: yes") && c.header.Get("Kept") != "yes" {
			t.Errorf("%s: the header beside it is lost: %v", h.name, c.header)
		}
	}
	w.balance()
	if s.admin.metric("sidecar_headers_dropped_total") < 10 {
		t.Errorf("%v headers are counted as dropped", s.admin.metric("sidecar_headers_dropped_total"))
	}
	if strings.Contains(s.log.String(), "durable is lost") {
		t.Errorf("a message was taken for the server's word:\n%s", s.log)
	}
}

// The same messages, rejected by the app, are all stored.
func TestHostileMessagesAreDeadLettered(t *testing.T) {
	w := newWorld(t)
	w.app.on(func(c *call) reply {
		if c.subject == "orders.good" {
			return reply{status: 200}
		}
		return reply{status: 400}
	})
	w.running()
	bodies := map[uint64]string{}
	for _, h := range hostile {
		bodies[w.rawPublish("orders.hostile", h.block, h.body)] = h.body
		w.publish("orders.good", "x")
	}
	w.balance()
	for _, e := range w.dead() {
		if body, ok := bodies[e.source()]; !ok || e.body != body {
			t.Errorf("message %d: body %q, want %q", e.source(), e.body, body)
		}
		delete(bodies, e.source())
	}
	if len(bodies) > 0 {
		t.Errorf("%d are not in the DLQ", len(bodies))
	}
}

// All at once, with few workers: none takes a worker with it.
func TestPoisonHoldsUpNobody(t *testing.T) {
	w := newWorld(t)
	for _, h := range hostile {
		w.rawPublish("orders.hostile", h.block, h.body)
		w.publish("orders.good", "x")
	}
	w.running(outage)
	w.untouched()
}
