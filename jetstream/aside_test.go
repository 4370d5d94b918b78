package jetstream

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// twoClients is a model of a pinned durable with two clients, of which the first has the durable. The test ends them.
func twoClients(t *testing.T) *orderWorld {
	t.Helper()
	w := newOrderWorld(1, true, false, 2)
	stop := make(chan struct{})
	go w.durable.run(stop)
	t.Cleanup(func() {
		for _, c := range w.clients {
			c.kill()
		}
		close(stop)
		time.Sleep(2 * stallStep)
	})
	w.publish(1)
	for _, c := range w.clients {
		if err := c.start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
	}
	return w
}

// publish stores n messages of each key.
func (w *orderWorld) publish(n int) {
	for range n {
		for _, key := range []string{"s.0", "s.1", "s.2"} {
			w.durable.publish(key)
		}
	}
}

// served is how many calls a client began.
func (w *orderWorld) served(client int) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.calls {
		if a.client == client {
			n++
		}
	}
	return n
}

// deliveries is how many there were.
func (w *orderWorld) deliveries() uint64 {
	w.durable.mu.Lock()
	defer w.durable.mu.Unlock()
	return w.durable.number
}

// fail has the app of a client fail, or do its work again.
func (c *orderClient) fail(yes bool, much Pulling) {
	c.source.AppFails(yes)
	c.source.Pull(much)
}

func (w *orderWorld) holds(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.wrong) > 0 {
		t.Fatal(strings.Join(append(slices.Clone(w.wrong), w.story()...), "\n"))
	}
}

// settledWithin holds that all is done in time.
func (w *orderWorld) settledWithin(t *testing.T, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); !w.durable.settled(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not everything is settled within %s: %s", d, w.durable.state())
		}
	}
	w.holds(t)
}

// One whose app fails leaves the durable to the other within seconds, which goes on in order, and gets it back when that one's fails.
func TestDurableIsLeftToWhoCanUseIt(t *testing.T) {
	for name, much := range map[string]Pulling{"away": PullNothing, "breaker": PullOne} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := twoClients(t)
				w.settledWithin(t, time.Minute)
				if w.served(0) == 0 || w.served(1) > 0 {
					t.Fatalf("%d and %d calls", w.served(0), w.served(1))
				}
				for turn := range 3 {
					fails, works := w.clients[turn%2], w.clients[1-turn%2]
					before := w.served(works.number)
					w.publish(20)
					time.Sleep(500 * time.Millisecond)
					fails.fail(true, much)
					time.Sleep(yieldAfter + 3*infoEvery + 2*time.Second)
					if w.served(works.number) == before {
						t.Fatal("the other one does not work")
					}
					since := w.served(fails.number)
					w.settledWithin(t, time.Minute)
					if n := w.served(fails.number); n > since {
						t.Fatalf("the one whose app fails made %d more calls", n-since)
					}
					fails.fail(false, PullAll)
					time.Sleep(time.Second)
				}
			})
		})
	}
}

// While nobody can use the durable it stays where it is, and nothing is delivered again.
func TestDurableStaysWhereNobodyCanUseIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := twoClients(t)
		w.settledWithin(t, time.Minute)
		w.publish(20)
		time.Sleep(500 * time.Millisecond)
		for _, c := range w.clients {
			c.fail(true, PullNothing)
		}
		time.Sleep(10 * time.Second) // what is leased is done meanwhile: the model's app is not away
		before := w.deliveries()
		time.Sleep(time.Minute)
		if n := w.deliveries(); n > before {
			t.Errorf("%d deliveries", n-before)
		}
		if w.served(1) > 0 {
			t.Error("the one that stood by works")
		}
		w.clients[1].fail(false, PullAll)
		w.settledWithin(t, time.Minute)
	})
}

// Two whose apps fail message after message pass the durable to and fro ever more seldom.
func TestDurableIsPassedSeldom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := twoClients(t)
		w.settledWithin(t, time.Minute)
		passed := func() int {
			w.durable.mu.Lock()
			defer w.durable.mu.Unlock()
			return w.durable.pins
		}
		before := passed()
		for _, c := range w.clients {
			c.fail(true, PullOne)
		}
		pause := time.NewTicker(20 * time.Second)
		defer pause.Stop()
		for end := time.Now().Add(20 * time.Minute); time.Now().Before(end); <-pause.C {
			w.durable.publish("s.0")
		}
		if n := passed() - before; n < 2 || n > 20 {
			t.Errorf("it was passed on %d times in 20 minutes", n)
		}
		for _, c := range w.clients {
			c.fail(false, PullAll)
		}
		w.settledWithin(t, 5*time.Minute)
	})
}
