package test

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	sidecarapp "github.com/jetsidecar/jetsidecar/internal/app"
	"github.com/jetsidecar/jetsidecar/internal/config"
)

// stopping begins a stop and waits until the sidecar says so.
func (s *sidecar) stopping() {
	s.t.Helper()
	s.cancel()
	eventually(s.t, func() bool { return s.admin.status("/readyz") != 200 }, text("the sidecar to be not ready"))
}

// stopped reports whether the sidecar has stopped.
func (s *sidecar) stopped() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// What is in flight at a stop finishes and is acked; what is leased behind it is free for another sidecar at once.
func TestStopFinishesWhatIsInFlight(t *testing.T) {
	w := newWorld(t)
	open := make(chan struct{})
	w.app.on(func(*call) reply { return reply{status: 200, gate: open} })
	for range 12 {
		w.publish("orders.a", "x")
	}
	two := consumer(func(c *config.Consumer) { c.Concurrency, c.Prefetch, c.AckWait = 2, 6, time.Hour })
	s := w.running(two)
	eventually(t, func() bool { return w.app.inFlight() == 2 && w.consumer(durable).NumAckPending > 4 }, text("calls and leases"))
	s.stopping()
	throughout(t, 300*time.Millisecond, func() bool { return w.app.count() == 2 && !s.stopped() }, text("nothing new is called"))
	w.app.on(always(reply{status: 200}))
	w.running(two)
	eventually(t, func() bool { return w.app.count() == 12 }, text("the others to be called by another sidecar"))
	close(open)
	if err := s.stop(); err != nil {
		t.Errorf("the stop: %v", err)
	}
	w.balance()
	if n := w.app.count(); n != 12 {
		t.Errorf("%d calls", n)
	}
	if s.admin.status("/livez") != 0 {
		t.Error("the admin listener is still there")
	}
}

// Verdicts other than ack are settled at a stop too.
func TestStopSettlesEveryVerdict(t *testing.T) {
	w := newWorld(t)
	open := make(chan struct{})
	w.app.on(func(c *call) reply {
		if c.nth > 1 {
			return reply{status: 200}
		}
		return map[string]reply{
			"orders.bad":   {status: 400, gate: open},
			"orders.retry": {status: 503, gate: open},
			"orders.drop":  {status: 200, header: map[string]string{"Sidecar-Action": "drop"}, gate: open},
			"orders.good":  {status: 200, gate: open},
		}[c.subject]
	})
	s := w.running()
	for _, subject := range []string{"orders.bad", "orders.retry", "orders.drop", "orders.good"} {
		w.publish(subject, "x")
	}
	eventually(t, func() bool { return w.app.inFlight() == 4 }, text("four calls"))
	s.stopping()
	close(open)
	if err := s.stop(); err != nil {
		t.Errorf("the stop: %v", err)
	}
	if i := w.consumer(durable); i.NumAckPending != 1 || len(w.dead()) != 1 {
		t.Errorf("%d ack pending, %d dead; want the retry alone, and one", i.NumAckPending, len(w.dead()))
	}
	w.running()
	w.balance()
}

// What waits for a connection is handed back at once, and not when the time for a stop is over.
func TestStopWhileTheAppIsAway(t *testing.T) {
	w := newWorld(t)
	s := w.running(outage, func(c *config.Config) { c.ShutdownTimeout = time.Hour; c.App.Ready.Interval = time.Hour })
	w.app.down()
	w.publish("orders.a", "x")
	s.waitCheck("app", false)
	eventually(t, func() bool { return w.consumer(durable).NumAckPending == 1 }, text("the message to be leased"))
	if err := s.stop(); err != nil {
		t.Errorf("the stop: %v", err)
	}
	w.app.up()
	w.running(consumer(func(c *config.Consumer) { c.MaxDeliver = 1 }))
	w.untouched()
}

// What still runs at the end of the time is cut off and handed back, which is no failed attempt.
func TestStopOfAnAppThatHangs(t *testing.T) {
	w := newWorld(t)
	w.app.on(always(reply{status: 200, gate: make(chan struct{})}))
	once := consumer(func(c *config.Consumer) { c.MaxDeliver, c.AckWait = 1, time.Hour })
	s := w.running(once, func(c *config.Config) { c.ShutdownTimeout = time.Second })
	seq := w.publish("orders.a", "x")
	eventually(t, func() bool { return w.app.inFlight() == 1 }, text("the call"))
	begun := time.Now()
	if err := s.stop(); err != nil {
		t.Errorf("the stop: %v", err)
	}
	if d := time.Since(begun); d < time.Second {
		t.Errorf("the stop took %s, the call had a second", d)
	}
	if lines := s.log.settled(seq); len(lines) > 0 {
		t.Errorf("it was settled: %v", lines)
	}
	w.app.on(always(reply{status: 200}))
	w.running(once)
	w.balance()
	if n := len(w.app.of(seq)); n != 2 {
		t.Errorf("%d calls", n)
	}
	if dead := w.dead(); len(dead) > 0 {
		t.Errorf("a hand-back was dead-lettered: %v", dead[0].header)
	}
}

