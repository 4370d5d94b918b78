package jetstream

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A source whose inboxes the server refuses, since there are too many subscriptions, is not ready, and says why. It works once there is room.
func TestSubscriptionsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		limit, others int // of the server, and of the same connection
	}{
		"inbox of pull requests":  {6, 1}, // one for all requests to the API, and the four that a source begins with
		"all that a source needs": {8, 7},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{})
			b.limited(func(o *server.Options) { o.MaxSubs = c.limit })
			b.must(b.conn.StreamState(b.ctx, "S")) // has the inbox for all requests subscribed to
			var others []*subscription
			for i := range c.others {
				other, err := b.conn.subscribe(fmt.Sprintf("other.%d", i), func(*nats.Msg) {}, nil)
				b.must(other, err)
				others = append(others, other)
			}
			b.must(nil, b.conn.nc().FlushTimeout(patience))
			b.publish(20)
			b.begin(b.config())
			b.eventually("it says why nothing comes", func() bool {
				st := b.source.Status()
				return !st.Bound && st.Detail == tooManySubscriptions
			})
			for _, other := range others {
				b.must(nil, other.Unsubscribe())
			}
			b.drain()
			b.eventually("it is ready", func() bool { return b.source.Status().Bound })
		})
	}
}

// The inbox that all answers come to may be the subscription that is refused: then another connection is made too, and the source says why it waits.
func TestInboxForAnswersRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := runModel(t, 30*time.Second, 2, func(*ConsumerConfig) {})
		b.next()
		conn := b.source.conn
		before := conn.connections()
		b.loseQuestions(true)
		conn.refusedForLimit()
		b.source.doubt()
		time.Sleep(apiTimeout + 100*time.Millisecond)
		if st := b.source.Status(); st.Bound || st.Detail != tooManySubscriptions {
			t.Errorf("status %+v", st)
		}
		for end := time.Now().Add(resubscribeMax); conn.connections() == before && time.Now().Before(end); {
			time.Sleep(100 * time.Millisecond)
		}
		if conn.connections() == before {
			t.Error("no other connection is made")
		}
		b.loseQuestions(false)
		time.Sleep(2 * apiTimeout)
		if st := b.source.Status(); !st.Bound {
			t.Errorf("afterwards: %+v", st)
		}
	})
}

// A source that has what it needs makes no more of what others lack, and is ready.
func TestRoomForOthers(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.limited(func(o *server.Options) { o.MaxSubs = 7 })
	b.run(b.config())
	b.publish(200)
	b.drain()
	b.eventually("a subscription was refused", func() bool {
		if !b.conn.isFull() {
			b.publish(20)
			b.drain()
		}
		return b.conn.isFull()
	})
	b.publish(50)
	b.drain()
	b.eventually("it has no lane that hears nothing, and is ready", func() bool {
		b.source.mu.Lock()
		defer b.source.mu.Unlock()
		for _, l := range b.source.lanes {
			if !l.heard || time.Since(l.lastHeard) > unheardFor {
				return false
			}
		}
		return b.source.hasLane(time.Now()) && b.source.status.Load().Bound
	})
}

// Nobody's connection is made anew for a limit that keeps no source from its work.
func TestLimitOnSubscriptionsReconnects(t *testing.T) {
	for starving, want := range map[bool]uint64{true: 4 + 58, false: 0} { // after 5, 10, 20 and 40 s, then each minute
		t.Run(fmt.Sprint(starving), func(t *testing.T) {
			onWire(t, func(conn *Conn, w *fakeWire, _ *lockedText) {
				conn.starves(nil, starving)
				for range 4 * 3600 { // an hour
					w.send([]byte("-ERR 'maximum subscriptions exceeded'\r\n"))
					time.Sleep(250 * time.Millisecond)
					synctest.Wait()
				}
				if n := conn.nc().Stats().Reconnects; n != want {
					t.Errorf("%d reconnects, want %d", n, want)
				}
			})
		})
	}
}
