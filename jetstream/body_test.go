package jetstream

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// unlooked keeps the source from looking at the durable until the function it returns is called.
func (b *bench) unlooked() (again func()) {
	b.t.Helper()
	return b.unlookedBy(b.source)
}

func (b *bench) unlookedBy(s *Source) (again func()) {
	b.t.Helper()
	b.eventually("no look is under way or wanted", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.looks.underWay || s.lookAhead || s.suspect || len(s.looks.wanted) > 0 {
			return false
		}
		s.looks.underWay, s.looks.end = true, func() {}
		return true
	})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.looks.underWay = false
		s.lookNow()
	}
}

// unreadable takes from the user that it may read the stream, until the function it returns is called.
func (b *bench) unreadable() (readable func()) {
	return b.unreadableOf("S")
}

func (b *bench) unreadableOf(stream string) (readable func()) {
	b.conn.refused(`nats: Permissions Violation for Publish to "$JS.API.STREAM.MSG.GET.` + stream + `"`)
	return func() {
		b.conn.mu.Lock()
		defer b.conn.mu.Unlock()
		clear(b.conn.denials)
	}
}

// bodiless publishes a message that comes without its body while the durable says again that it delivers all of each. Nothing is known of that until
// the function it returns is called.
func (b *bench) bodiless() (look func()) {
	b.t.Helper()
	look = b.unlooked()
	b.headersOnly(true)
	b.publishBody([]byte("body"))
	b.eventually("it came", func() bool { return b.source.Leased() == 1 })
	b.headersOnly(false)
	return look
}

// A message that came without its body gets it, whatever the durable says of itself by then.
func TestBodyIsRead(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		t.Run(fmt.Sprintf("ordered %v", ordered), func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{})
			cfg := b.config()
			cfg.Ordered = ordered
			b.run(cfg)
			b.bodiless()()
			m := b.next()
			if string(m.Body) != "body" || m.Delivered != 1 || len(m.Header) > 0 {
				t.Fatalf("got delivery %d with the body %q and the headers %v", m.Delivered, m.Body, m.Header)
			}
			b.source.mu.Lock()
			if b.source.bytes != m.size || m.size < int64(len(m.Body)) {
				t.Errorf("%d bytes count as leased, %d are", b.source.bytes, m.size)
			}
			b.source.mu.Unlock()
			m.Ack()
			b.eventually("everything is acked", b.settled)
		})
	}
}

// So does one by whose number the durable may be another.
func TestBodyIsReadBelowTheFloor(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.run(b.config())
	b.source.mu.Lock()
	for _, l := range b.source.lanes {
		l.floor = 1000
	}
	b.source.mu.Unlock()
	b.bodiless()()
	b.whole(1, "body")
}

// One whose body is read does not overtake another one of its key, nor do those behind it overtake it.
func TestBodyKeepsOrder(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	cfg := b.ordered()
	b.prepare = func(s *Source) {
		s.Tell(func(*Message) Key { return Key{} }, func(*Message) *Message { return nil }, func() {})
	}
	b.run(cfg)
	readable := b.unreadable()
	look := b.bodiless()
	b.publishBody([]byte("second"))
	two := b.source.Take(b.ctx)
	if two == nil || b.source.Begin(b.ctx, two) {
		t.Fatal("the second one began")
	}
	readable()
	look()
	one := b.takeAll()
	if one.Sequence != 1 || string(one.Body) != "body" {
		t.Fatalf("%d came with the body %q", one.Sequence, one.Body)
	}
	one.Ack()
	if m := b.takeAll(); m != two {
		t.Fatalf("%d came", m.Sequence)
	}
	two.Ack()
	b.eventually("everything is acked", b.settled)
}

// Bodies that are read count against the bytes that may be held: what is too much comes again.
func TestBodiesFit(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	cfg := b.config()
	cfg.MaxBytes = 128 << 10
	b.run(cfg)
	b.publish(8) // so many may be leased then
	for range 8 {
		b.next().Ack()
	}
	b.eventually("everything is acked", b.settled)
	look := b.unlooked()
	b.headersOnly(true)
	body := bytes.Repeat([]byte("x"), 50<<10)
	for range 4 {
		b.publishBody(body)
	}
	b.eventually("all are put off but two", func() bool {
		b.source.mu.Lock()
		defer b.source.mu.Unlock()
		undecided := 0
		for _, m := range b.source.leases {
			if m.verdict == "" {
				undecided++
			}
		}
		return b.source.arrived >= 12 && len(b.source.bodiless) == 0 && undecided == 2
	})
	b.headersOnly(false)
	look()
	b.whole(4, string(body))
	b.eventually("everything is acked", b.settled)
}

// One that is removed from the stream meanwhile is nobody's any more.
func TestBodyIsRemoved(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.run(b.config())
	readable := b.unreadable()
	look := b.bodiless()
	stream, err := b.js.Stream(b.ctx, "S")
	b.must(nil, err)
	b.must(nil, stream.DeleteMsg(b.ctx, 1))
	readable()
	look()
	b.eventually("it is not leased any more", b.settled)
	b.publishBody([]byte("next"))
	b.whole(1, "next")
}