// With NATS gone at a stop, the stop is bounded, and says how many verdicts were not confirmed.
func TestStopWithoutNATS(t *testing.T) {
	w := newWorld(t)
	open := make(chan struct{})
	w.app.on(func(*call) reply { return reply{status: 200, gate: open} })
	short := consumer(func(c *config.Consumer) { c.AckWait = shortAckWait })
	s := w.running(short, func(c *config.Config) { c.ShutdownTimeout = 2 * time.Second })
	for range 3 {
		w.publish("orders.a", "x")
	}
	eventually(t, func() bool { return w.app.inFlight() == 3 }, text("three calls"))
	w.nats.Shutdown()
	s.waitCheck("nats", false)
	close(open)
	err := s.stop()
	if !errors.Is(err, sidecarapp.ErrUnconfirmed) || !strings.HasPrefix(err.Error(), "3 ") {
		t.Errorf("the stop: %v", err)
	}
	w.must(w.nats.Restart())
	w.running(short)
	w.balanceAfterKills() // the memory went with the first sidecar
}

func TestSignals(t *testing.T) {
	for _, c := range []struct {
		name    string
		signals []syscall.Signal
		hangs   bool
		code    int
	}{
		{"term", []syscall.Signal{syscall.SIGTERM}, false, 0},
		{"int", []syscall.Signal{syscall.SIGINT}, false, 0},
		{"twice", []syscall.Signal{syscall.SIGTERM, syscall.SIGTERM}, true, 1},
		{"both", []syscall.Signal{syscall.SIGTERM, syscall.SIGINT}, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			open := make(chan struct{})
			w.app.on(always(reply{status: 200, gate: open}))
			p := start(t, w.environment("SIDECAR_SHUTDOWN_TIMEOUT=1m", "SIDECAR_CONSUMERS_0_ACK_WAIT="+shortAckWait.String())...)
			seq := w.publish("orders.a", "x")
			eventually(t, func() bool { return w.app.inFlight() == 1 }, func() string { return "the call:\n" + p.log.String() })
			for i, s := range c.signals {
				if i > 0 {
					go signalOn(p.cmd.Process, s)
					continue
				}
				p.signal(s)
				eventually(t, func() bool { return len(p.log.lines("stopping")) == 1 }, text("the stop to begin"))
			}
			if !c.hangs {
				close(open)
			}
			if code := p.wait(patience); code != c.code {
				t.Errorf("exit code %d, want %d:\n%s", code, c.code, p.log)
			}
			if c.hangs {
				w.app.on(always(reply{status: 200}))
				w.running()
			}
			w.balance()
			if n := len(w.app.of(seq)); !c.hangs && n != 1 {
				t.Errorf("%d calls", n)
			}
		})
	}
}

func TestExitWithoutNATS(t *testing.T) {
	w := newWorld(t)
	open := make(chan struct{})
	w.app.on(func(*call) reply { return reply{status: 200, gate: open} })
	p := start(t, w.environment("SIDECAR_SHUTDOWN_TIMEOUT=1s", "SIDECAR_CONSUMERS_0_ACK_WAIT="+shortAckWait.String())...)
	for range 2 {
		w.publish("orders.a", "x")
	}
	eventually(t, func() bool { return w.app.inFlight() == 2 }, text("two calls"))
	w.nats.Shutdown()
	close(open)
	eventually(t, func() bool { return w.app.inFlight() == 0 }, text("the answers"))
	p.signal(syscall.SIGTERM)
	if code := p.wait(patience); code != 1 {
		t.Errorf("exit code %d", code)
	}
	if lines := p.log.lines("stopped, but not cleanly"); len(lines) != 1 || !strings.HasPrefix(lines[0]["error"].(string), "2 verdicts") {
		t.Errorf("it does not say how many:\n%s", p.log)
	}
	w.must(w.nats.Restart())
	w.running()
	w.balanceAfterKills()
}

func TestExitOfABadConfiguration(t *testing.T) {
	t.Parallel()
	p := start(t, "SIDECAR_CONSUMERS_0_STREAM=ORDERS", "SIDECAR_CONSUMERS_0_CONCURRENCY=0", "SIDECAR_NATS_PASSWORD=hunter2")
	if code := p.wait(patience); code != 2 {
		t.Errorf("exit code %d", code)
	}
	out := p.log.String()
	for _, key := range []string{"consumers[0].durable", "consumers[0].concurrency"} {
		if !strings.Contains(out, key) {
			t.Errorf("%s is not named in:\n%s", key, out)
		}
	}
	if strings.Contains(out, "hunter2") {
		t.Error("the password is shown")
	}
}

// What waits for the verdict over another message of its id is handed back at a stop.
func TestStopHandsBackWhatWaitsForAnId(t *testing.T) {
	w := newWorld(t, shortWindow)
	open := make(chan struct{})
	w.app.on(func(*call) reply { return reply{status: 503, gate: open} })
	s := w.running(consumer(func(c *config.Consumer) { c.Retry.Initial, c.Retry.Max = time.Minute, time.Minute }))
	first := w.publish("orders.a", "x", "Nats-Msg-Id: id-1")
	eventually(t, func() bool { return w.app.inFlight() == 1 }, text("the first to be called"))
	second := w.publishAfterWindow("orders.a", "x", "id-1")
	eventually(t, func() bool { return w.consumer(durable).NumAckPending == 2 }, text("the second to be leased"))
	s.stopping()
	w.app.on(always(reply{status: 200}))
	w.running()
	eventually(t, func() bool { return len(w.app.of(second)) == 1 }, text("the second to be called by another sidecar"))
	close(open)
	if err := s.stop(); err != nil {
		t.Errorf("the stop: %v", err)
	}
	if n := len(w.app.of(first)); n != 1 {
		t.Errorf("the first was called %d times", n)
	}
}
