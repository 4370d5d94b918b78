package jetstream

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// ordered is a consumer of the bench's stream that keeps order, with a short ack wait.
func (b *bench) ordered() ConsumerConfig {
	cfg := b.config()
	cfg.Ordered, cfg.AckWait = true, shortAckWait
	return cfg
}

// inOrder acks what may be worked on, which comes in this order, and is all.
func (b *bench) inOrder(first, last uint64) {
	b.t.Helper()
	for n := first; n <= last; n++ {
		m := b.takeAll()
		if m.Sequence != n {
			b.t.Fatalf("%d came, and not %d", m.Sequence, n)
		}
		m.Ack()
	}
	b.eventually("everything is acked", b.settled)
}

// takeAll is the next message that may be worked on.
func (b *bench) takeAll() *Message {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	for m := b.source.Take(ctx); m != nil; m = b.source.Take(ctx) {
		if b.source.Begin(ctx, m) {
			return m
		}
	}
	b.t.Fatal("no message came")
	return nil
}

// leaveBehind makes the durable and leaves n messages pending there, as a process that died does: every third was kept alive twice, and
// every second once.
func (b *bench) leaveBehind(cfg ConsumerConfig, n int) {
	b.t.Helper()
	b.must(b.js.CreateConsumer(b.ctx, "S", cfg.wanted()))
	sub, err := b.nc.SubscribeSync(nats.NewInbox())
	b.must(sub, err)
	request := fmt.Sprintf(`{"batch":%d,"expires":5000000000,"group":%q}`, n, pinned(cfg.wanted()))
	if !cfg.Ordered {
		request = fmt.Sprintf(`{"batch":%d,"expires":5000000000}`, n)
	}
	b.must(nil, b.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.S.d", sub.Subject, []byte(request)))
	var replies []string
	for range n {
		msg, err := sub.NextMsg(patience)
		b.must(msg, err)
		replies = append(replies, msg.Reply)
	}
	for _, every := range []int{2, 3} {
		from := b.info().TimeStamp
		b.eventually("the server's clock goes on between two rounds of keeping alive", func() bool { return b.info().TimeStamp.Sub(from) >= cfg.AckWait/4 })
		for i := 0; i < n; i += every {
			_, err := b.nc.Request(replies[i], []byte("+WPI"), patience)
			b.must(nil, err)
		}
	}
	b.must(nil, sub.Unsubscribe())
	if group := pinned(cfg.wanted()); group != "" {
		_, err := b.nc.Request("$JS.API.CONSUMER.UNPIN.S.d", []byte(fmt.Sprintf(`{"group":%q}`, group)), patience)
		b.must(nil, err)
	}
}

// The server delivers what a dead process had by when it was last kept alive, and new messages before all of it.
func TestTheServerDoesNotKeepTheOrder(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.publish(20)
	cfg := b.config()
	cfg.AckWait = 6 * time.Second // the new ones are asked for before half of it is over
	b.leaveBehind(cfg, 9)
	b.run(cfg)
	var got []uint64
	for range 20 {
		m := b.next()
		got = append(got, m.Sequence)
		m.Ack()
	}
	if slices.IsSorted(got) || got[0] != 10 {
		t.Errorf("it kept the order: %v", got)
	}
}

// What a dead process had is gathered, and offered in the order of the stream, also if it is more than may be leased, and if the
// durable was idle before it: then messages that it does not want lie between the floor and the first one.
func TestGather(t *testing.T) {
	for _, c := range []struct {
		concurrency, prefetch int
		filtered, mayAsk      bool
	}{
		{4, 16, false, true}, {4, 4, false, true}, {1, 1, false, true}, {1, 0, false, true},
		{4, 4, true, true}, {1, 1, true, true}, {1, 0, true, true}, {4, 4, true, false}, {1, 1, true, false}, {1, 0, true, false},
	} {
		t.Run(fmt.Sprintf("%d+%d filtered %v may ask %v", c.concurrency, c.prefetch, c.filtered, c.mayAsk), func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{})
			if !c.mayAsk {
				b.conn.refused(`nats: Permissions Violation for Publish to "$JS.API.STREAM.MSG.GET.S"`)
			}
			cfg := b.ordered()
			cfg.Concurrency, cfg.Prefetch = c.concurrency, c.prefetch
			if c.filtered {
				cfg.FilterSubjects = []string{"s.x"}
				for range 3 {
					b.must(b.js.Publish(b.ctx, "s.other", nil))
				}
			}
			b.publish(20)
			b.leaveBehind(cfg, 9)
			b.run(cfg)
			var got []uint64
			for range 20 {
				m := b.takeAll()
				got = append(got, m.Sequence)
				// What is handed back to make room is pending too, and a new one comes in its place if nothing has expired just then.
				if n := b.info().NumAckPending; n > c.concurrency+c.prefetch+9+2 {
					t.Errorf("%d are pending", n)
				}
				m.Ack()
			}
			if !slices.IsSorted(got) {
				t.Errorf("got %v", got)
			}
			b.eventually("everything is acked", b.settled)
		})
	}
}

