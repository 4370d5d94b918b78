package jetstream

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// goesOnWithin is how long nothing may be called after a server forgot what it knew. It is much less than the ack wait.
const goesOnWithin = 8 * time.Second

// goOn plays a server that forgets with an ack wait of half a minute, and returns what was wrong.
func goOn(seed uint64, what string, clients int, change func(*orderWorld)) []string {
	w := newOrderWorld(seed, seed%2 == 0, seed%3 == 0, clients)
	w.durable.ackWait, w.cfg.AckWait, w.forgets, w.dedupe = 30*time.Second, 30*time.Second, true, seed%4 < 2
	w.quick = true
	change(w)
	end, err := w.launch()
	defer end()
	if err != nil {
		return []string{err.Error()}
	}
	for i := range 600 {
		w.durable.publish(fmt.Sprint("s.", i%12))
	}
	time.Sleep(300*time.Millisecond + time.Duration(seed)*17*time.Millisecond)
	if err := w.happen(mishap{what: what, length: time.Second}, nil); err != nil {
		return []string{err.Error()}
	}
	wrong := w.waitsLongest(goesOnWithin)
	for _, c := range w.clients {
		c.kill()
	}
	time.Sleep(2 * stallStep)
	if wrong = append(wrong, w.wrong...); len(wrong) > 0 {
		return append(wrong, w.story()...)
	}
	return nil
}

// waitsLongest waits until everything is settled, and says if nothing was called for that long. Without an order it waits until everything was
// delivered: a nak that the server forgot is what the ack wait makes of it.
func (w *orderWorld) waitsLongest(most time.Duration) []string {
	before, since := "", time.Now()
	for !w.durable.settled() && (w.cfg.Ordered || w.durable.hasNew()) {
		if now := w.progress(); now != before {
			before, since = now, time.Now()
		}
		if time.Since(since) > most {
			return []string{"it stands still: " + w.durable.state()}
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil
}

// progress is how much was called and settled so far.
func (w *orderWorld) progress() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	begun, ended := 0, 0
	for _, a := range w.calls {
		if begun++; !a.ended.IsZero() {
			ended++
		}
	}
	return fmt.Sprint(begun, ended)
}

// A server that was killed, or a durable that was reset, forgets messages that are leased or answered: they come again, and all goes on in
// seconds, in order.
func TestForgottenGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, what := range []string{"crash", "reset"} {
			for seed := range uint64(12) {
				if wrong := goOn(seed, what, 1, func(*orderWorld) {}); len(wrong) > 0 {
					t.Fatalf("%s, seed %d\n%s", what, seed, strings.Join(wrong, "\n"))
				}
			}
		}
	})
}

// So it is where nothing is leased ahead, and without an order: what is leased may be all that was forgotten.
func TestForgottenGoesOnWithFewLeases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for seed := range uint64(12) {
			wrong := goOn(seed, "crash", 1, func(w *orderWorld) { w.cfg.Prefetch, w.cfg.Ordered = 0, seed%3 == 0 })
			wrong = slices.DeleteFunc(wrong, func(s string) bool { return seed%3 != 0 && !strings.HasPrefix(s, "it stands still") })
			if len(wrong) > 0 {
				t.Fatalf("seed %d\n%s", seed, strings.Join(wrong, "\n"))
			}
		}
	})
}

// Verdicts that are not confirmed, for whatever reason, are told of once after some seconds; and where nothing is in work meanwhile the source is not
// well, until they are confirmed.
func TestUnconfirmed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newOrderWorld(1, true, false, 1)
		w.quick, w.forgets = true, true
		var log bytes.Buffer
		c := w.clients[0]
		c.wire.log = slog.New(slog.NewTextHandler(&log, nil))
		inWorld(t, w, 1, func() {
			w.durable.hear(false)
			for range 3 {
				w.durable.publish("s.0")
			}
			time.Sleep(unconfirmedFor - time.Second)
			if st := c.source.Status(); !st.Bound {
				t.Errorf("at first: %+v", st)
			}
			time.Sleep(unconfirmedFor + infoEvery)
			if st := c.source.Status(); st.Bound || st.Detail != unconfirmed {
				t.Errorf("after %s: %+v", unconfirmedFor, st)
			}
			w.durable.hear(true)
			time.Sleep(resendMax + infoEvery)
			if st := c.source.Status(); !st.Bound || st.Detail != "" || !w.durable.settled() {
				t.Errorf("confirmed: %+v, %s", st, w.durable.state())
			}
		})
		if n := strings.Count(log.String(), unconfirmed); n != 1 {
			t.Errorf("told %d times:\n%s", n, log.String())
		}
	})
}

