package jetstream

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// crowd is how many messages wait at the durable: a little more than half of what may be pending.
const crowd = 6

// retryConfig is a consumer of which few messages may be pending.
func (b *bench) retryConfig() ConsumerConfig {
	cfg := b.config()
	cfg.AckWait, cfg.MaxAckPending, cfg.Prefetch = shortAckWait, 10, 4
	cfg.RetryStream = RetryStreamConfig{Enabled: true}
	return cfg
}

// runRetrying starts a source whose pull requests are short, so that leases are soon lent.
func (b *bench) runRetrying(cfg ConsumerConfig) {
	b.t.Helper()
	b.short = time.Second
	b.run(cfg)
}

// crowd has so many messages wait at the durable that others are moved.
func (b *bench) crowd() {
	b.t.Helper()
	b.publish(crowd)
	for range crowd {
		b.next().Nak(time.Hour)
	}
	b.eventually("a look has seen that they wait", func() bool {
		b.source.doubt() // a look that was under way before the last nak does not count it
		b.source.mu.Lock()
		defer b.source.mu.Unlock()
		return b.source.parked == crowd
	})
}

// runCrowded starts a source whose durable is crowded, with one message more.
func (b *bench) runCrowded() {
	b.t.Helper()
	b.runRetrying(b.retryConfig())
	b.crowd()
	b.publish(1)
}

// dueCopy is the copy of a message that was moved to the retry stream and is due.
func (b *bench) dueCopy() *Message {
	b.t.Helper()
	b.runCrowded()
	b.moved(b.next(), time.Second)
	return b.next()
}

// moved moves a message and waits until it has left the durable.
func (b *bench) moved(m *Message, delay time.Duration) {
	b.t.Helper()
	b.retryStreamIsThere()
	m.Retry(delay)
	b.eventually("it has left the durable", func() bool { return b.info().NumAckPending == crowd && len(b.stored("at"))+len(b.stored("due")) > 0 })
}

// retryStreamIsThere has the retry stream made and served. One that is to be made for a message is waited for 2 s at most: then the message waits at
// the durable, and for a while no other is moved.
func (b *bench) retryStreamIsThere() {
	b.t.Helper()
	r := b.source.retries
	r.mu.Lock()
	r.wanted = true
	r.mu.Unlock()
	r.nudge()
	b.eventually("the retry stream is served", func() bool { return r.source.Status().Bound })
}

// stored lists the sequences of what the retry stream has of one kind.
func (b *bench) stored(kind string) []uint64 {
	b.t.Helper()
	stream, err := b.js.Stream(b.ctx, RetryStream)
	if err != nil {
		return nil
	}
	var all []uint64
	for seq := stream.CachedInfo().State.FirstSeq; seq <= stream.CachedInfo().State.LastSeq; seq++ {
		if m, err := stream.GetMsg(b.ctx, seq); err == nil && strings.HasPrefix(m.Subject, retrySubject+kind+".") {
			all = append(all, seq)
		}
	}
	return all
}

// nothing holds that no message comes for a while.
func (b *bench) nothing(d time.Duration) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, d)
	defer cancel()
	if m := b.source.Next(ctx); m != nil {
		b.t.Fatalf("message %d came, delivery %d, %d in the retry stream", m.Sequence, m.Delivered, m.repeats)
	}
}

// nothingUntil holds that no message comes until a condition is true, and for a while after.
func (b *bench) nothingUntil(what string, cond func() bool) {
	b.t.Helper()
	for end := time.Now().Add(patience); !cond(); {
		b.nothing(20 * time.Millisecond)
		if time.Now().After(end) {
			b.t.Fatalf("not within %s: %s", patience, what)
		}
	}
	b.nothing(300 * time.Millisecond)
}

