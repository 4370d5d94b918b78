package jetstream

import (
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A server that was restarted answers for a replica that it does not run yet, with no state: that is no answer, neither when the durable is
// looked for nor later.
func TestAnswersWithoutState(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	var blank atomic.Bool
	var blanks atomic.Int32
	b.front(func(api string, m *nats.Msg) bool {
		if api != "CONSUMER.INFO.S.d" && api != "STREAM.INFO.S" {
			return false
		}
		answer := b.answer(api, m)
		if answer == nil {
			return true
		}
		var info map[string]any
		if err := json.Unmarshal(answer, &info); err != nil || info["config"] == nil {
			t.Errorf("%s: %v", answer, err)
			return true
		}
		switch {
		case api == "STREAM.INFO.S":
			info["config"].(map[string]any)["num_replicas"] = 3
		case !blank.Load():
			info["cluster"] = map[string]any{"leader": "one"}
		default:
			blanks.Add(1)
			info = map[string]any{"stream_name": "S", "name": "d", "created": info["created"], "config": info["config"]}
		}
		data, err := json.Marshal(info)
		b.respond(m, data, err)
		return true
	})
	cfg := b.config()
	b.must(b.js.CreateConsumer(b.ctx, "S", cfg.wanted()))
	blank.Store(true)
	b.begin(cfg)
	b.eventually("there were such answers", func() bool { return blanks.Load() >= 2 })
	if st := b.source.Status(); st.Bound || !strings.Contains(st.Detail, errStateless.Error()) {
		t.Errorf("it is bound: %+v", st)
	}
	blank.Store(false)
	b.publish(10)
	for range 10 {
		b.next().Ack()
	}
	b.eventually("everything is acked", b.settled)
	b.sawFloor(10)
	blank.Store(true)
	was, began := blanks.Load(), time.Now()
	b.eventually("there were such answers", func() bool { b.source.doubt(); return blanks.Load() >= was+5 })
	if pauses := time.Since(began) / lookPause; time.Duration(blanks.Load()-was) > 2*pauses+3 { // what is not answered soon is asked again
		t.Errorf("asked %d times in %s", blanks.Load()-was, time.Since(began))
	}
	b.source.mu.Lock()
	if floor := b.source.lastSeen.floor; floor != 10 || b.source.bound.info.Cluster == nil {
		t.Errorf("it believes them: floor %d", floor)
	}
	b.source.mu.Unlock()
	blank.Store(false)
	b.publish(1)
	b.next().Ack()
	b.eventually("everything is acked", b.settled)
}

// sawFloor waits until the source saw an acknowledgement floor.
func (b *bench) sawFloor(floor uint64) {
	b.t.Helper()
	b.eventually("the floor is seen", func() bool {
		b.source.doubt()
		b.source.mu.Lock()
		defer b.source.mu.Unlock()
		return b.source.lastSeen.floor == floor
	})
}

// A durable that is made again as its stream is made anew starts there as the configuration says, not where it was in the old stream.
func TestStreamMadeAnewWhileBinding(t *testing.T) {
	for _, at := range []string{"CONSUMER.INFO.S.d", "CONSUMER.CREATE.S.d"} {
		t.Run(at, func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{})
			var armed atomic.Bool
			last := ""
			b.front(func(api string, _ *nats.Msg) bool {
				if last == "STREAM.INFO.S" && strings.HasPrefix(api, at) && armed.Swap(false) {
					b.makeAnew(3)
				}
				last = api
				return false
			})
			b.publish(10)
			b.run(b.config())
			for range 10 {
				b.next().Ack()
			}
			b.eventually("everything is acked", b.settled)
			b.sawFloor(10)
			armed.Store(true)
			b.must(nil, b.js.DeleteConsumer(b.ctx, "S", "d"))
			if at == "CONSUMER.CREATE.S.d" {
				b.eventually("it is refused", func() bool { return strings.Contains(b.source.Status().Detail, whyMisplaced) })
				return
			}
			for range 3 {
				b.next().Ack()
			}
			b.eventually("everything is acked", b.settled)
		})
	}
}

// With manage: update a sidecar that is not the first to make the durable changes what the other one made, as it would change one that it found.
func TestUpdateAfterLostRace(t *testing.T) {
	for manage, want := range map[Manage]int{ManageUpdate: 700, ManageCreate: 500} {
		t.Run(string(manage), func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{})
			cfg := b.config()
			cfg.Manage, cfg.MaxAckPending = manage, 500
			others := cfg.wanted()
			var once sync.Once
			b.front(func(api string, _ *nats.Msg) bool {
				if strings.HasPrefix(api, "CONSUMER.CREATE.S.d") {
					once.Do(func() {
						if _, err := b.js.CreateConsumer(b.ctx, "S", others); err != nil {
							b.t.Error(err)
						}
					})
				}
				return false
			})
			cfg.MaxAckPending = 700
			b.run(cfg)
			if got := b.info().Config.MaxAckPending; got != want {
				t.Errorf("max_ack_pending is %d, want %d", got, want)
			}
		})
	}
}

// makeAnew makes the stream anew, with n messages. It is for other goroutines than the test's.
func (b *bench) makeAnew(n int) {
	err := b.deleteStream()
	if err == nil {
		_, err = b.js.CreateStream(b.ctx, natsjs.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	}
	for range n {
		if err == nil {
			_, err = b.js.Publish(b.ctx, "s.x", nil)
		}
	}
	if err != nil {
		b.t.Error(err)
	}
}

// Only an answer of who leads a replicated durable has its state.
func TestStateless(t *testing.T) {
	replicas := []*natsjs.PeerInfo{{Name: "b"}, {Name: "c"}}
	counted := natsjs.SequenceInfo{Consumer: 5, Stream: 5}
	for name, c := range map[string]struct {
		info natsjs.ConsumerInfo
		kept int
		want bool
	}{
		"one server":                {natsjs.ConsumerInfo{}, 1, false},
		"the leader":                {natsjs.ConsumerInfo{Cluster: &natsjs.ClusterInfo{Leader: "a", Replicas: replicas}}, 3, false},
		"one replica, in a cluster": {natsjs.ConsumerInfo{Cluster: &natsjs.ClusterInfo{}, Delivered: counted}, 1, false},
		"nobody leads":              {natsjs.ConsumerInfo{Cluster: &natsjs.ClusterInfo{Replicas: replicas}, Delivered: counted}, 3, true},
		"one that was restarted":    {natsjs.ConsumerInfo{}, 3, true},
	} {
		if got := stateless(&c.info, c.kept); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