// ofAReplicated is what the leader of a replicated durable may say: that it delivered n messages, and how many are pending.
func ofAReplicated(n uint64, pending int) *natsjs.ConsumerInfo {
	return &natsjs.ConsumerInfo{
		Cluster:   &natsjs.ClusterInfo{Leader: "a", Replicas: []*natsjs.PeerInfo{{Name: "b"}, {Name: "c"}}},
		Delivered: natsjs.SequenceInfo{Consumer: n, Stream: n}, NumAckPending: pending,
	}
}

// What a replicated durable did not deliver, as it says, is over only if it goes on saying so; and where as many are pending as are leased, not soon.
func TestForgottenByAReplicatedDurable(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	cfg := b.config()
	cfg.AckWait = time.Hour
	b.publish(4)
	b.run(cfg)
	for range 4 {
		b.next()
	}
	s := b.source
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.leases {
		m.started = false // it was not sent to the app
	}
	now := time.Now()
	at := func(after time.Duration) *look {
		return &look{asked: now.Add(after), arrived: s.arrived, leased: len(s.leases), highest: s.highest}
	}
	for _, step := range []struct {
		after     time.Duration
		delivered uint64
		pending   int
		left      int
	}{
		{0, 1, 0, 4},
		{replicatedWithin - 1, 1, 0, 4},
		{replicatedWithin, 4, 0, 4}, // it knows them after all
		{replicatedWithin + 1, 1, 4, 4},
		{2*replicatedWithin + 1, 1, 4, 4}, // as many are pending as are leased
		{2*replicatedWithin + 2, 1, 3, 1},
		{3 * replicatedWithin, 0, 1, 1},
		{3*replicatedWithin + unlikelyWithin - 1, 0, 1, 1},
		{3*replicatedWithin + unlikelyWithin, 0, 1, 0},
	} {
		s.dropForgotten(at(step.after), ofAReplicated(step.delivered, step.pending))
		if len(s.leases) != step.left {
			t.Fatalf("after %s %d are leased, want %d", step.after, len(s.leases), step.left)
		}
	}
}

// The count of a replicated durable may lag, but not for long behind the same number.
func TestLag(t *testing.T) {
	now := time.Now()
	var g lag
	for _, step := range []struct {
		after       time.Duration
		count, seen uint64
		behind      bool
	}{
		{0, 10, 10, false},
		{1, 10, 12, false},
		{2 * time.Second, 12, 20, false}, // it goes on, and lags
		{4 * time.Second, 20, 25, false},
		{4*time.Second + replicatedWithin - 1, 24, 30, false},
		{4*time.Second + replicatedWithin, 24, 30, true},
		{5*time.Second + replicatedWithin, 24, 24, false},
	} {
		if got := g.behind(step.count, &look{asked: now.Add(step.after), highest: step.seen}); got != step.behind {
			t.Fatalf("after %s: %t", step.after, got)
		}
	}
}

// What was settled long before a server ended is not settled again by itself: where it is pending, somebody wants it once more.
func TestWhatIsSettledAgain(t *testing.T) {
	now := time.Now()
	var settled settledLeases
	for i, ago := range []time.Duration{time.Minute, time.Second, time.Second, time.Second, time.Second} {
		n := uint64(i + 1)
		settled.add(&Message{lease: n, serial: n + n/4}, now.Add(-ago)) // the fourth has been delivered twice
	}
	var info natsjs.ConsumerInfo
	info.AckFloor.Stream, info.Delivered.Stream, info.Delivered.Consumer = 0, 4, 4
	var got []uint64
	for _, done := range settled.again(&info, now.Add(-forgetsAtMost)) {
		got = append(got, done.lease)
	}
	if want := []uint64{2, 3}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A nak that is not sent again, since another may have the message, is no server that does not answer.
func TestNaksThatAreNotRepeatedStandForNothing(t *testing.T) {
	for _, onlyOne := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			b := runModel(t, 30*time.Second, 1, func(*ConsumerConfig) {})
			m, s := b.next(), b.source
			s.mu.Lock()
			defer s.mu.Unlock()
			m.verdict, m.wasSent, m.awaited, s.onlyOne = "-NAK", true, time.Now().Add(-unconfirmedFor), onlyOne
			s.settling[m] = struct{}{}
			if still := s.standsStill(time.Now()); still != onlyOne {
				t.Errorf("only one %v: it stands still: %v", onlyOne, still)
			}
			delete(s.settling, m)
			m.verdict = ""
		})
	}
}

// What the server forgot while it waited for another try here is not tried before it comes again.
func TestForgottenIsNotBegun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := runModel(t, 30*time.Second, 1, func(*ConsumerConfig) {})
		m, s := b.next(), b.source
		s.mu.Lock()
		m.forgotten = true
		s.mu.Unlock()
		if s.begin(m) || !m.Lost() {
			t.Error("it is begun")
		}
	})
}
