//go:build unix

package main

import (
	"slices"
	"testing"
	"time"
)

// inLine makes a history of two messages of one key, of sequences 1 and 2.
func inLine(change func(h *history, first, second int)) history {
	same := func(i int) bool { return natureOf(1, i) == good && keyOf(1, i) == keyOf(1, 0) }
	var is []int
	for i := 0; len(is) < 2; i++ {
		if same(i) {
			is = append(is, i)
		}
	}
	h := history{
		plan: plan{Seed: 1, Sidecars: 2, MaxDeliver: 4, Ordered: true}, settled: true,
		published: []message{{index: is[0], outcome: stored, seq: 1, at: start}, {index: is[1], outcome: stored, seq: 2, at: start}},
		source:    map[int]uint64{is[0]: 1, is[1]: 2},
		lives:     []incarnation{{id: "0.0", breaker: true}, {id: "1.0", slot: 1, breaker: true}},
	}
	change(&h, is[0], is[1])
	for i := range h.calls {
		h.calls[i].seq = h.source[h.calls[i].index]
	}
	return h
}

func (h *history) die(life int, when time.Duration) {
	h.lives[life].ended, h.lives[life].exit, h.lives[life].killed = at(when), -1, true
}

func TestCheckerOfTheOrder(t *testing.T) {
	ok, busy := reply{status: 200}, reply{status: 503}
	for _, c := range []struct {
		name string
		past func(h *history, one, two int)
		want []string
	}{
		{"in order", func(h *history, one, two int) {
			h.call(one, "0.0", 0, 1, ok)
			h.call(two, "0.0", 10*ms, 1, ok)
		}, nil},
		{"not in order", func(h *history, one, two int) {
			h.call(two, "0.0", 0, 1, ok)
			h.call(one, "0.0", 10*ms, 1, ok)
		}, []string{"none overtakes", "none comes again after a later one"}},
		{"overtaken while it is to be tried again", func(h *history, one, two int) {
			h.call(one, "0.0", 0, 1, busy)
			h.call(two, "0.0", 10*ms, 1, ok)
			h.call(one, "0.0", time.Second, 2, ok)
		}, []string{"none overtakes", "none comes again after a later one"}},
		{"again after a kill", func(h *history, one, two int) {
			h.call(one, "0.0", 0, 1, ok)
			h.die(0, 10*ms)
			h.call(one, "1.0", 3*time.Second, 2, ok)
			h.call(two, "1.0", 4*time.Second, 1, ok)
		}, nil},
		{"again after a kill and a later one", func(h *history, one, two int) {
			h.call(one, "0.0", 0, 1, ok)
			h.call(two, "0.0", 10*ms, 1, ok)
			h.die(0, 20*ms)
			h.call(one, "1.0", 3*time.Second, 2, ok)
		}, []string{"none comes again after a later one"}},
		{"again after a later one, the durable made anew", func(h *history, one, two int) {
			h.call(one, "0.0", 0, 1, ok)
			h.call(two, "0.0", 10*ms, 1, ok)
			h.event(durableGone, 0, 20*ms, 30*ms)
			h.events[0].affected = 2
			h.call(one, "1.0", 3*time.Second, 2, ok)
		}, nil},
		{"two at a time", func(h *history, one, two int) {
			h.call(one, "0.0", 0, 1, ok)
			h.call(two, "0.0", 2*ms, 1, ok)
		}, []string{"none overtakes", "one of a key at a time"}},
		{"two at a time, after a pause", func(h *history, one, two int) {
			c := h.call(one, "0.0", 0, 1, ok)
			c.ended, c.flushed = at(4*time.Second), at(4*time.Second)
			h.event(sidecarHold, 0, ms, 3*time.Second)
			h.call(one, "1.0", 3*time.Second, 2, ok)
			h.call(two, "1.0", 3500*ms, 1, ok)
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			breaches, _ := check(inLine(c.past))
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
