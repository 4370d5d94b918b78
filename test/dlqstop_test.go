package test

import (
	"errors"
	"testing"
	"time"

	sidecarapp "github.com/jetsidecar/jetsidecar/internal/app"
	"github.com/jetsidecar/jetsidecar/internal/config"
)

// storing is a world with a sidecar whose second dead letter is in the DLQ after it was refused there once, and the sidecar has not
// heard of it: the answer of NATS is held.
func storing(t *testing.T, shutdown time.Duration) (*world, *far, *sidecar) {
	t.Helper()
	w := newWorld(t)
	w.dlqOf(entries(1))
	w.app.on(badAndGood)
	f := faraway(t, w.urls[0], 0)
	s := w.running(f.nats, consumer(func(c *config.Consumer) { c.AckWait = shortAckWait }), func(c *config.Config) { c.ShutdownTimeout = shutdown })
	w.publish("orders.bad", "first")
	w.waitDead(1)
	w.publish("orders.bad", "second")
	s.waitMetric("sidecar_dlq_publish_failures_total", atLeast(1))
	f.holdBack(`"stream":"` + dlq + `","seq":2`)
	w.dlqOf(entries(100))
	w.waitDead(2)
	return w, f, s
}

// A stop waits for a dead letter that is on its way to the DLQ, also after one was refused. Else the app would be called again for
// what is in the DLQ.
func TestStopWaitsForADeadLetter(t *testing.T) {
	w, f, s := storing(t, 20*time.Second)
	s.cancel()
	throughout(t, 2*time.Second, func() bool { return !s.stopped() }, text("the stop waits for the DLQ's answer"))
	f.holdBack("")
	if err := s.stop(); err != nil {
		t.Errorf("the stop: %v", err)
	}
	w.app.on(always(reply{status: 200}))
	w.running()
	w.balance()
}

// Where the answer is lost, the stop stores the dead letter again rather than hand it back.
func TestStopStoresADeadLetterAgain(t *testing.T) {
	w, f, s := storing(t, 20*time.Second)
	s.cancel()
	eventually(t, func() bool { return w.consumer(durable).NumWaiting == 0 }, text("the pulling to stop"))
	f.cut()
	f.holdBack("")
	if err := s.stop(); err != nil {
		t.Errorf("the stop: %v", err)
	}
	w.app.on(always(reply{status: 200}))
	w.running()
	w.balance()
}

// A stop that never hears of a dead letter says so.
func TestStopWithADeadLetterInDoubt(t *testing.T) {
	_, _, s := storing(t, 2*time.Second)
	if err := s.stop(); !errors.Is(err, sidecarapp.ErrUnconfirmed) {
		t.Errorf("the stop: %v", err)
	}
}
