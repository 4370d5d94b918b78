package test

import (
	"fmt"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

// clusterWorld is three servers with an app that rejects a tenth, fails a quarter once, and works for a moment.
func clusterWorld(t *testing.T, change ...func(*natsjs.StreamConfig)) (*world, *localnats.Cluster) {
	t.Helper()
	t.Parallel()
	c := localnats.RunCluster(t, 3)
	w := worldAt(t, c.URLs()...)
	w.makeStream(change...)
	w.app.on(func(c *call) reply {
		switch {
		case c.seq%10 == 0:
			return reply{status: 400}
		case c.seq%4 == 0 && c.nth == 1:
			return reply{status: 503}
		}
		return reply{status: 200, delay: 5 * time.Millisecond}
	})
	return w, c
}

func threeCopies(c *natsjs.StreamConfig) { c.Replicas = 3 }

var fewAtATime = consumer(func(c *config.Consumer) { c.Concurrency, c.Prefetch, c.AckWait, c.MaxDeliver = 4, 4, 5*time.Second, 0 })

// load publishes messages with ids of their own.
func (w *world) load(phase string, n int) {
	w.t.Helper()
	for i := range n {
		w.publish("orders.a", "x", fmt.Sprintf("Nats-Msg-Id: %s-%d", phase, i))
	}
}

// Each server in turn goes down in lame-duck mode and comes back, the one the sidecar is connected to among them: it moves by
// itself, and nothing is lost or called twice.
func TestLameDucks(t *testing.T) {
	w, c := clusterWorld(t, threeCopies)
	s := w.running(fewAtATime)
	for i := range 3 {
		retired := make(chan struct{})
		go func() {
			defer close(retired)
			c.Retire(i)
		}()
		w.load(fmt.Sprintf("going %d", i), 30)
		<-retired
		w.load(fmt.Sprintf("gone %d", i), 10)
		w.must(c.Start(i))
		w.must(c.Await())
	}
	w.balance()
	s.waitReady()
	if n := len(s.log.lines("connected to nats")); n < 2 {
		t.Errorf("connected %d times", n)
	}
}

// With two of three servers down there is no quorum: the sidecar says so and waits. When they are back, all goes on.
func TestQuorumLostAndRegained(t *testing.T) {
	w, c := clusterWorld(t, threeCopies)
	s := w.running(fewAtATime)
	w.load("before", 30)
	leader := w.leaderOf(c)
	c.Stop((leader + 1) % 3)
	c.Stop((leader + 2) % 3)
	// The server that is left goes on for up to 20 s as if nothing had happened.
	w.eventually(func() bool { return !w.isLed(stream) }, text("the stream to have no leader"))
	w.eventually(func() bool {
		c, _ := s.admin.readiness().check("consumer")
		return !c.OK && c.Detail != "" && s.admin.status("/readyz") == 503
	}, func() string { return "the consumer's check to say why: " + s.admin.text("/readyz") })
	w.must(c.Start((leader + 1) % 3))
	w.must(c.Start((leader + 2) % 3))
	w.must(c.Await())
	s.waitReady()
	w.load("after", 30)
	w.balance()
}

// A stream that is moved to another server under load, and another that gets more copies: nothing is lost or called twice.
func TestStreamMovedUnderWay(t *testing.T) {
	on := func(server string) func(*natsjs.StreamConfig) {
		return func(c *natsjs.StreamConfig) { c.Placement = &natsjs.Placement{Tags: []string{server}} }
	}
	w, _ := clusterWorld(t, on("n0"))
	s := w.running(fewAtATime)
	for _, to := range []string{"n1", "n2"} {
		w.load("before "+to, 20)
		w.makeStream(on(to))
		w.load("on the way to "+to, 20)
		w.eventually(func() bool {
			info := w.streamInfo(stream)
			return info != nil && info.Cluster != nil && info.Cluster.Leader == to && len(info.Cluster.Replicas) == 0
		}, text("the stream to be at "+to))
	}
	w.makeStream(threeCopies)
	w.load("in three copies", 20)
	for range 3 {
		w.stepDown("STREAM.LEADER.STEPDOWN." + stream)
		w.stepDown("CONSUMER.LEADER.STEPDOWN." + stream + "." + durable)
		w.load(fmt.Sprintf("step %d", len(w.published)), 10)
	}
	w.balance()
	s.waitReady()
}

// A stream that is purged in a cluster under load goes on with what comes after.
func TestPurgeInACluster(t *testing.T) {
	w, _ := clusterWorld(t, threeCopies)
	w.app.on(always(reply{status: 200, delay: 5 * time.Millisecond}))
	s := w.running(fewAtATime)
	w.load("before", 40)
	w.purge()
	w.published = nil
	w.load("after", 40)
	w.waitDone()
	for _, seq := range w.published {
		if n := len(w.app.of(seq)); n != 1 {
			t.Errorf("message %d was called %d times", seq, n)
		}
	}
	s.waitReady()
}