// What is handed back to make room stays away for a while: it would come right again, in place of what room is made for, where requests of others wait.
func TestRoomIsMadeForAWhile(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	cfg := b.ordered()
	cfg.Concurrency, cfg.Prefetch = 1, 0
	b.publish(6)
	b.leaveBehind(cfg, 2)
	naks := make(chan string, 1000)
	b.must(b.nc.Subscribe("$JS.ACK.S.d.>", func(m *nats.Msg) {
		if strings.HasPrefix(string(m.Data), "-NAK") {
			naks <- string(m.Data)
		}
	}))
	b.must(nil, b.nc.Flush())
	b.run(cfg)
	b.inOrder(1, 6)
	if len(naks) == 0 {
		t.Fatal("nothing was handed back: there was room")
	}
	for range len(naks) {
		if nak := <-naks; !strings.Contains(nak, `"delay"`) {
			t.Errorf("handed back with %q", nak)
		}
	}
}

// A message that another client of the durable has holds up those behind it, until it is done.
func TestNothingOvertakesAnother(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.publish(1)
	cfg := b.ordered()
	cfg.AckWait = 30 * time.Second
	cons, err := b.js.CreateConsumer(b.ctx, "S", natsjs.ConsumerConfig{Durable: "d", AckPolicy: natsjs.AckExplicitPolicy, AckWait: 30 * time.Second, MaxAckPending: 1000, MaxDeliver: -1})
	b.must(cons, err)
	theirs, err := cons.Next()
	b.must(theirs, err)
	b.publish(3)
	b.run(cfg)
	ctx, cancel := context.WithTimeout(b.ctx, time.Second)
	defer cancel()
	if m := b.source.Take(ctx); m != nil {
		t.Fatalf("%d was offered", m.Sequence)
	}
	b.must(nil, theirs.DoubleAck(b.ctx))
	b.inOrder(2, 4)
}

// A verdict that another client sends late, over a message that is leased here by then, is not taken for one over a message that the other
// still has.
func TestLateVerdictOfAnother(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.publish(3)
	cons, err := b.js.CreateConsumer(b.ctx, "S", natsjs.ConsumerConfig{Durable: "d", AckPolicy: natsjs.AckExplicitPolicy, AckWait: 30 * time.Second, MaxAckPending: 1000, MaxDeliver: -1})
	b.must(cons, err)
	var theirs []natsjs.Msg
	for range 3 {
		m, err := cons.Next()
		b.must(m, err)
		theirs = append(theirs, m)
	}
	cfg := b.ordered()
	cfg.AckWait = 30 * time.Second
	b.run(cfg)
	b.must(nil, theirs[1].Nak())
	b.must(nil, theirs[2].Nak())
	b.eventually("two are leased", func() bool { return b.source.Leased() == 2 })
	b.must(b.nc.Request(theirs[2].Reply(), []byte("+ACK"), patience))
	ctx, cancel := context.WithTimeout(b.ctx, time.Second)
	defer cancel()
	if m := b.source.Take(ctx); m != nil {
		t.Fatalf("%d was offered", m.Sequence)
	}
	b.must(nil, theirs[0].DoubleAck(b.ctx))
	m := b.takeAll()
	if m.Sequence != 2 {
		t.Fatalf("%d came", m.Sequence)
	}
	m.Ack()
	b.eventually("everything is acked", b.settled)
}

