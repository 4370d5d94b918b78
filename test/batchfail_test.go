package test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// poisoned answers a batch with a poison message so, and every other 200.
func poisoned(r reply) func(b *batchCall) (reply, map[string]verdict) {
	return func(b *batchCall) (reply, map[string]verdict) {
		if slices.ContainsFunc(b.items, func(i item) bool { return i.body() == "poison" }) {
			return r, nil
		}
		return reply{status: 200}, nil
	}
}

// One poison message among good ones: those are accepted once, at their first delivery, and it goes to the DLQ on its exact attempt.
func TestBatchWithPoison(t *testing.T) {
	const at = 23
	for name, c := range map[string]struct {
		answer   reply
		attempts int
		reason   string
	}{
		"rejected":      {reply{status: 422, body: "no"}, 1, "rejected"},
		"fails":         {reply{status: 500}, 4, "max_deliver"},
		"too large":     {reply{status: 413}, 1, "rejected"},
		"dlq by header": {reply{status: 200, header: map[string]string{"Sidecar-Action": "dlq", "Sidecar-Reason": "why"}}, 1, "rejected"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := w.batchApp(poisoned(c.answer))
			seqs := w.publishMany(51, func(i int) string { return map[bool]string{true: "poison", false: "good"}[i == at] })
			s := w.running(batched(64, func(c *config.Consumer) {
				c.MaxDeliver, c.Prefetch, c.Concurrency, c.Breaker.Failures = 4, 64, 1, 3
			}))
			w.waitDone()
			e := w.deadOf(seqs[at])
			a.balance(false)
			for i, seq := range seqs {
				want := 1
				if i == at {
					want = c.attempts
				}
				if got := a.attempts(seq); len(got) != want || got[len(got)-1] != uint64(want) {
					t.Errorf("message %d: attempts %v, want %d", seq, got, want)
				}
			}
			if e.header.Get("Dlq-Reason") != c.reason || e.header.Get("Dlq-Deliveries") != fmt.Sprint(c.attempts) {
				t.Errorf("entry %v", e.header)
			}
			if n := len(w.dead()); n != 1 {
				t.Errorf("%d dead letters", n)
			}
			for _, l := range s.log.lines("batch") {
				n := func(field string) float64 { v, _ := l[field].(float64); return v }
				if n("ack")+n("retry")+n("dlq")+n("drop")+n("again") != n("messages") || l["error"] != nil && n("status") == 200 && name != "dlq by header" {
					t.Errorf("line %v", l)
				}
			}
			if strings.Contains(s.log.String(), "breaker is open") {
				t.Error("one message opened the breaker")
			}
		})
	}
}

// An answer that speaks of the app divides nothing before the last attempt, and takes no neighbour to the DLQ at the last one.
func TestBatchOfAnAppThatIsBusy(t *testing.T) {
	w := newWorld(t)
	a := w.batchApp(poisoned(reply{status: 503}))
	seqs := w.publishMany(30, func(i int) string { return map[bool]string{true: "poison", false: "good"}[i == 7] })
	w.running(batched(30, func(c *config.Consumer) { c.MaxDeliver, c.Retry.Jitter = 1, 0 }))
	w.waitDone()
	a.balance(false)
	if e := w.deadOf(seqs[7]); e.header.Get("Dlq-Reason") != "max_deliver" || e.header.Get("Dlq-Status") != "503" || e.header.Get("Dlq-Deliveries") != "1" {
		t.Errorf("entry %v", e.header)
	}
	if n := len(w.dead()); n != 1 {
		t.Errorf("%d dead letters", n)
	}
}

// A whole batch that failed for the app's sake is retried as a whole, with its delay.
func TestBatchIsRetried(t *testing.T) {
	for name, r := range map[string]reply{
		"busy": {status: 503}, "too many": {status: 429, header: map[string]string{"Retry-After": "1"}}, "said": {status: 500, header: map[string]string{"Retry-After": "1"}},
		"said 0": {status: 500, header: map[string]string{"Retry-After": "0"}}, "said a past date": {status: 500, header: map[string]string{"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}},
		"cut": {reset: true}, "action": {status: 200, header: map[string]string{"Sidecar-Action": "retry"}}, "route": {status: 404},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := w.batchApp(func(b *batchCall) (reply, map[string]verdict) {
				if b.anyFresh() {
					return r, nil
				}
				return reply{status: 200}, nil
			})
			seqs := w.publishMany(20, func(int) string { return "x" })
			w.running(batched(20, func(c *config.Consumer) { c.Concurrency = 1 }))
			a.balance(false)
			for _, seq := range seqs {
				if got := a.attempts(seq); len(got) < 2 || a.times[seq] != len(got) {
					t.Errorf("message %d: attempts %v, and it came %d times", seq, got, a.times[seq])
				}
				if gap := a.gaps(seq)[0]; r.header["Retry-After"] == "1" && gap < time.Second {
					t.Errorf("message %d came again after %s", seq, gap)
				}
			}
		})
	}
}

// An app that fails everything opens the breaker: few requests, no dead letters, and all is well when it is back.
func TestBatchesInAnOutage(t *testing.T) {
	for name, status := range map[string]int{"500": 500, "503": 503} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			down := reply{status: status}
			var a *batchApp
			healthy := make(chan struct{})
			a = w.batchApp(func(*batchCall) (reply, map[string]verdict) {
				select {
				case <-healthy:
					return reply{status: 200}, nil
				default:
					return down, nil
				}
			})
			s := w.running(batched(50, func(c *config.Consumer) {
				c.MaxDeliver = 1
				c.Breaker.Failures, c.Breaker.ProbeInterval, c.Breaker.ProbeMax, c.Breaker.Hold = 5, 50*time.Millisecond, 100*time.Millisecond, time.Hour
			}))
			w.publishMany(200, func(int) string { return "x" }) // once it is ready: with the breaker open it is not
			s.waitMetric("sidecar_breaker_open", atLeast(1))
			eventually(t, func() bool { return len(a.calls()) > 30 }, text("probes"))
			if dead := len(w.dead()); dead >= 5 {
				t.Errorf("%d dead letters", dead)
			}
			calls := a.calls()
			for _, b := range calls[25:] { // requests that were under way when it opened are done
				if len(b.items) != 1 {
					t.Errorf("the app is probed with %d messages", len(b.items))
				}
			}
			close(healthy)
			a.balance(false)
			if dead := len(w.dead()); dead >= 5 {
				t.Errorf("%d dead letters", dead)
			}
		})
	}
}
