package test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// firstVerdict is the word in the log for a message's first delivery.
func (s *sidecar) firstVerdict(seq uint64) string {
	s.t.Helper()
	return fmt.Sprint(s.log.waitSettled(s.t, seq, 1)[0]["verdict"])
}

// byStatus answers a message with the status at the end of its subject, and 200 from the second time on.
func byStatus(c *call) reply {
	if c.nth > 1 {
		return reply{status: 200}
	}
	status, _ := strconv.Atoi(c.subject[strings.LastIndexByte(c.subject, '.')+1:])
	return reply{status: status, header: map[string]string{"Location": "/elsewhere"}}
}

func TestStatusDecides(t *testing.T) {
	want := map[string][]int{
		"ack": {200, 201, 202, 203, 204, 205, 206, 207, 208, 226, 250, 299},
		"retry": {
			300, 301, 302, 303, 304, 305, 307, 308, 399, 401, 403, 404, 405, 407, 408, 409, 421, 423, 424, 425, 429,
			500, 501, 502, 503, 504, 505, 507, 508, 511, 520, 530, 599,
		},
		"dlq": {400, 402, 406, 410, 411, 412, 413, 414, 415, 416, 417, 418, 422, 426, 428, 431, 451, 444, 499},
	}
	w := newWorld(t)
	w.app.on(byStatus)
	s := w.running()
	of := map[int]uint64{}
	for _, statuses := range want {
		for _, status := range statuses {
			of[status] = w.publish("orders.s."+strconv.Itoa(status), "x")
		}
	}
	w.balance()
	for verdict, statuses := range want {
		for _, status := range statuses {
			if got := s.firstVerdict(of[status]); got != verdict {
				t.Errorf("%d: %s, want %s", status, got, verdict)
			}
			calls := w.app.of(of[status])
			if verdict == "retry" != (len(calls) == 2) || len(calls) > 2 {
				t.Errorf("%d: %d calls", status, len(calls))
			}
		}
	}
	for _, c := range w.app.all() {
		if c.method != http.MethodPost || c.uri != "/" {
			t.Errorf("%s %s was called", c.method, c.uri)
		}
	}
	for _, e := range w.dead() {
		subject := "orders.s." + e.header.Get("Dlq-Status")
		if e.header.Get("Dlq-Reason") != "rejected" || e.header.Get("Dlq-Subject") != subject {
			t.Errorf("entry of %s: %v", subject, e.header)
		}
	}
}

func TestActionOverridesStatus(t *testing.T) {
	w := newWorld(t)
	s := w.running()
	for _, c := range []struct {
		status       int
		action, want string
	}{
		{500, "ack", "ack"}, {400, "ACK", "ack"}, {302, " Ack ", "ack"},
		{200, "retry", "retry"}, {204, "ReTry", "retry"}, {400, "RETRY", "retry"},
		{200, "dlq", "dlq"}, {503, "DLQ", "dlq"}, {404, "Dlq", "dlq"},
		{200, "drop", "drop"}, {500, "dRoP", "drop"},
		{200, "nonsense", "ack"}, {400, "acknowledge", "dlq"}, {500, "", "retry"},
		{200, "dlq, retry", "retry"}, {500, "drop, nonsense, ack", "drop"},
	} {
		first := reply{status: c.status, header: map[string]string{"Sidecar-Action": c.action}, means: c.want}
		w.app.on(each(first, reply{status: 200}))
		seq := w.publish("orders.a", "x")
		if got := s.firstVerdict(seq); got != c.want {
			t.Errorf("%d with %q: %s, want %s", c.status, c.action, got, c.want)
		}
		if c.want == "retry" {
			s.log.waitSettled(t, seq, 2)
		}
	}
	w.balance()
	if n := counted(t, "drop", 3, s); n != 3 {
		t.Errorf("%v messages counted as dropped, want 3", n)
	}
}

func TestReasonIsKept(t *testing.T) {
	w := newWorld(t)
	w.app.on(always(reply{status: 422, header: map[string]string{"Sidecar-Reason": "no such customer"}, body: "details"}))
	s := w.running()
	seq := w.publish("orders.a", "x")
	line := s.log.waitSettled(t, seq, 1)[0]
	w.balance()
	if got := w.deadOf(seq).header.Get("Dlq-Error"); got != "no such customer" {
		t.Errorf("Dlq-Error %q", got)
	}
	if line["reason"] != "rejected" || line["error"] != "no such customer" {
		t.Errorf("log line %v", line)
	}
}

