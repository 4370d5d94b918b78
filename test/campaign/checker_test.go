//go:build unix

package main

import (
	"slices"
	"testing"
	"time"
)

var start = time.Unix(1_700_000_000, 0)

func at(d time.Duration) time.Time { return start.Add(d) }

// past makes histories of one message each: of the nature given.
func past(n nature, change func(h *history, index int)) history {
	index := 0
	for natureOf(1, index) != n {
		index++
	}
	h := history{
		plan: plan{Seed: 1, Sidecars: 2, MaxDeliver: 4}, settled: true,
		published: []message{{index: index, outcome: stored, seq: 1, at: start}},
		source:    map[int]uint64{index: 1},
		lives:     []incarnation{{id: "0.0", breaker: true}, {id: "1.0", slot: 1, breaker: true}},
	}
	change(&h, index)
	return h
}

func (h *history) call(index int, by string, after time.Duration, delivered uint64, r reply) *call {
	h.calls = append(h.calls, call{
		index: index, by: by, slot: int(by[0] - '0'), seq: 1, delivered: delivered, conn: uint64(len(h.calls)) + 1,
		begun: at(after), ended: at(after + 5*ms), flushed: at(after + 6*ms), given: !r.hang && !r.reset, reply: r,
	})
	return &h.calls[len(h.calls)-1]
}

func (h *history) bury(index int, reason string, after time.Duration) {
	h.dead = append(h.dead, entry{index: index, seq: 1, reason: reason, failedAt: at(after), stored: at(after + ms)})
}

func (h *history) event(k kind, sidecar int, from, to time.Duration) {
	h.events = append(h.events, event{fault: fault{Kind: k, Sidecar: sidecar, Length: to - from}, begin: at(from), end: at(to)})
}

func (h *history) stop(life int, asked, ended time.Duration, exit int) {
	h.lives[life].asked, h.lives[life].ended, h.lives[life].exit = at(asked), at(ended), exit
}

// batch makes a call one of a request of up to ten messages, all such calls of a moment being in one.
func (h *history) batch(size int, c *call) {
	h.plan.Batch = 10
	c.size, c.request = size, uint64(c.begun.UnixNano())
}

