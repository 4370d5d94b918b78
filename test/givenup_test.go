package test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/localnats"
	"github.com/jetsidecar/jetsidecar/jetstream"
)

// exhaust takes every delivery of what is in the stream without settling it, as processes that die in their work do, until
// the server has given up on n messages.
func (w *world) exhaust(n int) {
	w.t.Helper()
	ctx, cancel := within()
	defer cancel()
	cons, err := w.js.Consumer(ctx, stream, durable)
	w.must(err)
	eventually(w.t, func() bool {
		batch, err := cons.Fetch(n, natsjs.FetchMaxWait(300*time.Millisecond))
		w.must(err)
		for range batch.Messages() {
			continue
		}
		info := w.consumer(durable)
		return info.NumAckPending == 0 && info.NumPending == 0
	}, text("the server gives up"))
}

// twice is a limit of the server's, which a machine that stands still for a moment does not reach.
func twice(c *natsjs.ConsumerConfig) { c.MaxDeliver = 2 }

// limited is that where deliveries are to end soon.
func limited(c *natsjs.ConsumerConfig) { c.MaxDeliver, c.AckWait = 2, time.Second }

// What the server gave up on before any sidecar ran is found in a work queue, which would keep it for ever.
func TestGivenUpBeforeAnySidecar(t *testing.T) {
	w := newWorld(t, func(c *natsjs.StreamConfig) { c.Retention = natsjs.WorkQueuePolicy })
	w.durableOf(limited)
	for range 3 {
		w.publish("orders.new", "x", "X-Kind: given up")
	}
	w.exhaust(3)
	w.running()
	for _, e := range w.waitDead(3) {
		if h := e.header; h.Get("Dlq-Reason") != "max_deliver_server" || h.Get("Dlq-Deliveries") != "2" || h.Get("X-Kind") != "given up" || e.body != "x" {
			t.Errorf("entry %v %q", h, e.body)
		}
	}
	eventually(t, func() bool { return w.streamInfo(stream).State.Msgs == 0 }, text("they are settled"))
	if n := w.app.count(); n != 0 {
		t.Errorf("the app was called %d times", n)
	}
	w.publish("orders.new", "good")
	eventually(t, func() bool { return w.streamInfo(stream).State.Msgs == 0 && w.app.count() == 1 }, text("the next one is delivered"))
}

// The server publishes an advisory without waiting: while the stream that keeps them has no leader, or when it is killed just then, one is
// nowhere. A purge stands for that. The next start finds its message in a work queue all the same.
func TestGivenUpWithItsAdvisoryLost(t *testing.T) {
	w := newWorld(t, func(c *natsjs.StreamConfig) { c.Retention = natsjs.WorkQueuePolicy })
	w.durableOf(limited)
	w.must(w.running().stop()) // makes the stream of the advisories
	seq := w.publish("orders.new", "x")
	w.exhaust(1)
	eventually(t, func() bool { return w.streamInfo("sidecar-advisories").State.LastSeq == 1 }, text("the advisory"))
	w.purgeOf("sidecar-advisories")
	w.running()
	w.waitDead(1)
	if h := w.deadOf(seq).header; h.Get("Dlq-Reason") != "max_deliver_server" || h.Get("Dlq-Deliveries") != "2" {
		t.Errorf("entry %v", h)
	}
	eventually(t, func() bool { return w.streamInfo(stream).State.Msgs == 0 }, text("it is settled"))
}

// An advisory has its time from the durable's leader, whose clock may be behind that of the stream's.
func TestGivenUpByAServerWhoseClockIsBehind(t *testing.T) {
	for _, limit := range []int{1, 2} {
		t.Run(fmt.Sprint("max_deliver ", limit), func(t *testing.T) { givenUpByAServerWhoseClockIsBehind(t, limit) })
	}
}

