package test

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

func TestRequestSaysWhatIsDelivered(t *testing.T) {
	w := newWorld(t)
	open := make(chan struct{})
	w.app.on(func(c *call) reply { return reply{status: 200, gate: open} })
	first := w.publish("orders.eu.new", "one", "Nats-Msg-Id: id-1")
	w.publish("orders.eu.new", "two")
	w.publish("orders.eu.new", "three")
	w.running(func(c *config.Config) { c.App.URL += "/base/" }, consumer(func(c *config.Consumer) {
		c.Path, c.Method, c.Concurrency, c.Prefetch, c.MaxDeliver = "/hook/a%2Fb/ü", "PUT", 1, 0, 7
	}))
	eventually(t, func() bool { return w.app.count() == 1 }, text("the first call"))
	c := w.app.all()[0]
	close(open)
	if c.method != "PUT" || c.uri != "/base/hook/a%2Fb/%C3%BC" || c.host != w.app.address || c.body != "one" {
		t.Errorf("%s %s at %s: %q", c.method, c.uri, c.host, c.body)
	}
	if c.length != 3 || len(c.encoding) > 0 {
		t.Errorf("content length %d, transfer encoding %q", c.length, c.encoding)
	}
	e, _ := w.message(stream, first)
	stamp := w.storedAt(first)
	for name, want := range map[string]string{
		"Nats-Subject": "orders.eu.new", "Nats-Stream": stream, "Nats-Consumer": durable, "Nats-Sequence": strconv.FormatUint(e.seq, 10),
		"Nats-Time-Stamp": stamp.Format(time.RFC3339Nano), "Nats-Num-Delivered": "1", "Nats-Max-Deliver": "7", "Nats-Num-Pending": "2",
		"Nats-Msg-Id": "id-1", "Idempotency-Key": "id-1", "Content-Type": "application/octet-stream",
	} {
		if got := c.header.Values(name); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	w.balance()
}

// storedAt is when the stream stored a message, by another way than the consumer's.
func (w *world) storedAt(seq uint64) time.Time {
	w.t.Helper()
	ctx, cancel := within()
	defer cancel()
	s, err := w.js.Stream(ctx, stream)
	w.must(err)
	m, err := s.GetMsg(ctx, seq)
	w.must(err)
	return m.Time.UTC()
}

func TestHeadersPassOn(t *testing.T) {
	w := newWorld(t)
	w.publish("orders.a", "x",
		"Content-Type: application/json; charset=utf-8", "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"tracestate: a=1,b=2", "baggage: k=v", "X-Many: one", "X-Many: two", "X-Many: three", "x-many: four", "X-Empty: ", "X-Text: a, b; c=\"d\"",
		"X-Latin: gr\xfc\xdfe", "User-Agent: mine", "Accept: text/plain", "X-Idempotency-Key: theirs")
	w.running()
	w.balance()
	h := w.app.all()[0].header
	for name, want := range map[string][]string{
		"Content-Type": {"application/json; charset=utf-8"}, "Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		"Tracestate": {"a=1,b=2"}, "Baggage": {"k=v"}, "X-Many": {"one", "two", "three", "four"}, "X-Empty": {""}, "X-Text": {`a, b; c="d"`},
		"X-Latin": {"gr\xfc\xdfe"}, "User-Agent": {"mine"}, "Accept": {"text/plain"}, "X-Idempotency-Key": {"theirs"},
	} {
		if got := h.Values(name); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for _, absent := range []string{"Nats-Msg-Id"} {
		if h.Get(absent) != "" {
			t.Errorf("%s: %q", absent, h.Values(absent))
		}
	}
}

// Neither where the sidecar sets a header of that name itself nor where it sets none.
func TestHeadersThatAMessageMustNotSet(t *testing.T) {
	t.Run("set", func(t *testing.T) {
		forge(t, map[string]string{"X-App": "ours", "Authorization": "Bearer secret"}, func(c *config.Config) {
			c.App.Headers, c.App.BearerToken = map[string]string{"X-App": "ours"}, "secret"
		})
	})
	t.Run("not set", func(t *testing.T) { forge(t, map[string]string{}, func(*config.Config) {}) })
}

// forge delivers a message with all the headers it must not set. What the app gets beside them is given.
func forge(t *testing.T, want map[string]string, o option) {
	w := newWorld(t)
	forged := []string{
		"Host", "Content-Length", "Transfer-Encoding", "Expect", "Authorization", "Cookie", "Connection", "Keep-Alive", "TE", "Trailer", "Upgrade",
		"Proxy-Authorization", "Proxy-Connection", "Proxy-Anything", "Nats-Subject", "Nats-Stream", "Nats-Consumer", "Nats-Sequence",
		"Nats-Time-Stamp", "Nats-Num-Delivered", "Nats-Max-Deliver", "Nats-Num-Pending", "Idempotency-Key",
	}
	if want["X-App"] != "" {
		forged = append(forged, "X-App")
	}
	var header []string
	for _, name := range forged {
		header = append(header, name+": forged", strings.ToLower(name)+": forged", strings.ToUpper(name)+": forged")
	}
	header = append(header, "Connection: X-Hop", "X-Hop: forged", "X-Kept: kept")
	seq := w.publish("orders.a", "body", header...)
	w.running(o)
	w.balance()
	c := w.app.of(seq)[0]
	want["X-Kept"], want["Nats-Subject"] = "kept", "orders.a"
	for name, values := range c.header {
		for _, v := range values {
			if strings.Contains(v, "forged") {
				t.Errorf("%s: %q", name, values)
			}
		}
	}
	for name, want := range want {
		if got := c.header.Values(name); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if c.host != w.app.address || c.length != 4 || len(c.encoding) > 0 || c.body != "body" {
		t.Errorf("host %q, length %d, encoding %q, body %q", c.host, c.length, c.encoding, c.body)
	}
}

func TestIdempotencyKeyStays(t *testing.T) {
	w := newWorld(t)
	w.app.on(each(reply{status: 503}, reply{reset: true}, reply{status: 200}))
	w.running()
	with, without := w.publish("orders.a", "x", "Nats-Msg-Id: id-7"), w.publish("orders.a", "x")
	blank := w.publish("orders.a", "x", "Nats-Msg-Id: caf\xe9 \x01")
	w.balance()
	keys := map[string]bool{}
	for _, seq := range []uint64{with, without, blank} {
		calls := w.app.of(seq)
		key := calls[0].header.Get("Idempotency-Key")
		if key == "" || keys[key] {
			t.Errorf("message %d: key %q", seq, key)
		}
		keys[key] = true
		for i, c := range calls {
			if c.header.Get("Idempotency-Key") != key || c.delivered != strconv.Itoa(i+1) {
				t.Errorf("message %d, call %d: key %q, delivered %s", seq, i+1, c.header.Get("Idempotency-Key"), c.delivered)
			}
		}
		if len(calls) != 3 {
			t.Errorf("message %d: %d calls", seq, len(calls))
		}
	}
	if !keys["id-7"] {
		t.Errorf("keys %v", keys)
	}
	own := fmt.Sprintf("%s:%d:%d", stream, without, w.storedAt(without).UnixNano())
	if !keys[own] {
		t.Errorf("keys %v, want %s among them", keys, own)
	}
}

func TestBodiesArriveUnchanged(t *testing.T) {
	w := newWorld(t)
	var bytes strings.Builder
	for i := range 1 << 10 {
		bytes.WriteByte(byte(i))
	}
	bodies := map[uint64]string{}
	for _, body := range []string{"", "x", "\r\n\r\n", bytes.String(), strings.Repeat("0123456789abcdef", 1<<16)[:1<<20]} {
		bodies[w.publish("orders.a", body)] = body
	}
	w.running()
	w.balance()
	for seq, want := range bodies {
		c := w.app.of(seq)[0]
		if c.body != want || c.length != int64(len(want)) || len(c.encoding) > 0 {
			t.Errorf("%d bytes arrived as %d, content length %d, encoding %q", len(want), len(c.body), c.length, c.encoding)
		}
	}
}

func TestNoLimitHasNoHeader(t *testing.T) {
	w := newWorld(t)
	w.publish("orders.a", "x")
	w.running(consumer(func(c *config.Consumer) { c.MaxDeliver = 0 }))
	w.balance()
	if h := w.app.all()[0].header; h.Get("Nats-Max-Deliver") != "" {
		t.Errorf("Nats-Max-Deliver %q", h.Get("Nats-Max-Deliver"))
	}
}

// One attempt is one request, also over connections that the app closed while they were idle.
func TestConnectionsAreKeptAndNotResentOn(t *testing.T) {
	w := newWorld(t)
	w.app.on(func(c *call) reply { return reply{status: http.StatusOK} })
	w.running(consumer(func(c *config.Consumer) { c.Concurrency = 2 }), func(c *config.Config) { c.App.Ready.Interval = time.Hour }) // a look is a connection
	for range 50 {
		w.publish("orders.a", "x")
	}
	w.balance()
	w.app.mu.Lock()
	defer w.app.mu.Unlock()
	if len(w.app.calls) != 50 || w.app.conns > 25 {
		t.Errorf("%d calls over %d connections", len(w.app.calls), w.app.conns)
	}
}
