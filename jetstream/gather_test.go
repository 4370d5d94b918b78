package jetstream

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// mishap is something that happens to a model of everything that takes part in keeping order.
type mishap struct {
	after  time.Duration // since the one before
	what   string
	client int
	length time.Duration
}

// The kinds of mishaps; what comes often stands here often.
var mishaps = []string{"publish", "publish", "publish", "kill", "kill", "stop", "cut", "cut", "stall", "stall", "restart", "crash", "crash", "reset", "elect", "elect", "rest", "rest", "away", "away"}

const modelKeys = 3

// happen brings a mishap about. What lasts is healed in the background.
func (w *orderWorld) happen(e mishap, heal func(time.Duration, func())) error {
	w.tell("%s of client %d for %s", e.what, e.client%len(w.clients), e.length)
	c := w.clients[e.client%len(w.clients)]
	switch e.what {
	case "publish":
		for i := range 1 + int(e.length/(250*time.Millisecond)) {
			if w.durable.filtered {
				w.durable.publish("s.for.others")
			}
			w.durable.publish(fmt.Sprint("s.", (i+e.client)%modelKeys))
		}
	case "kill":
		c.kill()
		time.Sleep(e.length / 4)
		return c.start()
	case "stop":
		c.stop()
		return c.start()
	case "cut":
		w.disturb(c.number)
		c.wire.set(true)
		heal(e.length, func() { c.wire.set(false) })
	case "stall":
		if !w.durable.pinned && len(w.clients) > 1 {
			return nil // without a pin, a message that comes late cannot be told from one that was delivered to another meanwhile
		}
		w.disturb(c.number)
		c.wire.stall(true)
		heal(e.length, func() { c.wire.stall(false) })
	case "elect":
		w.disturb(-1)
		w.durable.elect(e.length / 4)
	case "rest":
		if s := c.source; s != nil {
			s.Pull(PullOne)
			heal(e.length, func() { s.Pull(PullAll) })
		}
	case "away":
		if s := c.source; s != nil {
			much := Pulling(c.random.IntN(2)) // its app is away, or its breaker open
			s.AppFails(true)
			s.Pull(much)
			heal(4*e.length, func() { s.AppFails(false); s.Pull(PullAll) })
		}
	case "restart":
		w.disturb(-1)
		w.durable.restart(e.length / 4)
	case "crash":
		w.disturb(-1)
		w.durable.crash(e.length / 4)
		w.disturb(-1) // who was let in meanwhile is forgotten too
	case "reset":
		w.disturb(-1)
		w.durable.reset()
	}
	return nil
}

// launch starts the durable and the clients. The durable runs until end is called.
func (w *orderWorld) launch() (end func(), err error) {
	stop := make(chan struct{})
	go w.durable.run(stop)
	for _, c := range w.clients {
		if err == nil {
			err = c.start()
		}
	}
	return func() { close(stop) }, err
}

// play lets mishaps happen to a world, then waits until everything is settled. It returns what was wrong.
func play(seed uint64, pinned, filtered bool, clients int, events []mishap) (wrong []string) {
	w := newOrderWorld(seed, pinned, filtered, clients)
	w.forgets = slices.ContainsFunc(events, func(e mishap) bool { return e.what == "crash" || e.what == "reset" })
	w.dedupe = w.forgets && seed%2 == 0
	end, err := w.launch()
	defer end()
	if err != nil {
		return []string{err.Error()}
	}
	var healing sync.WaitGroup
	heal := func(d time.Duration, f func()) { healing.Go(func() { time.Sleep(d); f() }) }
	for _, e := range events {
		time.Sleep(e.after)
		if err := w.happen(e, heal); err != nil {
			return []string{err.Error()}
		}
	}
	healing.Wait()
	for limit := time.Now().Add(5 * time.Minute); !w.durable.settled() && time.Now().Before(limit); {
		time.Sleep(100 * time.Millisecond)
	}
	if !w.durable.settled() {
		wrong = append(wrong, "not everything is settled: "+w.durable.state())
	}
	for _, c := range w.clients {
		c.wire.stall(false)
		c.kill()
	}
	time.Sleep(2 * stallStep) // until all of the wires is over: a bubble's time stops with its test
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.wrong) > 0 || len(wrong) > 0 {
		return append(append(wrong, w.wrong...), w.story()...)
	}
	return nil
}

// Whatever is killed, stopped, cut off, stalled or restarted: of each key one message at a time is called, none before an earlier one is done, and
// none again after a later one; and everything is done in the end.
func TestGatherKeepsTheOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		time.Sleep(rand.N(365 * 24 * time.Hour)) // the seeds are taken from the clock
		rapid.Check(inBubble{t}, func(rt *rapid.T) {
			seed := rapid.Uint64().Draw(rt, "seed")
			pinned := rapid.Bool().Draw(rt, "pinned")
			filtered := rapid.Bool().Draw(rt, "filtered")
			clients := rapid.IntRange(1, 3).Draw(rt, "clients")
			events := rapid.SliceOfN(rapid.Custom(drawMishap), 1, 25).Draw(rt, "events")
			if wrong := play(seed, pinned, filtered, clients, events); len(wrong) > 0 {
				rt.Fatalf("seed %d, pinned %v, filtered %v, %d clients\n%s", seed, pinned, filtered, clients, strings.Join(wrong, "\n"))
			}
		})
	})
}

// What comes late, after a silence in which the server gave it to another, is not begun; nor is what was to be tried again then.
func TestSilence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for seed := range uint64(40) {
			var events []mishap
			for range 4 {
				events = append(events,
					mishap{what: "publish", length: 2500 * time.Millisecond}, mishap{after: 300 * time.Millisecond, what: "stall", client: 0, length: 4 * time.Second},
					mishap{what: "publish", client: 1, length: 2500 * time.Millisecond}, mishap{after: 7 * time.Second, what: "stall", client: 1, length: 4 * time.Second},
					mishap{after: 7 * time.Second, what: "publish"})
			}
			if wrong := play(seed, true, seed%2 == 0, 2, events); len(wrong) > 0 {
				t.Fatalf("seed %d\n%s", seed, strings.Join(wrong, "\n"))
			}
		}
	})
}

// bubble runs a test in a bubble, with the NATS client in it. That one pools timers, which must not come from another bubble, nor be left for
// others: two collections empty the pool.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	empty := func() { runtime.GC(); runtime.GC() }
	empty()
	defer empty()
	synctest.Test(t, f)
}

// inBubble is a test that has no deadline, as in a bubble it cannot be asked for it.
type inBubble struct{ *testing.T }

func (inBubble) Deadline() (time.Time, bool) { return time.Time{}, false }

func drawMishap(rt *rapid.T) mishap {
	return mishap{
		after:  time.Duration(rapid.IntRange(0, 2000).Draw(rt, "after")) * time.Millisecond,
		what:   rapid.SampledFrom(mishaps).Draw(rt, "what"),
		client: rapid.IntRange(0, 2).Draw(rt, "client"),
		length: time.Duration(rapid.IntRange(0, 5000).Draw(rt, "length")) * time.Millisecond,
	}
}