// alike are messages of the same nature, the first included.
func alike(first, n int) (indexes []int) {
	for i := first; len(indexes) < n; i++ {
		if natureOf(1, i) == natureOf(1, first) {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// manyAgain has messages that are called again by another sidecar, after a fault of the first in which they were accepted.
func manyAgain(h *history, first int, k kind) {
	for _, i := range alike(first, mostRunOut) {
		h.source[i] = uint64(i)
		h.call(i, "0.0", 10*ms, 1, reply{status: 200})
		h.call(i, "1.0", 3*time.Second, 2, reply{status: 200})
	}
	h.event(k, 0, 0, 500*ms)
}

// manyDead has as many messages that die of one outage as open the breaker.
func manyDead(h *history, first int) {
	h.event(appFails, all, 0, 3*time.Second)
	for n, i := range alike(first, failures) {
		h.source[i] = uint64(i)
		h.call(i, "0.0", time.Duration(n)*200*ms, 4, reply{status: 503}).outage = true
		h.bury(i, "max_deliver", time.Duration(n)*200*ms+10*ms)
	}
}

// Each rule is broken by something, and by nothing less.
func TestChecker(t *testing.T) {
	ok, bad, busy := reply{status: 200}, reply{status: 422}, reply{status: 503}
	for _, c := range []struct {
		name   string
		nature nature
		past   func(h *history, i int)
		want   []string // the broken rules
	}{
		{"accepted", good, func(h *history, i int) { h.call(i, "0.0", 0, 1, ok) }, nil},
		{"nothing came of it", good, func(*history, int) {}, []string{"none lost"}},
		{"only a failure came of it", good, func(h *history, i int) { h.call(i, "0.0", 0, 1, busy) }, []string{"none lost"}},
		{"an answer that was not given", good, func(h *history, i int) { h.call(i, "0.0", 0, 1, ok).given = false }, []string{"none lost"}},
		{"unknown, and not stored", good, func(h *history, i int) {
			h.published[0].outcome = unknown
			delete(h.source, i)
		}, nil},
		{"unknown, and stored", good, func(h *history, _ int) { h.published[0].outcome = unknown }, []string{"none lost"}},
		{"of a stream that was deleted", good, func(h *history, i int) {
			h.epoch = 1
			delete(h.source, i)
		}, nil},
		{"not settled", good, func(h *history, _ int) { h.settled = false }, []string{"settled"}},
		{"rejected", poison, func(h *history, i int) { h.call(i, "0.0", 0, 1, bad); h.bury(i, "rejected", 10*ms) }, nil},
		{"rejected, and accepted", poison, func(h *history, i int) { h.call(i, "0.0", 0, 1, ok) }, []string{"rejected messages are in the dlq"}},
		{"rejected for another reason", poison, func(h *history, i int) {
			h.call(i, "0.0", 0, 1, bad)
			h.bury(i, "max_deliver", 10*ms)
		}, []string{"dead for a reason"}},
		{"twice in the dlq", poison, func(h *history, i int) {
			h.call(i, "0.0", 0, 1, bad)
			h.bury(i, "rejected", 10*ms)
			h.bury(i, "rejected", 20*ms)
		}, []string{"the dlq has each once"}},
		{"dead without a call", flaky, func(h *history, i int) { h.bury(i, "max_deliver", 10*ms) }, []string{"dead for a reason"}},
		{"dead at the limit", flaky, func(h *history, i int) { h.call(i, "0.0", 0, 4, busy); h.bury(i, "max_deliver", 10*ms) }, nil},
		{"dead before the limit", flaky, func(h *history, i int) { h.call(i, "0.0", 0, 3, busy); h.bury(i, "max_deliver", 10*ms) }, []string{"dead for a reason"}},
		{"good and dead", good, func(h *history, i int) {
			h.call(i, "0.0", 0, 4, busy)
			h.bury(i, "max_deliver", 10*ms)
		}, []string{"the dlq is not for outages"}},
		{"good and dead in an outage", good, func(h *history, i int) {
			h.event(appFails, all, 0, time.Second)
			h.call(i, "0.0", 0, 4, busy)
			h.bury(i, "max_deliver", 10*ms)
		}, nil},
		{"accepted and dead", flaky, func(h *history, i int) {
			h.call(i, "0.0", 0, 4, busy)
			h.call(i, "1.0", 5*time.Second, 5, ok)
			h.bury(i, "max_deliver", 10*ms)
		}, []string{"none both accepted and dead-lettered"}},
		{"accepted and dead, killed between", flaky, func(h *history, i int) {
			h.call(i, "0.0", 0, 4, busy)
			h.stop(0, 0, 20*ms, -1)
			h.lives[0].killed, h.lives[0].asked = true, time.Time{}
			h.call(i, "1.0", 5*time.Second, 5, ok)
			h.bury(i, "max_deliver", 10*ms)
		}, nil},
		{"dead after an answer that may not have arrived", flaky, func(h *history, i int) {
			h.call(i, "0.0", 0, 4, ok)
			h.event(sidecarHold, 0, 0, 4*time.Second)
			h.bury(i, "max_deliver", 4*time.Second)
		}, nil},
		{"called again after a 2xx", good, func(h *history, i int) {
			h.call(i, "0.0", 0, 1, ok)
			h.call(i, "0.0", 3*time.Second, 2, ok)
		}, []string{"remembered"}},
		{"called again after a 2xx that may not have arrived", good, func(h *history, i int) {
			h.call(i, "0.0", 0, 1, ok)
			h.call(i, "0.0", 3*time.Second, 2, ok)
			h.event(sidecarHold, 0, 0, time.Second)
		}, nil},
		{"called again after a 2xx that arrived", good, func(h *history, i int) {
			h.call(i, "0.0", 0, 1, ok)
			h.event(sidecarHold, 0, 0, time.Second)
			h.call(i, "0.0", 3*time.Second, 2, ok).conn = h.calls[0].conn
		}, []string{"remembered"}},
		{"called again by another", good, func(h *history, i int) {
			h.call(i, "0.0", 0, 1, ok)
			h.call(i, "1.0", 3*time.Second, 2, ok)
		}, []string{"duplicates are bounded"}},
		{"called again by another, after a pause", good, func(h *history, i int) {
			h.call(i, "0.0", 0, 1, ok)
			h.event(sidecarHold, 0, 0, 3*time.Second)
			h.call(i, "1.0", 3*time.Second, 2, ok)
		}, nil},
		{"called again after a clean stop", good, func(h *history, i int) {
			h.call(i, "0.0", 0, 1, ok)
			h.event(stopCutOff, 0, 0, ms)
			h.stop(0, ms, 100*ms, 0)
			h.call(i, "1.0", 3*time.Second, 2, ok)
		}, []string{"a clean stop confirms its acks"}},
		{"called again after a clean stop, leased before", good, func(h *history, i int) {
			h.call(i, "0.0", 0, 1, ok)
			h.event(stopCutOff, 0, 0, ms)
			h.event(sidecarHold, 1, 0, 2*time.Second)
			h.stop(0, ms, 100*ms, 0)
			h.call(i, "1.0", 3*time.Second, 2, ok)
		}, nil},
		{"called again after a stop that says so", good, func(h *history, i int) {
			h.call(i, "0.0", 0, 1, ok)
			h.event(linkCut, 0, 0, ms)
			h.stop(0, ms, 100*ms, 1)
			h.call(i, "1.0", 3*time.Second, 2, ok)
		}, nil},
		{"called again after acks were lost in a cut", good, func(h *history, i int) { manyAgain(h, i, ackLost) }, []string{"a cut loses no ack"}},
		{"known again after acks were lost in a cut", good, func(h *history, i int) {
			manyAgain(h, i, ackLost)
			h.calls = slices.DeleteFunc(h.calls, func(c call) bool { return c.by == "1.0" })
			for n := range h.calls {
				h.calls[n].seq = uint64(n)
				h.known = append(h.known, known{uint64(n), at(2 * time.Second)})
			}
		}, []string{"a cut loses no ack"}},
		{"called again after a long cut", good, func(h *history, i int) { manyAgain(h, i, linkCut) }, nil},
		{"called again after acks were lost, by one that was paused", good, func(h *history, i int) {
			manyAgain(h, i, ackLost)
			h.event(sidecarHold, 1, 0, 2*time.Second)
		}, nil},
		{"dead in an outage in a row", good, func(h *history, i int) { manyDead(h, i) }, []string{"the dlq is not for outages"}},
		{"dead in an outage with an answer between", good, func(h *history, i int) {
			manyDead(h, i)
			h.call(i+1_000_000, "0.0", 2*200*ms, 1, bad).given = true
		}, nil},
		{"dead in an outage, and by itself", flaky, func(h *history, i int) {
			manyDead(h, i)
			for n := range h.calls {
				h.calls[n].outage = false
			}
		}, nil},
		{"retried at once", flaky, func(h *history, i int) {
			h.call(i, "0.0", 0, 1, busy)
			h.call(i, "0.0", 10*ms, 2, ok)
		}, []string{"retries wait"}},
		{"retried at once, when another process was killed", flaky, func(h *history, i int) {
			h.call(i, "0.0", 0, 1, busy)
			h.call(i, "0.0", 10*ms, 2, ok)
			h.stop(1, 0, 5*ms, -1)
			h.lives[1].killed, h.lives[1].asked = true, time.Time{}
		}, nil},
		{"retried after the delay", flaky, func(h *history, i int) {
			h.call(i, "0.0", 0, 1, busy)
			h.call(i, "0.0", 35*ms, 2, ok)
		}, nil},
		{"ended by itself", good, func(h *history, i int) {
			h.call(i, "0.0", 0, 1, ok)
			h.stop(0, 0, time.Second, 2)
			h.lives[0].asked = time.Time{}
		}, []string{"sidecars run"}},
		{"a stop that takes long", good, func(h *history, i int) {
			h.call(i, "0.0", 0, 1, ok)
			h.stop(0, 0, time.Minute, 0)
		}, []string{"stops are bounded"}},
		{"a stop that is not clean", good, func(h *history, i int) {
			h.call(i, "0.0", 0, 1, ok)
			h.stop(0, 0, time.Second, 1)
		}, []string{"stops are clean"}},
		{"too many at a time", good, func(h *history, i int) {
			for range concurrency + 1 {
				h.call(i, "0.0", 0, 1, ok)
			}
		}, []string{"requests in flight are bounded"}},
		{"dead by an answer to many", flaky, func(h *history, i int) {
			h.batch(10, h.call(i, "0.0", 0, 4, reply{status: 503, shared: true}))
			h.bury(i, "max_deliver", 10*ms)
		}, []string{"dead for a reason"}},
		{"dead by no answer to many", flaky, func(h *history, i int) {
			h.batch(10, h.call(i, "0.0", 0, 4, reply{reset: true, shared: true}))
			h.bury(i, "max_deliver", 10*ms)
		}, []string{"dead for a reason"}},
		{"dead by a result", flaky, func(h *history, i int) {
			h.batch(10, h.call(i, "0.0", 0, 4, busy))
			h.bury(i, "max_deliver", 10*ms)
		}, nil},
		{"rejected with others", poison, func(h *history, i int) {
			h.batch(10, h.call(i, "0.0", 0, 1, reply{status: 422, shared: true}))
			h.bury(i, "rejected", 10*ms)
		}, []string{"dead for a reason"}},
		{"rejected with others, then alone", poison, func(h *history, i int) {
			h.batch(2, h.call(i, "0.0", 0, 1, reply{status: 422, shared: true}))
			h.batch(1, h.call(i, "0.0", 20*ms, 1, bad))
			h.bury(i, "rejected", 30*ms)
		}, nil},
		{"accepted by an answer to others", good, func(h *history, i int) {
			h.batch(10, h.call(i, "0.0", 0, 1, reply{status: 200, shared: true}))
		}, []string{"none lost"}},
		{"as many again", good, func(h *history, i int) {
			h.batch(10, h.call(i, "0.0", 0, 1, reply{status: 500, shared: true}))
			h.batch(10, h.call(i, "0.0", 20*ms, 1, ok))
		}, []string{"an answer is an attempt"}},
		{"the same attempt after a result", good, func(h *history, i int) {
			h.batch(10, h.call(i, "0.0", 0, 1, busy))
			h.batch(5, h.call(i, "0.0", 60*ms, 1, ok))
		}, []string{"an answer is an attempt"}},
		{"larger than allowed", good, func(h *history, i int) { h.batch(11, h.call(i, "0.0", 0, 1, ok)) }, []string{"batches are bounded"}},
		{"many at a time in one request", good, func(h *history, i int) {
			for _, other := range alike(i, concurrency+1) {
				h.batch(10, h.call(other, "0.0", 0, 1, ok))
			}
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			breaches, _ := check(past(c.nature, c.past))
			var got []string
			for _, b := range breaches {
				got = append(got, b.rule)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("broken: %q, want %q (%+v)", got, c.want, breaches)
			}
		})
	}
}
