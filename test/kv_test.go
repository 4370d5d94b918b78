package test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

const bucket = "sidecar-dedupe"

// shared is an option: dedupe in a bucket.
var shared = consumer(func(c *config.Consumer) { c.Dedupe.Store = "kv" })

// keys is the number of keys in the bucket; -1 if there is none.
func (w *world) keys() int {
	info := w.streamInfo("KV_" + bucket)
	if info == nil {
		return -1
	}
	return int(info.State.Msgs)
}

// dedupeErrors is how often the bucket could not be used.
func (s *sidecar) dedupeErrors() int { return int(s.admin.metric("sidecar_dedupe_errors_total")) }

// A durable that was made anew delivers all from the start: a sidecar that was started anew too calls nothing again.
func TestSharedDedupeOverRestarts(t *testing.T) {
	w := newWorld(t)
	w.app.on(func(c *call) reply {
		if c.body == "drop" {
			return reply{status: 200, header: map[string]string{"Sidecar-Action": "drop"}}
		}
		return reply{status: 200}
	})
	s := w.running(shared)
	for i := range 20 {
		w.publish("orders.a", "x", fmt.Sprintf("Nats-Msg-Id: id-%d", i))
		w.publish("orders.a", "x")
		w.publish("orders.a", "drop")
	}
	w.balance()
	w.must(s.stop())
	w.deleteDurable()
	s = w.running(shared)
	w.balance()
	s.waitMetric(`sidecar_messages_total{consumer="worker",stream="ORDERS",verdict="duplicate"`, atLeast(60))
	if n := w.app.count(); n != 60 {
		t.Errorf("%d calls, want 60", n)
	}
	if n := s.admin.metric("sidecar_dedupe_errors_total"); n != 0 {
		t.Errorf("%v errors", n)
	}
	if n := w.keys(); n != 60 {
		t.Errorf("%d keys", n)
	}
}

// The second message of an id is recognized by another sidecar, and after all of them were started anew.
func TestSharedDedupeOfIds(t *testing.T) {
	w := newWorld(t, shortWindow)
	first := w.running(shared)
	w.publish("orders.a", "x", "Nats-Msg-Id: id-1")
	w.waitDone()
	w.must(first.stop())
	second := w.running(shared)
	w.quiet(w.publishAfterWindow("orders.b", "another body", "id-1"))
	w.waitDone()
	w.must(second.stop())
	third := w.running(shared)
	w.quiet(w.publishAfterWindow("orders.c", "x", "id-1"))
	w.publish("orders.a", "x", "Nats-Msg-Id: id-2")
	w.balance()
	if n := w.app.count(); n != 2 {
		t.Errorf("%d calls", n)
	}
	third.waitMetric(`sidecar_messages_total{consumer="worker",stream="ORDERS",verdict="duplicate"`, atLeast(1))
}

// Two sidecars, each id twice: whoever gets the second message of an id does not call.
func TestSharedDedupeOfTwoSidecars(t *testing.T) {
	w := newWorld(t, shortWindow)
	one := w.running(shared)
	two := w.running(shared)
	const ids = 60
	for i := range ids {
		w.publish("orders.a", "x", fmt.Sprintf("Nats-Msg-Id: id-%d", i))
	}
	w.waitDone()
	for i := range ids {
		w.quiet(w.publishAfterWindow("orders.a", "x", fmt.Sprintf("id-%d", i)))
	}
	w.balance()
	if n := w.app.count(); n != ids {
		t.Errorf("%d calls", n)
	}
	if n := counted(t, "duplicate", ids, one, two); n != ids {
		t.Errorf("%v duplicates", n)
	}
	counted(t, "ack", ids, one, two)
	if a, b := one.admin.verdicts("ack"), two.admin.verdicts("ack"); a == 0 || b == 0 {
		t.Errorf("%v and %v acks", a, b)
	}
}