// A user who may not read the stream has only the word of the durable: what comes without a body comes once more, and is taken for what was
// published if it has none then.
func TestBodyIsUnreadable(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.run(b.config())
	b.unreadable()
	b.bodiless()()
	m := b.next()
	if string(m.Body) != "body" || m.Delivered != 2 {
		t.Fatalf("got delivery %d with the body %q", m.Delivered, m.Body)
	}
	m.Ack()
	b.must(b.js.PublishMsg(b.ctx, &nats.Msg{Subject: "s.x", Header: nats.Header{msgSizeHeader: {"7"}}}))
	if m = b.next(); m.Sequence != 2 || len(m.Body) != 0 {
		t.Fatalf("got %+v", m)
	}
	m.Ack()
	b.headersOnly(true)
	b.publishBody([]byte("body"))
	b.eventually("it is refused, and nothing is leased", func() bool { return !b.source.Status().Bound && b.source.Leased() == 0 })
	b.headersOnly(false)
	b.whole(1, "body")
}

// So it is where it came before with its body: the number of a delivery says nothing of those before it.
func TestLaterDeliveryIsUnreadable(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.run(b.config())
	b.unreadable()
	b.publishBody([]byte("body"))
	m := b.next()
	m.Nak(shortAckWait) // not before headersOnly
	b.eventually("it is put off", func() bool { return b.source.Leased() == 0 })
	look := b.unlooked()
	b.headersOnly(true)
	b.eventually("it came", func() bool { return b.source.Leased() == 1 })
	b.headersOnly(false)
	look()
	if m = b.next(); string(m.Body) != "body" || m.Delivered != 3 {
		t.Fatalf("got delivery %d with the body %q", m.Delivered, m.Body)
	}
	m.Ack()
	b.eventually("everything is acked", b.settled)
}

// What is remembered of messages without a body is bounded: those that are forgotten are put off once more.
func TestEmptyIsBounded(t *testing.T) {
	s := NewSource(nil, ConsumerConfig{Concurrency: 1}, quiet())
	for n := range uint64(2 * mostEmpty) {
		if s.twiceEmpty(&Message{lease: n}) || len(s.empty) > mostEmpty {
			t.Fatalf("%d: taken to have come before, or %d are remembered", n, len(s.empty))
		}
	}
	if n := uint64(2*mostEmpty - 1); !s.twiceEmpty(&Message{lease: n}) || s.twiceEmpty(&Message{lease: n}) {
		t.Error("the last one is forgotten, or remembered for ever")
	}
}

// A stop hands back what is in doubt.
func TestStopHandsBackBodiless(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		t.Run(fmt.Sprintf("ordered %v", ordered), func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{})
			cfg := b.config()
			cfg.Ordered = ordered
			b.run(cfg)
			b.unreadable()
			look := b.bodiless()
			b.source.StopPulling(b.ctx)
			m := b.source.TakeReady()
			if m == nil {
				t.Fatal("a stop does not find it")
			}
			m.HandBack()
			look()
			if n := b.source.Flush(b.ctx); n != 0 {
				t.Errorf("%d verdicts are not confirmed", n)
			}
			b.stop()
			b.run(b.config())
			if m = b.next(); string(m.Body) != "body" || m.Delivered != 2 {
				t.Errorf("got delivery %d with the body %q", m.Delivered, m.Body)
			}
		})
	}
}

// onlyDelivery is a message that came without its body, by the only delivery that the durable makes. A stop has taken it.
func (b *bench) onlyDelivery(cfg ConsumerConfig) *Message {
	b.t.Helper()
	b.must(b.js.CreateConsumer(b.ctx, "S", natsjs.ConsumerConfig{Durable: "d", AckPolicy: natsjs.AckExplicitPolicy, AckWait: cfg.AckWait, MaxDeliver: 1}))
	b.run(cfg)
	readable := b.unreadable()
	b.headersOnly(true)
	b.publishBody([]byte("body"))
	b.eventually("it is refused, and waits", func() bool { return !b.source.Status().Bound && b.source.Leased() == 1 })
	b.source.StopPulling(b.ctx)
	m := b.source.TakeReady()
	if m == nil {
		b.t.Fatal("a stop does not find it")
	}
	ended, end := context.WithCancel(b.ctx)
	end()
	if b.source.Resume(ended, m) {
		b.t.Fatal("it is worked off without its body")
	}
	if len(b.source.ready) > 0 {
		b.t.Error("the workers can have it")
	}
	if m = b.source.TakeReady(); m == nil {
		b.t.Fatal("it is lost")
	}
	readable()
	return m
}

// At a stop the server would give up on a last delivery: it is worked off with its body, or waits with it in the retry stream.
func TestOnlyDeliveryOfBodiless(t *testing.T) {
	t.Run("worked off", func(t *testing.T) {
		b := newBench(t, natsjs.StreamConfig{})
		m := b.onlyDelivery(b.config())
		if !m.Stranded() || !b.source.Resume(b.ctx, m) || string(m.Body) != "body" {
			t.Fatalf("got %+v", m)
		}
		m.Ack()
		b.eventually("everything is acked", b.settled)
	})
	t.Run("retry stream", func(t *testing.T) {
		b := newBench(t, natsjs.StreamConfig{})
		cfg := b.config()
		cfg.RetryStream.Enabled = true
		m := b.onlyDelivery(cfg)
		m.HandBack()
		b.eventually("it is moved", func() bool { return b.source.Status().Moved == 1 && b.info().NumAckPending == 0 })
		b.stop()
		b.headersOnly(false)
		b.run(cfg)
		b.whole(1, "body")
	})
}
