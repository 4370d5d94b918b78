package policy

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func breakerConfig() BreakerConfig {
	return BreakerConfig{Failures: 3, ProbeInterval: time.Second, ProbeMax: 8 * time.Second, Hold: time.Minute}
}

func TestBreakerOpensByDifferentMessages(t *testing.T) {
	at := time.Unix(1000, 0)
	for _, c := range []struct {
		name   string
		events []int // a message that fails, or 0 for a verdict other than retry
		open   bool
	}{
		{"one poison message", []int{1, 1, 1, 1, 1, 1}, false},
		{"three in a row", []int{1, 2, 3}, true},
		{"two again and again", []int{1, 2, 1, 2, 1, 2}, false},
		{"with repeats between", []int{1, 1, 2, 1, 3}, true},
		{"another verdict between", []int{1, 2, 0, 3, 1}, false},
		{"after another verdict", []int{1, 0, 1, 2, 3}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := NewBreaker(breakerConfig(), 16)
			for _, e := range c.events {
				if e == 0 {
					b.Passed()
				} else {
					b.Failed(at, uint64(e), 0)
				}
			}
			if _, open := b.Open(); open != c.open {
				t.Errorf("open: %v", open)
			}
		})
	}
}

func TestBreakerOff(t *testing.T) {
	b := NewBreaker(BreakerConfig{}, 4)
	for i := range 100 {
		b.Failed(time.Unix(1, 0), uint64(i), 0)
	}
	if _, open := b.Open(); open || b.Allowed(time.Unix(2, 0)) != 4 || b.Holds(time.Unix(2, 0)) {
		t.Error("a breaker that is off opened")
	}
}

func TestBreakerProbes(t *testing.T) {
	at := time.Unix(1000, 0)
	b := NewBreaker(breakerConfig(), 16)
	for i := range 3 {
		b.Failed(at, uint64(i), 0)
	}
	b.Failed(at.Add(time.Millisecond), 9, 0) // was at the app when it opened
	for _, wait := range []time.Duration{1, 2, 4, 8, 8} {
		if next := at.Add(wait * time.Second); !b.NextProbe().Equal(next) {
			t.Fatalf("next probe after %s, want %s", b.NextProbe().Sub(at), next.Sub(at))
		}
		if b.Allowed(b.NextProbe().Add(-1)) != 0 || b.Allowed(b.NextProbe()) != 1 {
			t.Fatal("not one request at the probe")
		}
		at = b.NextProbe()
		b.Failed(at, 1, 0)
	}
}

func TestBreakerHolds(t *testing.T) {
	at := time.Unix(1000, 0)
	b := NewBreaker(breakerConfig(), 16)
	if b.Holds(at) {
		t.Error("closed and holds")
	}
	for i := range 3 {
		b.Failed(at, uint64(i), 0)
	}
	b.Failed(at.Add(30*time.Second), 1, 0) // hold counts from the opening
	if !b.Holds(at.Add(time.Minute-1)) || b.Holds(at.Add(time.Minute)) {
		t.Error("does not hold for a minute")
	}
}

func TestBreakerComesBackInSteps(t *testing.T) {
	at := time.Unix(1000, 0)
	b := NewBreaker(breakerConfig(), 4)
	for i := range 3 {
		b.Failed(at, uint64(i), 0)
	}
	if !b.Passed() {
		t.Error("did not close")
	}
	for _, want := range []int{1, 2, 3, 4, 4} {
		if got := b.Allowed(at); got != want {
			t.Fatalf("%d allowed, want %d", got, want)
		}
		if b.Passed() {
			t.Error("closed twice")
		}
	}
}

// Over any course of events: fewer than Failures different messages fail while it is closed, a probe waits at least three
// quarters of the interval and at most ProbeMax, and what is allowed is between 0 and most.
func TestBreakerProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := BreakerConfig{
			Failures:      rapid.IntRange(1, 6).Draw(t, "failures"),
			ProbeInterval: time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "interval")),
			ProbeMax:      time.Duration(rapid.Int64Range(int64(time.Minute), 1<<62).Draw(t, "max")),
			Hold:          time.Hour,
		}
		most := rapid.IntRange(1, 100).Draw(t, "most")
		b, now := NewBreaker(cfg, most), time.Unix(1000, 0)
		row := map[uint64]bool{}
		for range rapid.IntRange(1, 200).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "pause")))
			began, was := b.Open()
			half := b.HalfOpen()
			switch rapid.SampledFrom([]string{"passes", "fails", "fails", "ready", "not ready"}).Draw(t, "event") {
			case "passes":
				if b.Passed() != was {
					t.Fatal("closing is not reported")
				}
				clear(row)
			case "ready":
				if b.Ready(now) != (was && !half) || b.HalfOpen() != was {
					t.Fatal("half open only when open, and told once")
				}
			case "not ready":
				if b.Postpone(now, 0.5); b.HalfOpen() {
					t.Fatal("half open with an app that is not ready")
				}
			default:
				m := rapid.Uint64Range(0, 8).Draw(t, "message")
				row[m] = true
				if opened := b.Failed(now, m, rapid.Float64Range(0, 0.999).Draw(t, "random")); opened != (!was && len(row) >= cfg.Failures) {
					t.Fatalf("opened %v after %d different messages", opened, len(row))
				}
				if b.HalfOpen() {
					t.Fatal("half open after a failure")
				}
			}
			since, open := b.Open()
			if was && open && since != began || b.Holds(now) != (open && now.Sub(since) < cfg.Hold) {
				t.Fatalf("open since %s, before since %s", since, began) // whatever happens meanwhile, an outage lasts from its opening
			}
			if b.HalfOpen() && (!open || b.Allowed(now) != 1) {
				t.Fatal("a message waits though the app is ready")
			}
			if open != (was && len(row) > 0 || len(row) >= cfg.Failures) {
				t.Fatalf("open %v after %d different messages", open, len(row))
			}
			if n := b.Allowed(now); n < 0 || n > most || open && n > 1 {
				t.Fatalf("%d allowed", n)
			}
			if wait := b.NextProbe().Sub(b.since); open && wait < cfg.ProbeInterval*3/4-1 {
				t.Fatalf("a probe after %s", wait)
			}
			if wait := b.NextProbe().Sub(now); open && wait > cfg.ProbeMax {
				t.Fatalf("the next probe is in %s", wait)
			}
		}
	})
}