// The answer is in the bucket before the ack is sent: a sidecar that is killed between the two has left it there.
func TestSharedDedupeIsBeforeTheAck(t *testing.T) {
	w := newWorldOn(t, localnats.Options{Config: `
		authorization {
			users = [{user: "test", password: "test"}, {user: "deaf", password: "deaf", permissions: {publish: {deny: "$JS.ACK.>"}}}]
		}
		no_auth_user: "test"`})
	deaf := w.running(shared, func(c *config.Config) {
		c.NATS.User, c.NATS.Password, c.ShutdownTimeout = "deaf", "deaf", 100*time.Millisecond
	},
		consumer(func(c *config.Consumer) { c.AckWait = time.Second }))
	seq := w.publish("orders.a", "x")
	eventually(t, func() bool { return w.keys() == 1 }, text("the key in the bucket"))
	if err := deaf.stop(); err == nil {
		t.Error("its acks were confirmed")
	}
	s := w.running(shared)
	w.balance()
	if n := len(w.app.of(seq)); n != 1 {
		t.Errorf("%d calls", n)
	}
	if n := counted(t, "duplicate", 1, s); n != 1 {
		t.Errorf("%v duplicates", n)
	}
}

// Each answer is stored and confirmed before its ack is sent, as the server sees it.
func TestSharedDedupeOrder(t *testing.T) {
	w := newWorld(t)
	w.running(shared, consumer(func(c *config.Consumer) { c.Concurrency, c.Prefetch = 1, 0 }))
	w.app.on(func(c *call) reply {
		if c.body == "bad" {
			return reply{status: 400}
		}
		return reply{status: 200}
	})
	seen := make(chan *nats.Msg, 100)
	for _, subject := range []string{"$KV." + bucket + ".>", "$JS.ACK." + stream + "." + durable + ".>", "dlq.>"} {
		sub, err := w.nc.ChanSubscribe(subject, seen)
		w.must(err)
		t.Cleanup(func() { _ = sub.Unsubscribe() })
	}
	w.must(w.nc.Flush())
	const good = 30 // many, since some acks wait for a look at the durable anyway
	var got, want []string
	for range good {
		w.publish("orders.a", "good")
		want = append(want, "key", "+ACK")
	}
	w.publish("orders.a", "bad", "Nats-Msg-Id: id-1")
	want = append(want, "dead letter", "key", "+TERM")
	w.balance()
	w.must(w.nc.Flush())
	acked := map[string]bool{}
	for len(seen) > 0 {
		switch m := <-seen; {
		case acked[m.Subject]: // sent again, as the server was slow to confirm it
		case strings.HasPrefix(m.Subject, "$KV."):
			got = append(got, "key")
		case strings.HasPrefix(m.Subject, "dlq."):
			got = append(got, "dead letter")
		default:
			acked[m.Subject] = true
			got = append(got, strings.Fields(string(m.Data))[0])
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the server saw %q, want %q", got, want)
	}
}

// After a dead letter only the message itself is remembered: a corrected one under its id is delivered, by any sidecar.
func TestSharedDedupeOfDeadLetters(t *testing.T) {
	w := newWorld(t, shortWindow)
	w.app.on(func(c *call) reply {
		if c.body == "bad" {
			return reply{status: 400}
		}
		return reply{status: 200}
	})
	s := w.running(shared)
	bad := w.publish("orders.a", "bad", "Nats-Msg-Id: id-1")
	w.waitDead(1)
	w.waitDone()
	w.must(s.stop())
	s = w.running(shared)
	good := w.publishAfterWindow("orders.a", "good", "id-1")
	w.balance()
	w.must(s.stop())
	w.deleteDurable()
	s = w.running(shared)
	w.balance()
	if a, b := len(w.app.of(bad)), len(w.app.of(good)); a != 1 || b != 1 {
		t.Errorf("%d calls of the bad one, %d of the good one", a, b)
	}
	s.waitMetric(`sidecar_messages_total{consumer="worker",stream="ORDERS",verdict="duplicate"`, atLeast(2))
}

// A dead letter alone, with an id: not called again after the durable was made anew.
func TestSharedDedupeOfADeadLetterItself(t *testing.T) {
	w := newWorld(t)
	w.app.on(always(reply{status: 400}))
	s := w.running(shared)
	bad := w.publish("orders.a", "bad", "Nats-Msg-Id: id-1")
	w.waitDead(1)
	w.waitDone()
	w.must(s.stop())
	w.deleteDurable()
	s = w.running(shared)
	s.waitMetric(`sidecar_messages_total{consumer="worker",stream="ORDERS",verdict="duplicate"`, atLeast(1))
	w.balance()
	if n := len(w.app.of(bad)); n != 1 {
		t.Errorf("%d calls", n)
	}
}

func TestSharedDedupeForgets(t *testing.T) {
	w := newWorld(t)
	ttl := consumer(func(c *config.Consumer) { c.Dedupe.TTL = time.Second })
	s := w.running(shared, ttl)
	seq := w.publish("orders.a", "x", "Nats-Msg-Id: id-1")
	w.waitDone()
	w.must(s.stop())
	eventually(t, func() bool { return w.keys() == 0 }, text("the key to be forgotten"))
	w.deleteDurable()
	w.running(shared, ttl)
	eventually(t, func() bool { return len(w.app.of(seq)) == 2 }, text("the second call"))
	w.waitDone()
}

// A stream that was made anew starts a new life, with the bucket as without.
func TestSharedDedupeStreamMadeAnew(t *testing.T) {
	w := newWorld(t)
	s := w.running(shared)
	w.publish("orders.a", "x", "Nats-Msg-Id: id-1")
	w.publish("orders.a", "x")
	w.waitDone()
	w.must(s.stop())
	w.anew(stream)
	w.published = nil
	w.makeStream()
	w.publish("orders.a", "y", "Nats-Msg-Id: id-1")
	w.publish("orders.a", "y")
	s = w.running(shared)
	eventually(t, func() bool { return w.app.count() == 4 }, text("all four calls"))
	w.waitDone()
	if n := s.admin.verdicts("duplicate"); n != 0 {
		t.Errorf("%v duplicates", n)
	}
}

// Consumers share a bucket and not what they answered.
func TestSharedDedupeOfTwoConsumers(t *testing.T) {
	w := newWorld(t)
	w.running(shared, func(c *config.Config) {
		other := c.Consumers[0]
		other.Durable = "other"
		c.Consumers = append(c.Consumers, other)
	})
	for i := range 10 {
		w.publish("orders.a", "x", fmt.Sprintf("Nats-Msg-Id: id-%d", i))
	}
	eventually(t, func() bool { return w.keys() == 20 && w.app.count() == 20 }, func() string {
		return fmt.Sprintf("20 keys and calls: %d and %d", w.keys(), w.app.count())
	})
}

// A bucket that is deleted under way is made anew. Messages flow, and what is answered from then on is shared again.
func TestSharedDedupeBucketDeleted(t *testing.T) {
	w := newWorld(t)
	w.running(shared)
	load := func(n int) {
		for range n {
			w.publish("orders.a", "x")
		}
	}
	load(20)
	w.waitDone()
	w.anew("KV_" + bucket)
	load(20)
	w.balance()
	keys := func(n int) {
		eventually(t, func() bool { return w.keys() >= n }, func() string { return fmt.Sprintf("%d keys, which are %d", n, w.keys()) })
	}
	keys(20)
	load(20)
	w.balance()
	keys(40)
}

// A bucket that cannot be used is counted, and holds nothing up: no message waits for its time-out but one a second. If each did,
// two at a time, all of them would take three times our patience.
func TestSharedDedupeBucketOutOfReach(t *testing.T) {
	for name, c := range map[string]struct {
		deny   string
		change func(*config.Consumer)
	}{
		"nothing may be asked":  {"[\"$KV.>\", \"$JS.API.DIRECT.>\", \"$JS.API.STREAM.*.KV_sidecar-dedupe\"]", func(*config.Consumer) {}},
		"nothing may be stored": {"[\"$KV.>\"]", func(*config.Consumer) {}},
		"it is missing":         {"[]", func(c *config.Consumer) { c.Manage = "none" }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorldOn(t, localnats.Options{Config: `
				authorization {
					users = [{user: "test", password: "test"}, {user: "bound", password: "bound", permissions: {publish: {deny: ` + c.deny + `}}}]
				}
				no_auth_user: "test"`})
			w.durableOf()
			s := w.running(shared, consumer(c.change), consumer(func(c *config.Consumer) { c.Concurrency = 2 }),
				func(c *config.Config) { c.NATS.User, c.NATS.Password = "bound", "bound" })
			for i := range 300 {
				w.publish("orders.a", "x", fmt.Sprintf("Nats-Msg-Id: id-%d", i))
			}
			eventually(t, func() bool { return w.app.count() == 300 }, func() string { return fmt.Sprintf("300 calls, there are %d", w.app.count()) })
			w.balance()
			s.waitMetric("sidecar_dedupe_errors_total", atLeast(300))
			if status := s.admin.status("/readyz"); status != 200 {
				t.Errorf("/readyz %d", status)
			}
			if n := len(s.log.lines("the dedupe bucket cannot be used, messages flow without it")); n < 1 || n > 3 {
				t.Errorf("%d log lines:\n%s", n, s.log.end())
			}
		})
	}
}

