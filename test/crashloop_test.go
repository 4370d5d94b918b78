package test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// One message that kills its process is dead-lettered on the evidence of the processes that died with it alone, and takes none
// of its neighbours along.
func TestOneMessageKillsItsProcess(t *testing.T) {
	w := newWorld(t)
	killing := make(deadly, 20)
	w.app.on(func(c *call) reply {
		if c.body == "killer" {
			killing <- struct{}{}
			return reply{gate: make(chan struct{})}
		}
		return reply{status: 200, delay: 50 * time.Millisecond}
	})
	var killer uint64
	for i := range 20 {
		if i == 7 {
			killer = w.publish("orders.new", "killer")
		} else {
			w.publish("orders.new", fmt.Sprint("good ", i))
		}
	}
	env := w.environment("SIDECAR_CONSUMERS_0_ACK_WAIT="+shortAckWait.String(), "SIDECAR_CONSUMERS_0_MAX_DELIVER=3")
	deaths := 0
	for len(w.dead()) == 0 {
		w.diesOrBuries(start(t, env...), killing)
		if deaths++; deaths > 12 {
			t.Fatalf("%d processes died of one message", deaths)
		}
	}
	e := w.deadOf(killer)
	if e.header.Get("Dlq-Reason") != "crash_loop" {
		t.Errorf("headers %v", e.header)
	}
	if n := len(w.app.of(killer)); n != 5 {
		t.Errorf("it was tried %d times, want its 3 attempts and 2 alone", n)
	}
	w.waitDone()
	if n := len(w.dead()); n != 1 {
		t.Errorf("%d dead letters", n)
	}
	for _, c := range w.app.of(killer)[3:] {
		for _, other := range w.app.all() {
			if other.seq != killer && other.begun.Before(c.begun) && other.ended.After(c.begun) {
				t.Errorf("message %d was in flight when the killer was tried alone", other.seq)
			}
		}
	}
}

// However often a message is handed back, that alone never dead-letters it.
func TestHandBacksNeverDeadLetter(t *testing.T) {
	w := newWorld(t)
	w.app.down()
	seq := w.publish("orders.new", "x")
	limit := consumer(func(c *config.Consumer) { c.MaxDeliver = 2 })
	for range 8 {
		w.app.up()
		hold := make(chan struct{})
		w.app.on(always(reply{status: 503, gate: hold}))
		s := w.sidecar(limit, func(c *config.Config) { c.ShutdownTimeout = 100 * time.Millisecond })
		n := len(w.app.of(seq))
		eventually(t, func() bool { return len(w.app.of(seq)) > n }, text("it is at the app"))
		w.must(s.stop())
		close(hold)
		w.app.down()
	}
	w.app.up()
	w.app.on(always(reply{status: 200}))
	w.running(limit)
	w.waitDone()
	if n := len(w.dead()); n != 0 {
		t.Errorf("%d dead letters by hand-backs", n)
	}
}

// A verdict over a message past its limit removes its mark, also in time for a stop.
func TestPastTheLimitAVerdictCounts(t *testing.T) {
	w := newWorld(t)
	seq := w.publish("orders.new", "x")
	limit := consumer(func(c *config.Consumer) { c.MaxDeliver = 1 })
	for range 3 {
		hold := make(chan struct{})
		w.app.on(always(reply{status: 503, gate: hold}))
		s := w.sidecar(limit, func(c *config.Config) { c.ShutdownTimeout = 100 * time.Millisecond })
		n := len(w.app.of(seq))
		eventually(t, func() bool { return len(w.app.of(seq)) > n }, text("it is at the app"))
		w.must(s.stop())
		close(hold)
	}
	w.app.on(always(reply{status: 503}))
	w.running(limit)
	w.waitDead(1)
	if e := w.deadOf(seq); e.header.Get("Dlq-Reason") != "max_deliver" {
		t.Errorf("headers %v", e.header)
	}
	if msgs := w.read("KV_sidecar-state"); len(msgs) > 0 && msgs[len(msgs)-1].header.Get("KV-Operation") != "PURGE" {
		t.Errorf("a mark stays: %v", msgs)
	}
	w.waitDone()
}

// deadly is told when a message that kills its process is at the app.
type deadly chan struct{}

// diesOrBuries lets a process die when such a message is at the app, or waits until a message is in the DLQ.
func (w *world) diesOrBuries(p *process, d deadly) {
	w.t.Helper()
	eventually(w.t, func() bool {
		select {
		case <-d:
			p.kill()
			return true
		default:
			return len(w.dead()) > 0
		}
	}, text("the message kills its process, or is dead-lettered"))
}

// Where no mark can be kept, a stop neither waits for one to be removed nor speaks of any.
func TestPastTheLimitWithoutMarks(t *testing.T) {
	w := newWorld(t)
	seq := w.publish("orders.new", "x")
	limit := consumer(func(c *config.Consumer) { c.MaxDeliver = 1 })
	hold := make(chan struct{})
	w.app.on(always(reply{status: 503, gate: hold}))
	s := w.sidecar(limit, func(c *config.Config) { c.ShutdownTimeout = 100 * time.Millisecond })
	eventually(t, func() bool { return len(w.app.of(seq)) == 1 }, text("it is at the app"))
	w.must(s.stop())
	close(hold)
	w.app.on(always(reply{status: 200}))
	s = w.sidecar(limit, consumer(func(c *config.Consumer) { c.Manage = "none" }), func(c *config.Config) { c.ShutdownTimeout = 3 * time.Second })
	w.waitDone()
	w.must(s.stop())
	if log := s.log.end(); !strings.Contains(log, "is tried without a mark") || strings.Contains(log, "marks stay") {
		t.Errorf("the log says:\n%s", log)
	}
}