func TestRetryStreamBringsTheSameMessage(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.runCrowded()
	m := b.next()
	b.moved(m, time.Second)
	again := b.next()
	if again.Sequence != m.Sequence || again.Subject != m.Subject || string(again.Body) != string(m.Body) || again.Delivered != 2 ||
		!again.Stored.Equal(m.Stored) || !again.StreamCreated.Equal(m.StreamCreated) || again.Fresh() {
		t.Errorf("came back as %+v, was %+v", again, m)
	}
	again.Ack()
	b.eventually("it is done", func() bool {
		return len(b.stored("at"))+len(b.stored("due")) == 0 && len(b.stored("done")) == 1 && b.source.Flush(b.ctx) == 0
	})
}

// Killed after a message was stored in the retry stream, and before it was acked at the durable: the delivery that follows is
// acked without a call, before the copy is due, while it is, and after it is done.
func TestKilledWhileMoving(t *testing.T) {
	for _, when := range []string{"waits", "due", "done"} {
		t.Run(when, func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{})
			b.runCrowded()
			b.moved(b.next(), time.Hour) // so that there is a retry stream
			b.publish(1)
			m := b.next()
			due := time.Now().Add(time.Hour)
			if when != "waits" {
				due = time.Now()
			}
			r := b.source.retries
			b.must(nil, r.publish(b.ctx, r.waiting(m, due)))
			switch when {
			case "due":
				b.eventually("it is due", func() bool { return len(b.stored("due")) == 1 })
			case "done":
				b.eventually("it is due", func() bool { return len(b.stored("due")) == 1 })
				b.next().Ack()
				b.eventually("it is done", func() bool { return len(b.stored("done")) == 1 })
			}
			b.stop() // as if it were killed: the lease is not given back
			b.runRetrying(b.retryConfig())
			if when == "due" {
				again := b.next()
				if again.source != b.source.retries.source || again.Sequence != m.Sequence {
					t.Fatalf("message %d came", again.Sequence)
				}
				again.Ack()
			}
			b.nothingUntil("the delivery after the ack wait is acked", func() bool { return b.info().NumAckPending == crowd })
		})
	}
}

// Killed after a message of the retry stream was moved again, or its end was stored there, and before it was acked there: the
// delivery that follows is acked without a call.
func TestKilledInTheRetryStream(t *testing.T) {
	for _, when := range []string{"moved again", "done"} {
		t.Run(when, func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{})
			m := b.dueCopy()
			r := b.source.retries
			if when == "done" {
				b.must(nil, r.publish(b.ctx, r.over(m)))
			} else {
				b.must(nil, r.publish(b.ctx, r.waiting(m, time.Now().Add(time.Hour))))
			}
			m.source.settle(m, handBack) // as the ack wait would
			b.nothingUntil("the delivery that follows is acked", func() bool { return len(b.stored("due")) == 0 })
			if n := len(b.stored("at")); n != map[string]int{"moved again": 1}[when] {
				t.Errorf("%d wait in the retry stream", n)
			}
		})
	}
}

// The durable of the retry stream is made anew after the end of a message was stored there, and before the copy was acked: the
// delivery that follows, which counts from one again, is acked without a call.
func TestRetryDurableMadeAnew(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	m := b.dueCopy()
	r := b.source.retries
	b.must(nil, r.publish(b.ctx, r.over(m)))
	b.must(nil, b.js.DeleteConsumer(b.ctx, RetryStream, r.source.cfg.Durable))
	b.nothingUntil("the delivery that follows is acked", func() bool { return len(b.stored("due")) == 0 })
}

// The retry stream is deleted while a message of it is at the app, and nobody makes it again: a stop does not wait for it.
func TestRetryStreamDeleted(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	m := b.dueCopy()
	r := b.source.retries
	r.mu.Lock()
	r.wanted = false // as where it is not to be made
	r.mu.Unlock()
	b.must(nil, b.js.DeleteStream(b.ctx, RetryStream))
	m.Ack()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	b.source.StopPulling(ctx)
	if n := b.source.Flush(ctx); n != 0 || ctx.Err() != nil {
		t.Errorf("%d verdicts are not confirmed, %v", n, ctx.Err())
	}
	if _, err := b.js.Stream(b.ctx, RetryStream); err == nil {
		t.Error("there is a retry stream")
	}
}