// What was answered while the bucket was away is stored when it is back.
func TestSharedDedupeBucketComesBack(t *testing.T) {
	w := newWorld(t)
	none := consumer(func(c *config.Consumer) { c.Manage = "none" })
	w.durableOf()
	s := w.running(shared, none)
	for range 30 {
		w.publish("orders.a", "x")
	}
	w.waitDone()
	ctx, cancel := within()
	defer cancel()
	_, err := w.js.CreateKeyValue(ctx, natsjs.KeyValueConfig{Bucket: bucket, TTL: time.Hour})
	w.must(err)
	eventually(t, func() bool { return w.keys() == 30 }, func() string { return fmt.Sprintf("30 keys, %d", w.keys()) })
	w.must(s.stop())
	w.deleteDurable()
	w.durableOf()
	w.running(shared, none)
	w.balance()
	if n := w.app.count(); n != 30 {
		t.Errorf("%d calls", n)
	}
}

// An outage of NATS longer than the ack wait: another sidecar gets what this one had answered meanwhile.
func TestSharedDedupeOverAnOutage(t *testing.T) {
	w := newWorld(t)
	open := make(chan struct{})
	w.app.on(always(reply{status: 200, gate: open}))
	w.running(shared, consumer(func(c *config.Consumer) { c.AckWait, c.Concurrency = time.Second, 8 }))
	for range 8 {
		w.publish("orders.a", "x")
	}
	eventually(t, func() bool { return w.app.inFlight() == 8 }, text("eight calls"))
	w.nats.Shutdown()
	close(open)
	eventually(t, func() bool { return w.app.inFlight() == 0 }, text("eight answers"))
	throughout(t, 1500*time.Millisecond, func() bool { return w.app.count() == 8 }, text("nothing is called while NATS is away, for longer than the ack wait"))
	w.must(w.nats.Restart())
	w.balance()
	eventually(t, func() bool { return w.keys() == 8 }, func() string { return fmt.Sprintf("eight keys, %d", w.keys()) })
}

