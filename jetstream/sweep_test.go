package jetstream

import (
	"slices"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// sweepBench is a work queue whose durable has a limit of its own, and has given up on some messages.
func sweepBench(t *testing.T, givenUp int) *bench {
	b := newBench(t, natsjs.StreamConfig{Retention: natsjs.WorkQueuePolicy})
	b.must(b.js.CreateConsumer(b.ctx, "S", natsjs.ConsumerConfig{
		Durable: "d", AckPolicy: natsjs.AckExplicitPolicy, AckWait: time.Second, MaxDeliver: 1, MaxAckPending: 1000,
	}))
	if givenUp > 0 {
		b.publish(givenUp)
		b.elsewhere(givenUp)
		b.eventually("the server has given up", func() bool { return b.info().NumAckPending == 0 })
	}
	b.must(b.js.UpdateConsumer(b.ctx, "S", natsjs.ConsumerConfig{
		Durable: "d", AckPolicy: natsjs.AckExplicitPolicy, AckWait: time.Minute, MaxDeliver: 1, MaxAckPending: 1000,
	}))
	return b
}

// elsewhere has another client lease n messages.
func (b *bench) elsewhere(n int) (leased []natsjs.Msg) {
	b.t.Helper()
	cons, err := b.js.Consumer(b.ctx, "S", "d")
	b.must(nil, err)
	batch, err := cons.Fetch(n)
	b.must(nil, err)
	for m := range batch.Messages() {
		leased = append(leased, m)
	}
	if len(leased) != n {
		b.t.Fatalf("%d of %d messages came", len(leased), n)
	}
	return leased
}

// look looks, and expects what it tells.
func (b *bench) look(w *Sweep, over bool, want ...uint64) {
	b.t.Helper()
	got, isOver, err := w.Look(b.ctx)
	b.must(nil, err)
	if !slices.Equal(got, want) || isOver != over {
		b.t.Fatalf("a look tells %v, over %v; want %v, %v", got, isOver, want, over)
	}
}

// What the server gave up on is told when two looks have found it.
func TestSweepLooksTwice(t *testing.T) {
	b := sweepBench(t, 3)
	b.run(b.config())
	w := b.source.Sweep()
	b.look(w, false)
	b.look(w, true, 1, 2, 3)
	w.Done(1)
	w.Done(2)
	b.look(w, true, 3)
	w.Done(3)
	b.look(w, true)
	// As on replicas, where what is acked leaves the stream some time later: found by one look, and gone at the next.
	w = b.source.Sweep()
	b.look(w, false)
	b.must(b.conn.RemoveStored(b.ctx, "S", 2))
	b.look(w, true, 1, 3)
}

// A sweep that finds more than it may goes on until it has found all.
func TestSweepInParts(t *testing.T) {
	b := sweepBench(t, 5)
	b.run(b.config())
	w := b.source.Sweep()
	w.most = 2
	for _, told := range [][]uint64{{1, 2}, {3, 4}} {
		b.look(w, false)
		b.look(w, false, told...)
		for _, n := range told {
			w.Done(n)
			b.must(b.conn.RemoveStored(b.ctx, "S", n))
		}
	}
	b.look(w, false)
	b.look(w, true, 5)
}

// A lease whose verdict the server has does not stand for a message that is in work elsewhere.
func TestSweepWhileAVerdictIsUnderWay(t *testing.T) {
	for name, settle := range map[string]func(*bench, *Message){
		"sent": func(b *bench, m *Message) {
			m.source.mu.Lock()
			defer m.source.mu.Unlock()
			m.verdict, m.resend, m.wasSent, m.sentAt, m.firstSent = ack, time.Hour, true, time.Now(), time.Now()
			m.source.settling[m] = struct{}{}
		},
		"the ack wait is over": func(b *bench, m *Message) {
			m.source.mu.Lock()
			defer m.source.mu.Unlock()
			m.source.touched.remove(m)
			m.touchedAt = time.Now().Add(-time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := sweepBench(t, 0)
			b.publish(1)
			b.elsewhere(1)
			b.run(b.config())
			b.publish(1)
			m := b.next()
			settle(b, m)
			b.must(b.nc.Request(m.reply, ackWire, patience)) // it is settled at the server, and still leased here
			b.eventually("it is done", func() bool { return b.info().NumAckPending == 1 })
			w := b.source.Sweep()
			for range 3 {
				b.look(w, false)
			}
		})
	}
}

// What is leased here is not stranded; what is leased elsewhere makes a look unsure.
func TestSweepBesideWork(t *testing.T) {
	b := sweepBench(t, 1)
	b.publish(1)
	other := b.elsewhere(1)[0]
	b.run(b.config())
	b.publish(1)
	m := b.next()
	w := b.source.Sweep()
	reads := b.countCalls("$JS.API.STREAM.MSG.GET.S")
	b.look(w, false)
	b.look(w, false)
	if n := reads(); n > 0 {
		t.Errorf("%d messages were read for looks that cannot be sure", n)
	}
	b.must(nil, other.DoubleAck(b.ctx))
	b.look(w, false)
	b.look(w, true, 1)
	m.Ack()
}

// A stream or durable made anew between two looks begins them anew.
func TestSweepOfADurableMadeAnew(t *testing.T) {
	now := time.Now()
	first := stranded{sequences: []uint64{1}, sure: true, of: incarnation{now, now}}
	for name, of := range map[string]incarnation{"stream": {now.Add(1), now}, "durable": {now, now.Add(1)}} {
		t.Run(name, func(t *testing.T) {
			w := Sweep{}
			w.twice(first)
			w.twice(first)
			w.Done(1)
			again := first
			again.of = of
			if told, over := w.twice(again); len(told) != 0 || over {
				t.Errorf("one look tells %v, over %v", told, over)
			}
			if told, over := w.twice(again); len(told) != 1 || !over {
				t.Errorf("two looks tell %v, over %v", told, over)
			}
		})
	}
}