// Nothing is moved into a retry stream that drops what waits in it, and what is there is delivered.
func TestRetryStreamThatDrops(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.runCrowded()
	m := b.next()
	b.moved(m, 20*time.Second) // until then all that follows is done
	stream, err := b.js.Stream(b.ctx, RetryStream)
	b.must(nil, err)
	limited := stream.CachedInfo().Config
	limited.MaxMsgs = 1
	b.must(b.js.UpdateStream(b.ctx, limited))
	b.eventually("it is noticed", b.source.retries.isUnfit)
	b.publish(1)
	b.next().Retry(time.Hour)
	b.eventually("it waits at the durable", func() bool { return b.source.Flush(b.ctx) == 0 && b.info().NumAckPending == crowd+1 })
	if again := b.next(); again.Sequence != m.Sequence || again.Delivered != 2 {
		t.Errorf("message %d came, delivery %d", again.Sequence, again.Delivered)
	}
}

// That a message is done is kept for longer than the durable waits to deliver it again.
func TestDoneIsKeptForTheAckWait(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.must(b.js.CreateConsumer(b.ctx, "S", natsjs.ConsumerConfig{Durable: "d", AckPolicy: natsjs.AckExplicitPolicy, AckWait: 3 * time.Hour, MaxAckPending: 10}))
	b.runRetrying(b.retryConfig())
	b.publish(1)
	if ttl := b.source.retries.over(b.next()).Header.Get("Nats-TTL"); ttl != "6h0m0s" {
		t.Errorf("it is kept for %s", ttl)
	}
}

// A verdict over a message of the retry stream that could not be stored is told at a stop.
func TestEndThatIsNotStored(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	m := b.dueCopy()
	b.server.Shutdown()
	m.Ack()
	ctx, cancel := context.WithTimeout(b.ctx, 200*time.Millisecond)
	defer cancel()
	if n := b.source.Flush(ctx); n != 1 {
		t.Errorf("%d verdicts are not confirmed, want 1", n)
	}
}

// What waits in the retry stream is delivered also after it was turned off, or with one lease in all, which it then has in turn with
// the stream.
func TestRetryStreamNotUsedAnyMore(t *testing.T) {
	for _, leases := range []int{8, 1} {
		t.Run(strconv.Itoa(leases), func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{})
			b.runCrowded()
			m := b.next()
			b.moved(m, 6*time.Second) // after the stop
			b.stop()
			cfg := b.retryConfig()
			if cfg.RetryStream.Enabled = leases == 1; leases == 1 {
				cfg.Concurrency, cfg.Prefetch = 1, 0
			}
			b.runRetrying(cfg)
			again := b.next()
			if again.Sequence != m.Sequence || again.Delivered != 2 {
				t.Fatalf("message %d came, delivery %d", again.Sequence, again.Delivered)
			}
			b.publish(1)
			again.Retry(2 * time.Second)
			came := map[uint64]uint64{}
			for range 2 {
				m := b.next()
				came[m.Sequence] = m.Delivered
				m.Ack()
			}
			if want := map[uint64]uint64{m.Sequence: 3, m.Sequence + 1: 1}; !maps.Equal(came, want) {
				t.Errorf("came %v, want %v", came, want)
			}
		})
	}
}

// With manage: none a retry stream that others of the account made is nothing to be served, or to be complained of, unless something waits in it.
func TestRetryStreamOfOthers(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.poorRetryStream(natsjs.FileStorage)
	serves := func(manage Manage) bool {
		cfg := b.retryConfig()
		cfg.Manage = manage
		r := NewSource(b.conn, cfg, quiet()).retries
		return r.exists(b.ctx)
	}
	if !serves(ManageCreate) || serves(ManageNone) {
		t.Error("of others: it must be served where its durable may be made, and only there")
	}
	r := NewSource(b.conn, b.retryConfig(), quiet()).retries
	ack, err := b.js.Publish(b.ctx, r.subject("at", "1.1"), []byte("x"))
	b.must(ack, err)
	if !serves(ManageNone) {
		t.Error("something waits in it")
	}
	stream, err := b.js.Stream(b.ctx, RetryStream)
	b.must(stream, err)
	b.must(nil, stream.DeleteMsg(b.ctx, ack.Sequence))
	b.must(b.js.CreateConsumer(b.ctx, RetryStream, natsjs.ConsumerConfig{
		Durable: r.source.cfg.Durable, AckPolicy: natsjs.AckExplicitPolicy, FilterSubject: r.subject("due", ">"),
	}))
	if !serves(ManageNone) {
		t.Error("there is a durable for it")
	}
}