// In a cluster the bucket has as many copies as the source, and sidecars share it over leader changes.
func TestSharedDedupeInACluster(t *testing.T) {
	t.Parallel()
	c := localnats.RunCluster(t, 3)
	w := worldAt(t, c.URLs()...)
	w.makeStream(func(c *natsjs.StreamConfig) { c.Replicas, c.Duplicates = 3, 100*time.Millisecond })
	one := w.running(shared)
	two := w.running(shared)
	load := func() {
		for i := range 30 {
			w.publish("orders.a", "x", fmt.Sprintf("Nats-Msg-Id: id-%d", i))
		}
	}
	load()
	w.waitDone()
	w.stepDown("STREAM.LEADER.STEPDOWN.KV_" + bucket)
	w.eventually(func() bool { return w.isLed("KV_" + bucket) }, text("the next leader of the bucket: what is answered without one is not in it"))
	const ids = 30
	var first, again []uint64
	first = append(first, w.published...)
	for i := range ids {
		again = append(again, w.publishAfterWindow("orders.a", "x", fmt.Sprintf("id-%d", i)))
	}
	w.waitDone()
	for _, seq := range first {
		if n := len(w.app.of(seq)); n != 1 {
			t.Errorf("message %d was called %d times", seq, n)
		}
	}
	// Where three copies take too long a message flows without the bucket, which is counted.
	flowed := 0
	for _, seq := range again {
		flowed += len(w.app.of(seq))
	}
	if errors := one.dedupeErrors() + two.dedupeErrors(); flowed > errors {
		t.Errorf("%d calls of messages whose id was answered, and %d flowed without the bucket", flowed, errors)
	}
	if info := w.streamInfo("KV_" + bucket); info.Config.Replicas != 3 {
		t.Errorf("%d replicas", info.Config.Replicas)
	}
	if n := counted(t, "duplicate", float64(ids-flowed), one, two); n != float64(ids-flowed) {
		t.Errorf("%v duplicates", n)
	}
}
