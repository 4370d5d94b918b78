package jetstream

import (
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// headersOnly edits the durable to deliver headers only, or to deliver bodies again.
func (b *bench) headersOnly(on bool) {
	b.t.Helper()
	cfg := b.info().Config
	cfg.HeadersOnly = on
	b.must(b.js.UpdateConsumer(b.ctx, "S", cfg))
}

func (b *bench) publishBody(body []byte) {
	b.t.Helper()
	b.must(b.js.Publish(b.ctx, "s.x", body))
}

// whole takes so many messages, which must come with this body, and acks them.
func (b *bench) whole(n int, body string) {
	b.t.Helper()
	for range n {
		m := b.next()
		if string(m.Body) != body || len(m.Header[msgSizeHeader]) > 0 {
			b.t.Fatalf("%d came with a body of %d bytes and the headers %v", m.Sequence, len(m.Body), m.Header)
		}
		m.Ack()
	}
}

// A durable that is edited to deliver headers only, while it is served, brings the app no message without its body; and what a publisher says of a
// size is no reason to hold one back.
func TestEditedToHeadersOnly(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.run(b.config())
	b.must(b.js.PublishMsg(b.ctx, &nats.Msg{Subject: "s.x", Header: nats.Header{msgSizeHeader: {"7"}}}))
	if m := b.next(); m.Sequence != 1 || len(m.Body) != 0 || m.Header[msgSizeHeader][0] != "7" {
		t.Fatalf("got %+v", m)
	} else {
		m.Ack()
	}
	b.headersOnly(true)
	for range 5 {
		b.publishBody([]byte("body"))
	}
	b.eventually("it is refused", func() bool { return !b.source.Status().Bound })
	b.headersOnly(false)
	b.whole(5, "body")
	b.eventually("everything is acked", b.settled)
}

// Nothing is pulled from a durable that was edited so that it cannot be served, also by the requests that wait there: each would bring a
// message once more.
func TestRefusedEndsPulls(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	cfg := b.config()
	cfg.Concurrency, cfg.Prefetch = 64, 64
	b.run(cfg)
	b.publish(100)
	for range 100 {
		b.next().Ack()
	}
	b.eventually("everything is acked", b.settled)
	b.headersOnly(true)
	lanes := func() int {
		b.source.mu.Lock()
		defer b.source.mu.Unlock()
		return len(b.source.lanes)
	}
	b.eventually("no request waits", func() bool { return !b.source.Status().Bound && lanes() == 0 })
	before := b.info().Delivered.Consumer
	b.publishBody([]byte("body"))
	b.eventually("the durable has it", func() bool { return b.info().NumPending == 1 || b.info().Delivered.Consumer != before })
	if info := b.info(); info.NumPending != 1 || info.NumWaiting != 0 || info.Delivered.Consumer != before {
		t.Errorf("the server holds back %d, %d requests wait, %d deliveries", info.NumPending, info.NumWaiting, info.Delivered.Consumer-before)
	}
	b.headersOnly(false)
	b.whole(1, "body")
}

func TestMayLackBody(t *testing.T) {
	for name, c := range map[string]struct {
		m    *Message
		want bool
	}{
		"a body":                       {&Message{Body: []byte("x"), Header: map[string][]string{msgSizeHeader: {"7"}}}, false},
		"no header":                    {&Message{}, false},
		"left out":                     {&Message{Header: map[string][]string{msgSizeHeader: {"7"}}}, true},
		"was empty":                    {&Message{Header: map[string][]string{msgSizeHeader: {"0"}}}, false},
		"the server's word is last":    {&Message{Header: map[string][]string{msgSizeHeader: {"0", "7"}}}, true},
		"headers that nobody can read": {&Message{HeaderLost: true}, true},
	} {
		if got := mayLackBody(c.m); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