// Of two copies that are due of one message the later one counts.
func TestLaterCopyCounts(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	first := b.dueCopy()
	r := b.source.retries
	r.source.mu.Lock()
	r.source.width = 2
	r.source.mu.Unlock()
	b.must(nil, r.publish(b.ctx, r.waiting(first, time.Now())))
	second := b.next()
	if second.Sequence != first.Sequence || second.Delivered != first.Delivered+1 {
		t.Fatalf("message %d, delivery %d", second.Sequence, second.Delivered)
	}
	first.source.settle(first, handBack)
	b.nothingUntil("the earlier one is acked", func() bool { return len(b.stored("due")) == 1 })
	second.Ack()
	b.nothingUntil("the later one is done", func() bool { return len(b.stored("due")) == 0 })
}

// A durable that was deleted and made again delivers what was moved once more, as if for the first time.
func TestMovedBeforeTheDurableWasMadeAnew(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.runCrowded()
	b.moved(b.next(), time.Hour)
	b.must(nil, b.js.DeleteConsumer(b.ctx, "S", "d"))
	var came []uint64
	for range crowd {
		m := b.next()
		came = append(came, m.Sequence)
		m.Ack()
	}
	slices.Sort(came)
	if !slices.Equal(came, []uint64{1, 2, 3, 4, 5, 6}) {
		t.Errorf("came: %v", came)
	}
	b.nothingUntil("all is acked", func() bool { return b.info().NumAckPending == 0 && b.info().AckFloor.Stream == crowd+1 })
}

// The leases of the stream and of the retry stream are never more than the bound, whichever has much to bring.
func TestRetryStreamSharesTheLeases(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	cfg := b.retryConfig()
	cfg.MaxAckPending = 30
	b.runRetrying(cfg)
	b.publish(18)
	for range 18 {
		b.next().Nak(time.Hour)
	}
	b.eventually("half of what may be pending waits", b.source.crowded)
	b.retryStreamIsThere()
	b.publish(1)
	b.next().Retry(time.Hour)
	b.eventually("there is one in the retry stream", func() bool { return len(b.stored("at")) == 1 })
	b.publish(40)
	for range 40 {
		b.next().Retry(1500 * time.Millisecond)
	}
	b.eventually("all of them wait, or have waited at the durable", func() bool {
		if b.source.retries.flush(b.ctx) > 0 {
			return false
		}
		b.source.mu.Lock()
		defer b.source.mu.Unlock()
		return len(b.source.settling) == 0
	})
	waiting := b.info().NumAckPending // 18, and what the retry stream did not take in time
	b.publish(40)
	var held []*Message
	came := map[uint64]bool{}
	both := map[*Source]int{}
	leased := func() int { // at least, when the second was asked: of the first one less is pending after it, if nothing was delivered meanwhile
		before, n := b.info().Delivered.Consumer, 0
		if cons, err := b.js.Consumer(b.ctx, RetryStream, b.source.retries.source.cfg.Durable); err == nil {
			n = cons.CachedInfo().NumAckPending
		}
		if after := b.info(); after.Delivered.Consumer == before {
			return after.NumAckPending - waiting + n
		}
		return 0
	}
	for end := time.Now().Add(patience); len(came) < 80 && time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(b.ctx, 100*time.Millisecond)
		m := b.source.Next(ctx)
		cancel()
		if m != nil {
			both[m.source]++
			came[m.Sequence] = true
			held = append(held, m)
			end = time.Now().Add(patience)
		}
		if n := leased(); n > 8 {
			t.Fatalf("%d messages are leased, of which the bound is 8", n)
		}
		if m == nil || len(held) == 4 {
			for _, m := range held {
				m.Ack()
			}
			held = nil
		}
	}
	if both[b.source] < 40 || both[b.source.retries.source] < 20 || len(came) != 80 {
		t.Errorf("%d came from the stream and %d from the retry stream, want 40 and 40; of 80 messages %d came", both[b.source], both[b.source.retries.source], len(came))
	}
}

