package pipeline

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/jetsidecar/jetsidecar/forward"
	"github.com/jetsidecar/jetsidecar/jetstream"
	"github.com/jetsidecar/jetsidecar/policy"
)

const limit = 5 // attempts

// dividing is a batch on its way through an app that fails for some of the messages, without a stream and an app.
type dividing struct {
	p        *Pipeline
	b        *batch
	status   map[*attempt]int // that a request with this message gets; 0: it is good
	decided  map[*attempt]int
	alone    map[*attempt]bool // it was the only one in a request
	putOff   map[*attempt]bool
	requests int
	waits    bool                   // until parts are due
	last     map[*attempt]time.Time // of its requests
	closest  time.Duration          // that two requests with the same message came, one after the other
}

func newDividing(statuses []int, number func(i int) uint64, failures int) *dividing {
	d := &dividing{
		p: &Pipeline{Config: Config{Policy: policy.Policy{MaxDeliver: limit, Retry: policy.RetryConfig{Initial: time.Second, Multiplier: 2, Max: time.Minute}}}},
		b: &batch{}, status: map[*attempt]int{}, decided: map[*attempt]int{}, alone: map[*attempt]bool{}, putOff: map[*attempt]bool{},
		last: map[*attempt]time.Time{}, closest: time.Hour,
	}
	d.p.gate = newGate(policy.BreakerConfig{Failures: failures, ProbeInterval: time.Hour, ProbeMax: time.Hour, Hold: time.Hour}, 4)
	var items []*attempt
	for i, status := range statuses {
		a := &attempt{message: &jetstream.Message{Sequence: uint64(i) + 1, Stored: time.Now()}, number: number(i)}
		d.status[a] = status
		items = append(items, a)
	}
	d.b.parts = []part{{items: items}}
	return d
}

// run goes on until nothing is left to be sent.
func (d *dividing) run() {
	for len(d.b.parts) > 0 {
		next := d.b.next(time.Now())
		if d.waits {
			time.Sleep(time.Until(next.due))
		}
		if d.p.gate.isOpen() {
			for _, a := range next.items { // as putOff, or until the breaker closes
				d.putOff[a] = true
			}
			continue
		}
		d.request(next)
	}
}

func (d *dividing) request(next part) {
	d.requests++
	r := forward.BatchResult{Result: forward.Result{Outcome: policy.Outcome{Kind: policy.Answered, Status: 200}}}
	for _, a := range next.items {
		if at, again := d.last[a]; again {
			d.closest = min(d.closest, time.Since(at))
		}
		d.last[a] = time.Now()
		d.alone[a] = len(next.items) == 1
		if s := d.status[a]; s != 0 {
			r.Status = s
		}
	}
	for _, a := range next.items {
		a.result = r.Result
	}
	rest := d.b.named(next.items, nil)
	d.p.decideAll(rest, time.Now())
	d.p.gate.inside++
	d.p.gate.leaveBatch(rest, rest, d.p.Policy.Means(r.Outcome), "")
	d.b.distribute(d.p, rest, &r)
	for _, a := range d.b.done {
		if a.again {
			d.putOff[a] = true
		} else {
			d.decided[a]++
		}
	}
}

var someStatuses = []int{0, 0, 0, 0, 0, 0, 0, 422, 500, 413, 409, 503, 429, 404}

