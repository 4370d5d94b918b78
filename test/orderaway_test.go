package test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// Of two sidecars, each with its own app, the one whose app fails leaves the durable to the other within seconds; and takes it over again when that
// one's app fails. However an app fails: the order is kept over both, and nothing is lost or dead.
func TestOrderWhileAppsFail(t *testing.T) {
	working := always(reply{status: 200, delay: 10 * time.Millisecond})
	for name, c := range map[string]struct {
		ready     string
		fail, end func(*fakeApp)
	}{
		"it is gone":              {"", (*fakeApp).down, (*fakeApp).up},
		"it answers 503":          {"", func(a *fakeApp) { a.on(always(reply{status: 503})) }, func(a *fakeApp) { a.on(working) }},
		"it says it is not ready": {"/ready", func(a *fakeApp) { a.setReady(http.StatusServiceUnavailable) }, func(a *fakeApp) { a.setReady(http.StatusOK) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			apps := []*fakeApp{w.app, newApp(t)}
			var both []*sidecar
			for i, a := range apps {
				a.on(working)
				both = append(both, w.running(ordered("subject", func(c *config.Consumer) {
					c.AckWait = time.Minute
					c.Breaker.Failures, c.Breaker.ProbeInterval, c.Breaker.ProbeMax = 3, 100*time.Millisecond, time.Second
				}), func(cfg *config.Config) { cfg.App.URL, cfg.App.Ready.Path = a.url(), c.ready }))
				if i == 0 {
					w.publishKeys(1, 1)
					eventually(t, func() bool { return a.count() == 1 }, text("a call"))
				}
			}
			waiting := func() bool { return w.consumer(durable).NumWaiting >= 2 }
			for range 3 {
				eventually(t, waiting, text("both sidecars to ask for messages"))
				before := []int{apps[0].count(), apps[1].count()}
				w.publishKeys(5, 40)
				served := -1 // by the sidecar that the durable is pinned to: a stall of the machine can be a change of that
				eventually(t, func() bool {
					served = slices.IndexFunc(apps, func(a *fakeApp) bool { return a.count() >= before[slices.Index(apps, a)]+20 })
					return served >= 0
				}, text("calls of one app"))
				works := apps[1-served]
				had := works.count()
				c.fail(apps[served])
				w.publishKeys(5, 20) // all others may be done
				eventually(t, func() bool { return works.count() > had }, func() string {
					return fmt.Sprintf("the other to go on: %+v\n%s\n%s", w.consumer(durable), both[served].admin.text("/readyz"), both[1-served].admin.text("/readyz"))
				})
				w.waitDone()
				c.end(apps[served])
			}
			all := append(apps[0].all(), apps[1].all()...)
			slices.SortStableFunc(all, func(a, b call) int { return a.begun.Compare(b.begun) })
			w.inOrderOf(all, bySubject)
			w.balanceOf(all, name == "it is gone") // what it answered as it went may be lost
			if dead := w.dead(); len(dead) > 0 {
				t.Errorf("%d are dead", len(dead))
			}
		})
	}
}

// What is at a failing app when its durable is left to another sidecar ends before that one begins anything after it; and then it is handed back, however
// long it was to wait for its next try.
func TestOrderWaitsForWhatIsAtTheFailingApp(t *testing.T) {
	w := newWorld(t)
	hangs := make(chan struct{})
	other := newApp(t)
	w.app.on(func(c *call) reply {
		if c.subject == "orders.k0" {
			return reply{status: 503, gate: hangs, header: map[string]string{"Retry-After": "600"}}
		}
		return reply{status: 503}
	})
	failing := ordered("subject", func(c *config.Consumer) {
		c.AckWait = time.Minute
		c.Breaker.Failures, c.Breaker.ProbeInterval, c.Breaker.ProbeMax = 3, 100*time.Millisecond, time.Second
	})
	one := w.running(failing)
	w.publishKeys(5, 4)
	opened := "the breaker is open: the app fails message after message, pulling waits"
	eventually(t, func() bool { return w.app.inFlight() > 0 && len(one.log.lines(opened)) > 0 }, text("one call to hang, and the breaker to open"))
	two := w.running(failing, func(cfg *config.Config) { cfg.App.URL = other.url() })
	left := "the app is away or fails: the durable is left to another sidecar"
	eventually(t, func() bool { return len(one.log.lines(left)) > 0 }, text("the durable to be left"))
	eventually(t, func() bool { return two.admin.metric("sidecar_leased") >= 4 }, text("the other to lease messages"))
	throughout(t, 3*time.Second, func() bool { return other.count() == 0 }, text("the other waits for what is at the app"))
	close(hangs)
	w.waitDone()
	all := append(w.app.all(), other.all()...)
	slices.SortStableFunc(all, func(a, b call) int { return a.begun.Compare(b.begun) })
	w.inOrderOf(all, bySubject)
	w.balanceOf(all, false)
	if dead := w.dead(); len(dead) > 0 {
		t.Errorf("%d are dead", len(dead))
	}
}