// A message that came to its turn while an earlier one of its key was held back does not begin before that one.
func TestNothingBeginsBeforeALeasedOne(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.publish(2)
	cfg := b.ordered()
	b.prepare = func(s *Source) {
		s.Tell(func(*Message) Key { return Key{} }, func(*Message) *Message { return nil }, func() {})
	}
	b.run(cfg)
	one, two := b.source.Take(b.ctx), b.source.Take(b.ctx)
	if b.source.Begin(b.ctx, two) {
		t.Fatal("the second one began")
	}
	if !b.source.Begin(b.ctx, one) {
		t.Fatal("the first one did not begin")
	}
	one.Ack()
	if m := b.takeAll(); m != two {
		t.Fatalf("%d came", m.Sequence)
	}
	two.Ack()
	b.eventually("everything is acked", b.settled)
}

// The durable stays pinned to a source that waits, or that has all it may lease.
func TestPinIsRenewed(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	cfg := b.ordered()
	cfg.Concurrency, cfg.Prefetch = 1, 0
	made := cfg.wanted()
	made.PinnedTTL = 2 * pinTTL // of which a third may pass until it is renewed
	b.must(b.js.CreateConsumer(b.ctx, "S", made))
	b.run(cfg)
	b.publish(2)
	held := b.takeAll()
	pin := b.pinID()
	if pin == "" {
		t.Fatal("it is not pinned")
	}
	b.stays("it is pinned to the same client", made.PinnedTTL+time.Second, func() bool { return b.pinID() == pin })
	held.Ack()
	b.takeAll().Ack()
	b.eventually("everything is acked", b.settled)
	b.stays("it is pinned to the same client", made.PinnedTTL+time.Second, func() bool { return b.pinID() == pin })
	b.source.StopPulling(b.ctx)
	b.source.Unpin(b.ctx)
	if now := b.pinID(); now != "" {
		t.Fatalf("it is still pinned: %s", now)
	}
}

// stays holds that a condition is true for a time.
func (b *bench) stays(what string, d time.Duration, cond func() bool) {
	b.t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); <-look.C {
		if !cond() {
			b.t.Fatalf("it does not stay so: %s", what)
		}
	}
}

// pinID is whom the server has pinned the durable to.
func (b *bench) pinID() string {
	b.t.Helper()
	msg, err := b.nc.Request("$JS.API.CONSUMER.INFO.S.d", nil, patience)
	b.must(msg, err)
	var info struct {
		Groups []struct {
			ID string `json:"pinned_client_id"`
		} `json:"priority_groups"`
	}
	b.must(nil, json.Unmarshal(msg.Data, &info))
	if len(info.Groups) == 0 {
		return ""
	}
	return info.Groups[0].ID
}

// The server's header about the pin is not the message's; one of the publisher's is.
func TestPinIsNoHeader(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.run(b.ordered())
	b.must(b.js.PublishMsg(b.ctx, &nats.Msg{Subject: "s.x", Header: nats.Header{"Nats-Pin-Id": {"mine"}}}))
	b.publish(1)
	m := b.takeAll()
	if got := m.Header["Nats-Pin-Id"]; !slices.Equal(got, []string{"mine"}) {
		t.Errorf("headers %v", m.Header)
	}
	m.Ack()
	m = b.takeAll()
	if _, found := m.Header["Nats-Pin-Id"]; found {
		t.Errorf("headers %v", m.Header)
	}
	m.Ack()
	b.eventually("everything is acked", b.settled)
}

