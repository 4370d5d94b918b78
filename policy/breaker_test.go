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

// restless is a breaker that opened at a time, held over, and then had nothing left for the app from an hour later on, which is ready.
func restless(at time.Time) *Breaker {
	b := NewBreaker(breakerConfig(), 4)
	for i := range 3 {
		b.Failed(at, uint64(i), 0)
	}
	b.Ready(at.Add(time.Hour), true)
	return b
}

// What has run of hold comes back while nothing is left for an app that is ready, and after as much as hold of that it opens anew: with a
// message that fails as with a ready path that does.
func TestBreakerHoldsInTheNextOutage(t *testing.T) {
	at := time.Unix(1000, 0)
	for _, rest := range []time.Duration{0, time.Second, time.Minute - 1, time.Minute, 24 * time.Hour} {
		for _, byMessage := range []bool{true, false} {
			b, now := restless(at), at.Add(time.Hour+rest)
			if b.Holds(now.Add(-rest)) {
				t.Fatal("holds for longer than a minute")
			}
			b.Ready(at.Add(time.Hour+rest/2), true) // asked again
			opened := byMessage && b.Failed(now, 9, 0) || !byMessage && b.Postpone(now, 0)
			since, _ := b.Open()
			if anew := rest >= time.Minute; opened != anew || since.Equal(now) != anew {
				t.Errorf("after %s: opened %v, since %s", rest, opened, since.Sub(at))
			}
			end := now.Add(min(rest, time.Minute))
			if rest > 0 && !b.Holds(end.Add(-1)) || b.Holds(end) {
				t.Errorf("after %s it does not hold for just as long", rest)
			}
			if next := b.NextProbe().Sub(now); opened && next != time.Second {
				t.Errorf("the first probe after it opened anew comes after %s", next)
			}
		}
	}
}

// A path that says that the app is ready, while messages that wait for hold to end go on failing, does not put that end off.
func TestBreakerHoldEndsWhateverTheReadyPathSays(t *testing.T) {
	at := time.Unix(1000, 0)
	b := restless(at)
	now := at.Add(24 * time.Hour)
	for began := now; now.Before(began.Add(time.Minute)); now = now.Add(time.Second) {
		if b.Failed(now, 9, 0); !b.Holds(now) {
			t.Fatalf("does not hold after %s", now.Sub(began))
		}
		b.Ready(now.Add(time.Second/2), false)
	}
	for range 1000 {
		if opened := b.Failed(now, 9, 0); opened || b.Holds(now) {
			t.Fatalf("opened %v, holds %v", opened, b.Holds(now))
		}
		now = now.Add(time.Minute)
		b.Ready(now, false)
	}
}

// Over any course of events: fewer than Failures different messages fail while it is closed, a probe waits at least three
// quarters of the interval and at most ProbeMax, and what is allowed is between 0 and most. From an opening on it holds for Hold, and as long
// again as nothing was left for an app that is ready, at most: never anew by that alone, and it opens anew after as much as Hold of that.
func TestBreakerProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := BreakerConfig{
			Failures:      rapid.IntRange(1, 6).Draw(t, "failures"),
			ProbeInterval: time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "interval")),
			ProbeMax:      time.Duration(rapid.Int64Range(int64(time.Minute), 1<<62).Draw(t, "max")),
			Hold:          time.Duration(rapid.Int64Range(1, int64(10*time.Minute)).Draw(t, "hold")),
		}
		most := rapid.IntRange(1, 100).Draw(t, "most")
		b, now := NewBreaker(cfg, most), time.Unix(1000, 0)
		row := map[uint64]bool{}
		var holds, rests time.Duration // since it opened: held with something left for the app, and with nothing
		var rest, spell time.Duration  // with nothing left, since it is half open, and without a break
		drained := false
		for range rapid.IntRange(1, 200).Draw(t, "events") {
			pause := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "pause"))
			now = now.Add(pause)
			switch {
			case drained:
				rests, rest, spell = rests+pause, rest+pause, spell+pause
			case b.Holds(now):
				holds += pause
			}
			began, was := b.Open()
			half := b.HalfOpen()
			anew := was && rest > 0 && rest >= cfg.Hold // by what is worse
			worse := false                              // what was half open is not any more
			switch rapid.SampledFrom([]string{"passes", "fails", "fails", "ready", "drained", "drained", "not ready"}).Draw(t, "event") {
			case "passes":
				if b.Passed() != was {
					t.Fatal("closing is not reported")
				}
				drained, rest, spell = false, 0, 0
				clear(row)
			case "ready":
				if b.Ready(now, false) != (was && !half) || b.HalfOpen() != was {
					t.Fatal("half open only when open, and told once")
				}
				drained, spell = false, 0
			case "drained":
				if b.Ready(now, true) != (was && !half) || b.HalfOpen() != was {
					t.Fatal("half open only when open, and told once")
				}
				drained = was
			case "not ready":
				worse = true
				if opened := b.Postpone(now, 0.5); opened != anew || b.HalfOpen() {
					t.Fatalf("opened %v, half open %v with an app that is not ready", opened, b.HalfOpen())
				}
			default:
				worse = true
				m := rapid.Uint64Range(0, 8).Draw(t, "message")
				row[m] = true
				if opened := b.Failed(now, m, rapid.Float64Range(0, 0.999).Draw(t, "random")); opened != (anew || !was && len(row) >= cfg.Failures) {
					t.Fatalf("opened %v after %d different messages", opened, len(row))
				}
				if b.HalfOpen() {
					t.Fatal("half open after a failure")
				}
			}
			since, open := b.Open()
			if was && open && since.Equal(now) != (worse && anew || began.Equal(now)) || since != now && since != began {
				t.Fatalf("open since %s, before since %s, with nothing left for %s", since, began, rest)
			}
			if open && since.Equal(now) && worse && (anew || !was) {
				holds, rests = 0, 0
			}
			if back := min(spell, cfg.Hold); open && worse && back > 0 && !b.Holds(now.Add(back-1)) {
				t.Fatalf("nothing was left for %s, and it does not hold for as long", rest)
			}
			if worse {
				drained, rest, spell = false, 0, 0
			}
			if b.Holds(now) && !open || b.Holds(now.Add(cfg.Hold)) || holds > cfg.Hold+rests {
				t.Fatalf("open %v, held for %s, with nothing left for %s", open, holds, rests)
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
