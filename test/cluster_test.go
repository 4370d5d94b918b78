package test

import (
	"fmt"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

// Three servers, three copies: leaders that step down and servers that stop under load lose nothing.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := localnats.RunCluster(t, 3)
	w := worldAt(t, c.URLs()...)
	w.makeStream(func(c *natsjs.StreamConfig) { c.Replicas = 3 })
	w.app.on(func(c *call) reply {
		switch {
		case c.seq%10 == 0:
			return reply{status: 400}
		case c.seq%4 == 0 && c.nth == 1:
			return reply{status: 503}
		}
		return reply{status: 200, delay: 2 * time.Millisecond}
	})
	s := w.running(consumer(func(c *config.Consumer) { c.Concurrency, c.Prefetch, c.AckWait, c.MaxDeliver = 4, 4, 2*time.Second, 0 }))
	load := func(phase string) {
		for i := range 40 {
			w.publish("orders.a", "x", fmt.Sprintf("Nats-Msg-Id: %s-%d", phase, i))
		}
	}
	load("calm")
	w.stepDown("STREAM.LEADER.STEPDOWN." + stream)
	load("stream leader gone")
	w.stepDown("CONSUMER.LEADER.STEPDOWN." + stream + "." + durable)
	load("consumer leader gone")
	leader := w.leaderOf(c)
	c.Stop(leader)
	load("server gone")
	w.must(c.Start(leader))
	load("server back")
	w.must(c.Await())
	w.balance()
	s.waitReady()
	if n := w.app.peak(); n > 4 {
		t.Errorf("%d calls at a time", n)
	}
	if info := w.streamInfo(dlq); info == nil || info.Config.Replicas != 3 {
		t.Errorf("the DLQ has not as many copies as its source: %+v", info)
	}
}

func (w *world) stepDown(subject string) {
	w.t.Helper()
	w.eventually(func() bool {
		var answer struct{ Success bool }
		return w.api(subject, nil, &answer) && answer.Success
	}, text(subject))
}

// isLed reports whether a stream has a leader: nobody else says anything of it.
func (w *world) isLed(name string) bool {
	var info natsjs.StreamInfo
	return w.api("STREAM.INFO."+name, nil, &info) && info.Cluster != nil && info.Cluster.Leader != ""
}

// leaderOf is the server that leads the durable.
func (w *world) leaderOf(c *localnats.Cluster) int {
	w.t.Helper()
	leader := -1
	w.eventually(func() bool {
		info := w.consumer(durable)
		for i := range 3 {
			if info != nil && info.Cluster != nil && c.Server(i).Native().Name() == info.Cluster.Leader {
				leader = i
			}
		}
		return leader >= 0
	}, text("a leader of the durable"))
	return leader
}
