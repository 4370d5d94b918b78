package pipeline

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jetsidecar/jetsidecar/forward"
	"github.com/jetsidecar/jetsidecar/policy"
)

func turn() chan struct{} { return make(chan struct{}, 1) }

func TestPlacesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces(1, quiet())
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				if err := p.take(t.Context(), turn()); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(time.Second)
				p.give()
			})
			synctest.Wait()
		}
		start := time.Now()
		all.Wait()
		if !slices.IsSorted(order) || time.Since(start) != 8*time.Second {
			t.Errorf("%v in %s", order, time.Since(start))
		}
	})
}

// TestPlacesEndWithTheirContext holds that who gives up leaves the line, and the place too if it got one at that moment.
func TestPlacesEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces(1, quiet())
		if err := p.take(t.Context(), turn()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if p.take(ctx, turn()) == nil {
					p.give()
				}
			})
		}
		synctest.Wait()
		cancel()
		all.Wait()
		if p.taken != 1 || len(p.line) != 0 {
			t.Errorf("%d taken, %d wait", p.taken, len(p.line))
		}
		late, next := turn(), turn()
		p.line = append(p.line, late, next)
		p.give() // late has the place, and gives up all the same
		p.leaveLine(late)
		<-next
		p.give()
		if p.taken != 0 || len(p.line) != 0 {
			t.Errorf("%d taken, %d wait", p.taken, len(p.line))
		}
		if err := p.take(t.Context(), turn()); err != nil {
			t.Error(err)
		}
	})
}

// TestPlacesAndGate holds that places, the breaker, messages that must be alone and the rate never wait for each other, whatever the
// app answers, and that there are never more requests than places. A deadlock ends the test.
func TestPlacesAndGate(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			p := &Pipeline{gate: newGate(breaker(), 8), places: newPlaces(8, quiet())}
			if seed%3 == 0 {
				p.pace = newPace(50)
			}
			var mu sync.Mutex // of rnd, inside
			inside := 0
			draw := func(n int) int { mu.Lock(); defer mu.Unlock(); return rnd.IntN(n) }
			at := func(delta int) int { mu.Lock(); defer mu.Unlock(); inside += delta; return inside }
			bad := seed % 10 // of ten requests
			work := func(m uint64) {
				if !p.place(t.Context(), &worker{turn: turn()}) {
					t.Error("no place")
					return
				}
				defer p.leavePlace()
				e := entry{alone: draw(10) == 0, fresh: draw(2) == 0}
				if e.alone {
					p.gate.wantAlone()
					defer p.gate.notAlone()
				}
				if !p.enter(t.Context(), &worker{}, e) {
					t.Error("not let in")
					return
				}
				v, n := p.visits(), at(1)
				if n > 8 || e.alone && n > 1 {
					t.Errorf("%d at a time", n)
				}
				took := time.Duration(draw(100)) * time.Millisecond
				time.Sleep(took)
				r, d := &forward.Result{Sent: true, Duration: took, Outcome: policy.Outcome{Kind: policy.Answered, Status: 200}}, passed
				if uint64(draw(10)) < bad {
					r.Status, d = 503, failed
				}
				p.visited(v, r, d)
				at(-1)
				p.gate.leave(m, d, "503")
			}
			var all sync.WaitGroup
			for worker := range uint64(8) {
				all.Go(func() {
					for i := range uint64(15) {
						work(worker*100 + i)
					}
				})
			}
			all.Wait()
			if p.places.taken != 0 || p.gate.inside != 0 || p.places.now() < 1 {
				t.Errorf("%d places are taken, %d inside, the limit is %d", p.places.taken, p.gate.inside, p.places.now())
			}
		})
	}
}

// TestPlacesSayWhatDropped holds that a sharp drop is one line in the log.
func TestPlacesSayWhatDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p := newPlaces(4, slog.New(slog.NewTextHandler(&log, nil)))
		overload := func() {
			for range 20 {
				p.ends(p.starts(), time.Millisecond, policy.Overloaded)
			}
		}
		overload()
		if text := log.String(); strings.Count(text, "the app is overloaded") != 1 || p.now() != 1 {
			t.Errorf("the limit is %d: %s", p.now(), text)
		}
	})
}

// TestSignals holds what the end of a request says about how much the app can take.
func TestSignals(t *testing.T) {
	answered := func(status int) forward.Result {
		return forward.Result{Sent: true, Outcome: policy.Outcome{Kind: policy.Answered, Status: status}}
	}
	refused := answered(200)
	refused.Refused = true
	for _, c := range []struct {
		name     string
		visit    visit
		result   forward.Result
		decision policy.Decision
		want     policy.Signal
	}{
		{"200", visit{}, answered(200), passed, policy.Passed},
		{"422", visit{}, answered(422), policy.Decision{Verdict: policy.DLQ, Reason: policy.ReasonRejected}, policy.Passed},
		{"500", visit{}, answered(500), failed, policy.Failed},
		{"500 at the limit", visit{}, answered(500), atEnd, policy.Failed},
		{"503", visit{}, answered(503), failed, policy.Overloaded},
		{"503 at the limit", visit{}, answered(503), atEnd, policy.Overloaded},
		{"no connection at first", visit{}, refused, passed, policy.Overloaded},
		{"a probe", visit{probe: true}, answered(503), failed, policy.Silent},
		{"cut off by a stop", visit{}, forward.Result{Sent: true, Outcome: policy.Outcome{Kind: policy.HandedBack}}, policy.Decision{}, policy.Silent},
		{"not sent", visit{}, forward.Result{Outcome: policy.Outcome{Kind: policy.HandedBack}}, policy.Decision{}, policy.Silent},
	} {
		if got := new(Pipeline).signal(c.visit, &c.result, c.decision); got != c.want {
			t.Errorf("%s: %d", c.name, got)
		}
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