// A check says whether a durable that is there keeps the order with several sidecars.
func TestCheckOfTheOrder(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	warned := func() bool {
		return slices.ContainsFunc(b.conn.Check(b.ctx, b.ordered(), DeadLetterConfig{}), func(f Finding) bool {
			return f.Level == Warning && strings.HasPrefix(f.Detail, "it has no pinned-client priority group")
		})
	}
	if warned() {
		t.Error("a warning about a durable that is to be made")
	}
	cfg := b.ordered()
	cfg.Ordered = false
	b.must(b.js.CreateConsumer(b.ctx, "S", cfg.wanted()))
	if !warned() {
		t.Error("no warning")
	}
	b.must(b.js.UpdateConsumer(b.ctx, "S", b.orderedWanted()))
	if warned() {
		t.Error("a warning about a durable with a group")
	}
}

func (b *bench) orderedWanted() natsjs.ConsumerConfig {
	cfg := b.ordered()
	return cfg.wanted()
}

// A durable with pinned clients is also served without an order, by several lanes once it is known whom it is pinned to.
func TestPinnedWithoutOrder(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.publish(50)
	b.must(b.js.CreateConsumer(b.ctx, "S", b.orderedWanted()))
	b.run(b.config())
	if seen := b.ackAll(50, func(int) {}); len(seen) != 50 {
		t.Errorf("%d of 50 messages came", len(seen))
	}
}

// A failing app gets all that a dead process had too, one at a time, in the order of the stream.
func TestGatherForAFailingApp(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.publish(20)
	cfg := b.ordered()
	b.leaveBehind(cfg, 6)
	b.prepare = func(s *Source) { s.pulling = PullOne }
	b.run(cfg)
	b.source.Pull(PullOne)
	b.inOrder(1, 20)
}

// While messages are gathered for a failing app, no more are asked for than it can be tried with.
func TestGatherOne(t *testing.T) {
	const wait = time.Minute
	fresh, again, kept := &Message{Sequence: 3, Delivered: 1}, &Message{Sequence: 1, Delivered: 2}, &Message{Sequence: 2, Delivered: 1, kept: true}
	for name, c := range map[string]struct {
		leased, held []*Message
		since        time.Duration
		want         int
	}{
		"nothing":                           {nil, nil, 0, 1},
		"a new one is held":                 {[]*Message{fresh}, []*Message{fresh}, 0, 0},
		"so it is for an ack wait":          {[]*Message{fresh}, []*Message{fresh}, wait, 1},
		"a new one may be tried":            {[]*Message{fresh}, nil, wait, 0},
		"one is tried again":                {[]*Message{kept}, nil, 0, 1},
		"that and a new one, which is held": {[]*Message{kept, fresh}, []*Message{fresh}, 0, 0},
		"so it is, too":                     {[]*Message{kept, fresh}, []*Message{fresh}, wait, 1},
		"one that was redelivered":          {[]*Message{again}, []*Message{again}, 0, 1},
		"as many as the app may have":       {[]*Message{again, kept}, []*Message{again}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSource(nil, ConsumerConfig{Stream: "S", Ordered: true, Concurrency: 2, Prefetch: 4}, quiet())
			s.bound = &binding{info: &natsjs.ConsumerInfo{Config: natsjs.ConsumerConfig{AckWait: wait}}}
			s.pulling, s.width = PullOne, s.limit()
			s.order.gathering, s.order.since, s.order.held = true, time.Now().Add(-c.since), c.held
			for _, m := range c.leased {
				s.leases[m.Sequence] = m
			}
			if got := s.wants(); got != c.want {
				t.Errorf("it asks for %d", got)
			}
		})
	}
}

// Another delivery of a message may come just when it is begun: for the race detector.
func TestMergedWhileBegun(t *testing.T) {
	s := NewSource(nil, ConsumerConfig{Stream: "S", Ordered: true, Concurrency: 1}, quiet())
	s.retries.empty.Store(true)
	m := &Message{Sequence: 1, Delivered: 1, source: s}
	var both sync.WaitGroup
	both.Go(func() { s.Begin(t.Context(), m) })
	both.Go(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.merge(m, &Message{Sequence: 1, Delivered: 2})
	})
	both.Wait()
}
