package jetstream

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// editRetries edits the durable of the retry stream.
func (b *bench) editRetries(edit func(*natsjs.ConsumerConfig)) {
	b.t.Helper()
	cons, err := b.js.Consumer(b.ctx, RetryStream, b.source.retries.source.cfg.Durable)
	b.must(cons, err)
	cfg := cons.CachedInfo().Config
	edit(&cfg)
	b.must(b.js.UpdateConsumer(b.ctx, RetryStream, cfg))
}

func (b *bench) retriesHeadersOnly(on bool) {
	b.t.Helper()
	b.editRetries(func(c *natsjs.ConsumerConfig) { c.HeadersOnly = on })
}

// whileUnlooked has a copy come due after an edit of the durable of the retry stream that nobody noticed yet, and takes the edit back.
func (b *bench) whileUnlooked(edit, back func()) {
	b.t.Helper()
	b.runCrowded()
	m := b.next()
	b.moved(m, 2*time.Second)
	r := b.source.retries
	b.eventually("the retry stream is served", func() bool { return r.source.Status().Bound && r.pulls() == PullAll })
	look := b.unlookedBy(r.source)
	edit()
	b.eventually("a copy came", func() bool { return r.source.arrivals() > 0 })
	back()
	look()
	again := b.next()
	if again.Sequence != m.Sequence || string(again.Body) != string(m.Body) || again.Subject != m.Subject || again.Delivered < 2 || len(again.Header) != len(m.Header) {
		b.t.Fatalf("came back as %+v, was %+v", again, m)
	}
	again.Ack()
	b.eventually("it is done", func() bool { return len(b.stored("at"))+len(b.stored("due")) == 0 && b.source.Flush(b.ctx) == 0 })
}

func (s *Source) arrivals() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.arrived
}

// A copy in the retry stream is all that there is of a message: one that comes without its body gets it, or comes again.
func TestCopyWithoutItsBody(t *testing.T) {
	for _, readable := range []bool{true, false} {
		t.Run(fmt.Sprintf("readable %v", readable), func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{})
			b.whileUnlooked(func() {
				if !readable {
					b.unreadableOf(RetryStream)
				}
				b.retriesHeadersOnly(true)
			}, func() { b.retriesHeadersOnly(false) })
			b.source.retries.source.mu.Lock()
			defer b.source.retries.source.mu.Unlock()
			if n := b.source.retries.source.bytes; n != 0 {
				t.Errorf("%d bytes count as leased", n)
			}
		})
	}
}

// A stop hands back a copy that came without its body.
func TestStopHandsBackCopyWithoutItsBody(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.runCrowded()
	b.moved(b.next(), 2*time.Second)
	r := b.source.retries
	b.eventually("the retry stream is served", func() bool { return r.source.Status().Bound && r.pulls() == PullAll })
	look := b.unlookedBy(r.source)
	readable := b.unreadableOf(RetryStream)
	b.retriesHeadersOnly(true)
	b.eventually("a copy came", func() bool { return r.source.arrivals() > 0 })
	b.source.StopPulling(b.ctx)
	m := b.source.TakeReady()
	if m == nil {
		t.Fatal("a stop does not find it")
	}
	m.HandBack()
	look()
	if n := b.source.Flush(b.ctx); n != 0 || len(b.stored("due")) != 1 {
		t.Errorf("%d verdicts are not confirmed, %d copies are left", n, len(b.stored("due")))
	}
	b.stop()
	readable()
	b.retriesHeadersOnly(false)
	b.runRetrying(b.retryConfig())
	if again := b.next(); again.Sequence != m.Sequence || string(again.Body) != "0" {
		t.Errorf("message %d came with the body %q", again.Sequence, again.Body)
	}
}

// Of what is in the retry stream only that is removed which is no sidecar's for sure, and none of it holds up the rest.
func TestStrangeMessagesInTheRetryStream(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.runCrowded()
	m := b.next()
	b.moved(m, 15*time.Second) // when all else is done
	r := b.source.retries
	mark := nats.Header{retryHeaderDeliveries: {"1"}, retryHeaderTimeStamp: {time.Now().UTC().Format(time.RFC3339Nano)}}
	var kept []uint64
	for _, c := range []struct {
		key  string
		h    nats.Header
		body string
		keep bool
	}{
		{"1.1", nil, "", false},
		{"1.1", nats.Header{"A": {"1"}}, "body", false},
		{"1.1", mark, "", true},
		{"1.1", mark, "body", true},
		{"1.1", mark, "\x00\x00\x00\x01x", true},
		{"1.1", nats.Header{"sidecar-of-another-version": {"1"}}, "body", true},
		{"strange", mark, "\x00\x00\x00\x00", true},
	} {
		ack, err := b.js.PublishMsg(b.ctx, &nats.Msg{Subject: r.subject("due", c.key), Header: c.h, Data: []byte(c.body)})
		b.must(ack, err)
		if c.keep {
			kept = append(kept, ack.Sequence)
		}
	}
	b.eventually("only what may be a message is left", func() bool { return slices.Equal(b.stored("due"), kept) })
	if again := b.next(); again.Sequence != m.Sequence {
		t.Errorf("message %d came", again.Sequence)
	} else {
		again.Ack()
	}
	b.eventually("each is put off", func() bool {
		cons, err := b.js.Consumer(b.ctx, RetryStream, r.source.cfg.Durable)
		b.must(cons, err)
		return b.source.Flush(b.ctx) == 0 && cons.CachedInfo().NumAckPending == len(kept) && slices.Equal(b.stored("due"), kept)
	})
}
