package admin

import (
	"math"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/pipeline"
	"github.com/jetsidecar/jetsidecar/internal/telemetry"
	"github.com/jetsidecar/jetsidecar/policy"
)

func TestHistory(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(step int) sample {
		return sample{
			at:     start.Add(time.Duration(step) * historyStep),
			counts: telemetry.Counts{Ack: uint64(step * 50), Retry: uint64(step * 5), InFlight: int64(step)},
			status: pipeline.Status{Detail: "long text", Pending: uint64(step), AckPending: 9, Leased: 4, DLQDepth: uint64(step)},
		}
	}
	var h history
	if n := len(h.points()); n != 0 || h.rates(start, telemetry.Counts{Ack: 5}) != (Rates{}) {
		t.Errorf("%d points before the first sample", n)
	}
	for step := range 200 {
		h.add(at(step))
		points := h.points()
		if want := min(step, historySteps); len(points) != want {
			t.Fatalf("%d points after %d samples, want %d", len(points), step+1, want)
		}
		for i, p := range points {
			n := step - len(points) + 1 + i
			if !p.Time.Equal(at(n).at) || p.Rates.Ack != 10 || p.Rates.Retry != 1 || p.Rates.DLQ != 0 || p.InFlight != int64(n) || p.Pending != uint64(n) ||
				p.Parked != 5 || p.DLQDepth != uint64(n) {
				t.Fatalf("point %d after %d samples: %+v", i, step+1, p)
			}
		}
		now := at(step + 1)
		if r := h.rates(now.at, now.counts); math.Abs(r.Ack-10) > 1e-9 || math.Abs(r.Retry-1) > 1e-9 {
			t.Fatalf("rates after %d samples: %+v", step+1, r)
		}
	}
	// What came in the last minute counts, and nothing of before.
	last := at(199)
	last.counts.Ack += 600
	if r := h.rates(last.at.Add(0), last.counts); math.Abs(r.Ack-(10*55+600)/55.0) > 1e-9 {
		t.Errorf("rates: %+v", r)
	}
	if h.samples[0].status.Detail != "" {
		t.Error("texts are kept")
	}
}

func TestSchedule(t *testing.T) {
	retry := policy.RetryConfig{Initial: time.Second, Multiplier: 2, Max: 8 * time.Second, Jitter: 0.5, RetryAfterMax: time.Minute}
	for _, c := range []struct {
		name        string
		cfg         config.Consumer
		attempts    int
		more        bool
		last        Delay
		maxAge, max float64
	}{
		{"limited", config.Consumer{Retry: retry, MaxDeliver: 4, MaxAge: time.Hour}, 3, false, Delay{4, 2, 4}, 3600, 8},
		{"once", config.Consumer{Retry: retry, MaxDeliver: 1}, 0, false, Delay{}, 0, 8},
		{"no limit", config.Consumer{Retry: retry}, 4, true, Delay{5, 4, 8}, 0, 8},
		{"very many", config.Consumer{Retry: retry, MaxDeliver: 1000}, 49, true, Delay{50, 4, 8}, 0, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := scheduleOf(c.cfg)
			if len(s.Attempts) != c.attempts || s.More != c.more || s.MaxDeliver != c.cfg.MaxDeliver || s.MaxAge != c.maxAge || s.Max != c.max || s.RetryAfterMax != 60 {
				t.Fatalf("%+v", s)
			}
			if c.attempts > 0 && s.Attempts[c.attempts-1] != c.last {
				t.Errorf("the last is %+v", s.Attempts[c.attempts-1])
			}
		})
	}
}