func givenUpByAServerWhoseClockIsBehind(t *testing.T, limit int) {
	w := newWorld(t)
	w.durableOf(limited, func(c *natsjs.ConsumerConfig) { c.MaxDeliver = limit })
	w.must(w.running().stop()) // makes the stream of the advisories
	seq := w.publish("orders.new", "x")
	ctx, cancel := within()
	defer cancel()
	st, err := w.js.Stream(ctx, stream)
	w.must(err)
	m, err := st.GetMsg(ctx, seq)
	w.must(err)
	w.exhaust(1)
	eventually(t, func() bool { return w.streamInfo("sidecar-advisories").State.LastSeq == 1 }, text("the advisory"))
	w.purgeOf("sidecar-advisories")
	w.must(w.nc.Publish("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES."+stream+"."+durable, fmt.Appendf(nil,
		`{"stream":%q,"consumer":%q,"stream_seq":%d,"deliveries":%d,"timestamp":%q}`, stream, durable, seq, limit, m.Time.Add(-5*time.Millisecond).Format(time.RFC3339Nano))))
	eventually(t, func() bool { return w.streamInfo("sidecar-advisories").State.LastSeq == 2 }, text("the advisory is kept"))
	w.running()
	w.waitDead(1)
	if h := w.deadOf(seq).header; h.Get("Dlq-Reason") != "max_deliver_server" {
		t.Errorf("entry %v", h)
	}
}

// What the server gave up on while no sidecar ran is told by the advisories that a stream keeps.
func TestGivenUpWhileNoSidecarRan(t *testing.T) {
	w := newWorld(t)
	w.durableOf(limited)
	w.must(w.running().stop()) // makes the stream of the advisories
	first := w.publish("orders.new", "x")
	w.exhaust(1)
	w.running()
	w.waitDead(1)
	if e := w.deadOf(first); e.header.Get("Dlq-Reason") != "max_deliver_server" {
		t.Errorf("entry %v", e.header)
	}
	good := w.publish("orders.new", "good")
	eventually(t, func() bool { return len(w.app.of(good)) == 1 }, text("the next one is delivered"))
	eventually(t, func() bool { return w.streamInfo("sidecar-advisories").State.Msgs == 0 }, text("the advisory is handled"))
	if n := len(w.dead()); n != 1 {
		t.Errorf("%d entries", n)
	}
}

// A limit that is lowered below what a waiting message already had strands nothing.
func TestLoweredLimitStrandsNothing(t *testing.T) {
	w := newWorld(t, func(c *natsjs.StreamConfig) { c.Retention = natsjs.WorkQueuePolicy })
	w.app.on(always(reply{status: 503}))
	w.running(consumer(func(c *config.Consumer) {
		c.MaxDeliver, c.Retry.Initial, c.Retry.Max, c.Retry.Multiplier = 0, 500*time.Millisecond, 500*time.Millisecond, 1
	}))
	seq := w.publish("orders.new", "x")
	eventually(t, func() bool { return len(w.app.of(seq)) >= 4 }, text("it is tried again and again"))
	ctx, cancel := within()
	defer cancel()
	lowered := w.consumer(durable).Config
	lowered.MaxDeliver = 2
	_, err := w.js.UpdateConsumer(ctx, stream, lowered)
	w.must(err)
	w.waitDead(1)
	if e := w.deadOf(seq); e.header.Get("Dlq-Reason") != "max_deliver_server" && e.header.Get("Dlq-Reason") != "max_deliver" {
		t.Errorf("entry %v", e.header)
	}
	eventually(t, func() bool { return w.streamInfo(stream).State.Msgs == 0 }, text("it is settled"))
}

// With manage: none nothing is made, also not the stream of the advisories.
func TestManageNoneMakesNoAdvisoryStream(t *testing.T) {
	w := newWorld(t)
	w.durableOf(twice)
	w.running(consumer(func(c *config.Consumer) { c.Manage = "none" }))
	w.publish("orders.new", "x")
	w.waitDone()
	ctx, cancel := within()
	defer cancel()
	if _, err := w.js.Stream(ctx, "sidecar-advisories"); err == nil {
		t.Error("it was made")
	}
	w.balance()
}