func TestStatusListsOfTheUser(t *testing.T) {
	w := newWorld(t)
	w.app.on(func(c *call) reply {
		r := byStatus(c)
		r.means = map[int]string{404: "ack", 410: "drop", 202: "dlq", 418: "retry"}[r.status]
		return r
	})
	s := w.running(consumer(func(c *config.Consumer) {
		c.Status.Ack = []string{"2xx", "404"}
		c.Status.DLQ = []string{"202", "5xx"}
		c.Status.Drop = []string{"410"}
	}))
	for status, want := range map[int]string{
		200: "ack", 404: "ack", 410: "drop", 202: "dlq", 500: "dlq", 503: "dlq",
		429: "retry", 302: "retry", // of a default list
		418: "retry", // in no list: the user's dlq has no 4xx
	} {
		seq := w.publish("orders.s."+strconv.Itoa(status), "x")
		if got := s.firstVerdict(seq); got != want {
			t.Errorf("%d: %s, want %s", status, got, want)
		}
	}
	w.balance()
}

// The user's class beats a default code: the lists that the user gives are looked up first.
func TestStatusClassOfTheUser(t *testing.T) {
	w := newWorld(t)
	w.app.on(byStatus)
	s := w.running(consumer(func(c *config.Consumer) { c.Status.DLQ = []string{"4xx"}; c.Status.Retry = []string{"400", "5xx"} }))
	for status, want := range map[int]string{404: "dlq", 429: "dlq", 400: "retry", 302: "retry", 200: "ack"} {
		seq := w.publish("orders.s."+strconv.Itoa(status), "x")
		if got := s.firstVerdict(seq); got != want {
			t.Errorf("%d: %s, want %s", status, got, want)
		}
	}
	w.balance()
}

func TestOddBodies(t *testing.T) {
	w := newWorld(t)
	s := w.running()
	for name, r := range map[string]reply{
		"none":        {status: 200},
		"false":       {status: 200, body: "false"},
		"error":       {status: 200, header: map[string]string{"Content-Type": "application/json"}, body: `{"error":"failed","ok":false}`},
		"page":        {status: 200, header: map[string]string{"Content-Type": "text/html"}, body: "<html>"},
		"bytes":       {status: 201, body: "\x00\xff\xfe\r\n\r\n"},
		"not json":    {status: 200, header: map[string]string{"Content-Type": "application/json"}, body: "{"},
		"not gzip":    {status: 200, header: map[string]string{"Content-Encoding": "gzip"}, body: "plain"},
		"large":       {status: 200, body: strings.Repeat("large", 1<<19)},
		"no content":  {status: 204},
		"reset":       {status: 205},
		"to its end":  {raw: "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end", means: "ack"},
		"http 1.0":    {raw: "HTTP/1.0 200 OK\r\n\r\n", means: "ack"},
		"no phrase":   {raw: "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", means: "ack"},
		"with hints":  {raw: "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", means: "ack"},
		"bad address": {raw: "HTTP/1.1 201 Created\r\nLocation: http://[::1\r\nContent-Length: 0\r\n\r\n", means: "ack"},
	} {
		w.app.on(always(r))
		seq := w.publish("orders.a", "x")
		if got := s.firstVerdict(seq); got != "ack" {
			t.Errorf("%s: %s", name, got)
		}
		if r.means == "ack" {
			w.quiet(seq) // the raw answer has no status in the ledger
		}
	}
	w.app.on(always(reply{status: 200}))
	w.waitDone()
	if n := w.app.count(); n != len(w.published) {
		t.Errorf("%d calls for %d messages", n, len(w.published))
	}
	w.balance()
}

func TestNoWholeAnswerIsRetried(t *testing.T) {
	w := newWorld(t)
	s := w.running(func(c *config.Config) { c.App.Timeout = shortTimeout })
	for name, r := range map[string]reply{
		"hangs":       {gate: make(chan struct{})},
		"resets":      {reset: true},
		"closes":      {raw: "\r\n"},
		"nonsense":    {raw: "hello\r\n\r\n"},
		"cut header":  {raw: "HTTP/1.1 200 OK\r\nContent-Le"},
		"cut body":    {raw: "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nten bytes."},
		"cut chunk":   {raw: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nten bytes."},
		"huge header": {status: 200, header: map[string]string{"X": strings.Repeat("x", 1<<17)}, means: "retry"},
	} {
		w.app.on(each(r, reply{status: 200}))
		seq := w.publish("orders.a", "x")
		lines := s.log.waitSettled(t, seq, 2)
		if lines[0]["verdict"] != "retry" || lines[0]["status"] != 0.0 || lines[0]["error"] == nil || lines[1]["verdict"] != "ack" {
			t.Errorf("%s: %v", name, lines)
		}
		if n := len(w.app.of(seq)); n != 2 {
			t.Errorf("%s: %d calls", name, n)
		}
	}
	w.balance()
}