// What is not on its way to the retry stream yet at a stop waits at the durable.
func TestStopWhileMoving(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.runCrowded()
	m := b.next()
	b.source.StopPulling(b.ctx)
	m.Retry(time.Hour)
	if n := b.source.Flush(b.ctx); n != 0 {
		t.Errorf("%d verdicts are not confirmed", n)
	}
	if n := b.info().NumAckPending; n != crowd+1 {
		t.Errorf("%d wait at the durable, want %d", n, crowd+1)
	}
}

func TestOlderThan(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	for _, c := range []struct {
		major, minor int
		want         bool
	}{{2, 10, false}, {2, 12, false}, {1, 99, false}, {2, 999, true}, {3, 0, true}} {
		if got := b.conn.olderThan(c.major, c.minor); got != c.want {
			t.Errorf("%s is older than %d.%d: %v", b.nc.ConnectedServerVersion(), c.major, c.minor, got)
		}
	}
}

// While there is no connection the server's version is the last one known, and it is put off what must be asked first.
func TestVersionWhileAway(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.runRetrying(b.retryConfig())
	b.publish(1)
	b.next().Nak(10 * time.Millisecond)
	m := b.next()
	b.server.Shutdown()
	b.eventually("the connection is gone", func() bool { return !b.conn.Connected() && b.conn.nc().ConnectedServerVersion() == "" })
	if b.conn.olderThan(2, 12) || !b.conn.olderThan(2, 999) {
		t.Error("the version is forgotten")
	}
	if _, err := b.source.Moved(b.ctx, m); err == nil {
		t.Error("it is taken to be known whether a message was moved")
	}
	if !b.source.retries.superseded(b.ctx, m) {
		t.Error("a delivery is begun although it is not known whether its message was moved")
	}
	never, err := Dial(Config{URLs: []string{b.server.ClientURL()}, Name: "test"}, quiet())
	b.must(nil, err)
	defer never.Close()
	if never.olderThan(2, 12) {
		t.Error("a server that there never was a connection to is taken for an old one")
	}
}

// A delivery is put off while it cannot be known whether its message was moved, and comes again, also where there is no retry
// stream. It stays leased meanwhile; a stop hands it back.
func TestDeliveryThatIsPutOff(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.runRetrying(b.retryConfig())
	b.publish(2)
	for _, m := range []*Message{b.next(), b.next()} { // both, before one of them comes again
		m.Nak(10 * time.Millisecond)
	}
	r := b.source.retries
	blind := func(until time.Time) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.blind = until
	}
	putOff := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.deferred)
	}
	blind(time.Now().Add(2 * shortAckWait))
	b.nothingUntil("both are put off", func() bool { return putOff() == 2 })
	m, last := b.next(), b.next()
	if m.Delivered != 2 || last.Delivered != 2 {
		t.Errorf("deliveries %d and %d came, want 2 and 2: a lease was lost", m.Delivered, last.Delivered)
	}
	m.Ack()
	blind(time.Now().Add(time.Hour))
	last.Nak(10 * time.Millisecond)
	b.nothingUntil("it is put off", func() bool { return putOff() == 1 })
	b.source.StopPulling(b.ctx)
	if last = b.source.TakeReady(); last == nil {
		t.Fatal("a stop does not find it")
	}
	last.HandBack()
	if n := b.source.Flush(b.ctx); n != 0 {
		t.Errorf("%d verdicts are not confirmed", n)
	}
}