// What waits in the retry stream is not dead-lettered because the ack at the durable was lost and the server gave up on it.
func TestGivenUpAfterItWasMoved(t *testing.T) {
	w := newWorld(t)
	w.durableOf(twice, func(c *natsjs.ConsumerConfig) { c.MaxAckPending = 10 })
	w.app.on(always(reply{status: 503}))
	w.running(narrow(time.Hour))
	const bad = 20
	for range bad {
		w.publish("orders.new", "x")
	}
	eventually(t, func() bool { return w.consumer(durable).NumAckPending+w.waiting() == bad && w.waiting() > 0 }, text("some are moved"))
	moved := w.read(retryStream)[0].subject
	moved = moved[strings.LastIndex(moved, ".")+1:]
	w.must(w.nc.Publish("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES."+stream+"."+durable,
		[]byte(`{"stream":"`+stream+`","consumer":"`+durable+`","stream_seq":`+moved+`,"deliveries":2,"timestamp":"`+time.Now().UTC().Format(time.RFC3339Nano)+`"}`)))
	eventually(t, func() bool { return w.streamInfo("sidecar-advisories").State.LastSeq == 1 }, text("the advisory is kept"))
	eventually(t, func() bool { return w.streamInfo("sidecar-advisories").State.Msgs == 0 }, text("the advisory is handled"))
	if n := len(w.dead()); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

// What the app accepted is not dead-lettered because its ack was lost and the server gave up on it.
func TestGivenUpAfterItWasAnswered(t *testing.T) {
	w := newWorld(t)
	w.durableOf(twice)
	w.running()
	w.publish("orders.new", "x", "Nats-Msg-Id: one")
	w.waitDone()
	// The server has lost the ack, as one replica that is killed does, and says that it gave up.
	w.must(w.nc.Publish("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES."+stream+"."+durable,
		[]byte(`{"stream":"`+stream+`","consumer":"`+durable+`","stream_seq":1,"deliveries":2,"timestamp":"`+time.Now().UTC().Format(time.RFC3339Nano)+`"}`)))
	eventually(t, func() bool { return w.streamInfo("sidecar-advisories").State.LastSeq == 1 }, text("the advisory is kept"))
	eventually(t, func() bool { return w.streamInfo("sidecar-advisories").State.Msgs == 0 }, text("the advisory is handled"))
	w.balance()
	if n := len(w.dead()); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

// With manage: none the advisories are read too where there is a stream of them, by several sidecars, and none of them makes a durable there.
func TestGivenUpWithManageNone(t *testing.T) {
	w := newWorld(t)
	w.streamOf(natsjs.StreamConfig{Name: "sidecar-advisories", Subjects: []string{"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>"}})
	w.durableOf(limited)
	var given []uint64
	for range 5 {
		given = append(given, w.publish("orders.new", "x"))
	}
	w.exhaust(5)
	w.must(w.nc.Publish("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES."+stream+"."+durable, []byte("no advisory")))
	none := consumer(func(c *config.Consumer) { c.Manage = "none" })
	w.running(none)
	w.running(none)
	for _, seq := range given {
		if e := w.deadOf(seq); e.header.Get("Dlq-Reason") != "max_deliver_server" {
			t.Errorf("entry %v", e.header)
		}
	}
	eventually(t, func() bool { return w.streamInfo("sidecar-advisories").State.Msgs == 0 }, text("the advisories are handled"))
	if info := w.streamInfo("sidecar-advisories"); info.State.Consumers != 0 {
		t.Errorf("%d durables were made", info.State.Consumers)
	}
	good := w.publish("orders.new", "good")
	eventually(t, func() bool { return len(w.app.of(good)) == 1 }, text("the next one is delivered"))
	if n := len(w.dead()); n != len(given) {
		t.Errorf("%d entries for %d messages", n, len(given))
	}
}

// A check names what the user may not do with the advisories.
func TestCheckOfThePermissionsForAdvisories(t *testing.T) {
	w := newWorldOn(t, localnats.Options{Config: permitted(`"$JS.API.STREAM.MSG.DELETE.>"`, `"$JS.API.CONSUMER.CREATE.sidecar-advisories.>"`)})
	w.streamOf(natsjs.StreamConfig{Name: "sidecar-advisories", Subjects: []string{"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>"}})
	w.durableOf(twice)
	for manage, denied := range map[jetstream.Manage]string{"none": "STREAM.MSG.DELETE.sidecar-advisories", "create": "CONSUMER.CREATE.sidecar-advisories."} {
		conn, err := jetstream.Dial(jetstream.Config{URLs: w.urls, Name: "check", User: "some", Password: "some"}, slog.New(slog.DiscardHandler))
		w.must(err)
		defer conn.Close()
		eventually(t, conn.Connected, text("a connection"))
		ctx, cancel := within()
		defer cancel()
		findings := conn.Check(ctx, jetstream.ConsumerConfig{Stream: stream, Durable: durable, Manage: manage}, jetstream.DeadLetterConfig{})
		if !slices.ContainsFunc(findings, func(f jetstream.Finding) bool {
			return f.Level == jetstream.Warning && strings.Contains(f.Detail, "the user may not publish to $JS.API."+denied)
		}) {
			t.Errorf("with manage: %s %s is not named: %v", manage, denied, findings)
		}
	}
}
