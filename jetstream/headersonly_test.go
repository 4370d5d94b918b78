package jetstream

import (
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A durable that is edited to deliver headers only, while it is served, brings the app no message without its body; and what a publisher says of a
// size is no reason to hold one back.
func TestEditedToHeadersOnly(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.run(b.config())
	b.must(b.js.PublishMsg(b.ctx, &nats.Msg{Subject: "s.x", Header: nats.Header{msgSizeHeader: {"7"}}}))
	if m := b.next(); m.Sequence != 1 || len(m.Body) != 0 {
		t.Fatalf("got %+v", m)
	} else {
		m.Ack()
	}
	edit := func(headersOnly bool) {
		cfg := b.info().Config
		cfg.HeadersOnly = headersOnly
		b.must(b.js.UpdateConsumer(b.ctx, "S", cfg))
	}
	edit(true)
	for range 5 {
		b.must(b.js.Publish(b.ctx, "s.x", []byte("body")))
	}
	b.eventually("it is refused, and nothing is leased", func() bool { return !b.source.Status().Bound && b.source.Leased() == 0 })
	if m := b.source.TakeReady(); m != nil {
		t.Errorf("%d is offered with the body %q", m.Sequence, m.Body)
	}
	edit(false)
	for range 5 {
		m := b.next()
		if string(m.Body) != "body" {
			t.Errorf("%d came with the body %q", m.Sequence, m.Body)
		}
		m.Ack()
	}
}