// However messages fail: each is decided over once, none is dead-lettered but by an answer to itself alone, and none that is good
// by its neighbours.
func TestDividing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		statuses := rapid.SliceOfN(rapid.SampledFrom(someStatuses), 1, 120).Draw(t, "statuses")
		last := rapid.SliceOfN(rapid.Bool(), len(statuses), len(statuses)).Draw(t, "at the last attempt")
		d := newDividing(statuses, func(i int) uint64 { return map[bool]uint64{true: limit, false: 1}[last[i]] }, 0)
		d.run()
		whole := map[bool]bool{} // an answer that speaks of the app was given
		for _, s := range statuses {
			whole[s == 503 || s == 429 || s == 404] = true
		}
		for a, status := range d.status {
			v, i := a.decision.Verdict, a.message.Sequence
			if d.decided[a] != 1 {
				t.Fatalf("message %d was decided over %d times", i, d.decided[a])
			}
			if v == policy.DLQ && !d.alone[a] {
				t.Fatalf("message %d is dead by a request with others", i)
			}
			switch {
			case status == 0 && v == policy.DLQ:
				t.Fatalf("message %d is good, and dead for %s", i, a.decision.Reason)
			case status == 0 && !whole[true] && v != policy.Ack:
				t.Fatalf("message %d is good, and its verdict is %s", i, v)
			case (status == 422 || status == 413) && !whole[true] && v != policy.DLQ:
				t.Fatalf("message %d is rejected, and its verdict is %s", i, v)
			case status != 0 && v == policy.Ack:
				t.Fatalf("message %d failed with %d and is acked", i, status)
			case status == 500 && a.number == limit && !whole[true] && a.decision.Reason != policy.ReasonMaxDeliver:
				t.Fatalf("message %d is at its limit: %+v", i, a.decision)
			}
		}
		if most := 3 * len(statuses); d.requests > most {
			t.Fatalf("%d requests for %d messages", d.requests, len(statuses))
		}
	})
}

// One message that fails takes about twice as many requests as a batch can be halved, and never opens the breaker.
func TestDividingAroundOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(t, "messages")
		bad := rapid.IntRange(0, n-1).Draw(t, "which")
		statuses := make([]int, n)
		statuses[bad] = rapid.SampledFrom([]int{422, 500}).Draw(t, "status")
		d := newDividing(statuses, func(int) uint64 { return limit }, 2)
		d.run()
		if len(d.putOff) > 0 || d.p.gate.isOpen() {
			t.Fatal("it opened the breaker")
		}
		most := 1
		for k := n; k > 1; k = (k + 1) / 2 {
			most += 2
		}
		if d.requests > most {
			t.Fatalf("%d requests, and %d are enough", d.requests, most)
		}
	})
}

// An app that fails everything is left alone soon, and fewer messages die than open the breaker.
func TestDividingInAnOutage(t *testing.T) {
	for _, status := range []int{500, 503} {
		rapid.Check(t, func(t *rapid.T) {
			n := rapid.IntRange(20, 300).Draw(t, "messages")
			failures := rapid.IntRange(1, 6).Draw(t, "failures")
			statuses := make([]int, n)
			for i := range statuses {
				statuses[i] = status
			}
			d := newDividing(statuses, func(int) uint64 { return limit }, failures)
			d.run()
			if len(d.decided) >= failures {
				t.Fatalf("%d messages died, and %d open the breaker", len(d.decided), failures)
			}
			if len(d.decided)+len(d.putOff) != n || d.requests > 30 {
				t.Fatalf("%d requests, %d put off", d.requests, len(d.putOff))
			}
		})
	}
}

// An app that fails everything at the last attempt, with the breaker off: no message comes again without a wait, and all of them wait at
// the same time.
func TestDividingWaits(t *testing.T) {
	for status, wait := range map[int]time.Duration{429: time.Second, 500: 0, 422: 0} {
		synctest.Test(t, func(t *testing.T) {
			statuses := make([]int, 20)
			for i := range statuses {
				statuses[i] = status
			}
			d := newDividing(statuses, func(int) uint64 { return limit }, 0)
			d.waits = true
			start := time.Now()
			d.run()
			if took := time.Since(start); d.closest != wait || took > 6*wait || len(d.decided) != 20 || d.requests != 39 {
				t.Errorf("%d: the same message again after %s, all of %d after %s, in %d requests", status, d.closest, len(d.decided), took, d.requests)
			}
		})
	}
}
