package policy

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDelay(t *testing.T) {
	usual := RetryConfig{Initial: time.Second, Multiplier: 2, Max: time.Minute, Jitter: 0.5}
	with := func(change func(*RetryConfig)) RetryConfig { c := usual; change(&c); return c }
	full := with(func(c *RetryConfig) { c.Jitter = 1 })

	for name, c := range map[string]struct {
		retry  RetryConfig
		n      uint64
		random float64
		want   time.Duration
	}{
		"first":                 {usual, 1, 0.999999999, time.Second - 0},
		"first, shortest":       {usual, 1, 0, 500 * time.Millisecond},
		"second":                {usual, 2, 0, time.Second},
		"sixth":                 {usual, 6, 0, 16 * time.Second},
		"seventh meets max":     {usual, 7, 0, 30 * time.Second},
		"very late":             {usual, math.MaxUint64, 0, 30 * time.Second},
		"attempt 0":             {usual, 0, 0, 500 * time.Millisecond},
		"no jitter":             {with(func(c *RetryConfig) { c.Jitter = 0 }), 3, 0.3, 4 * time.Second},
		"all jitter, a tenth":   {full, 1, 0, 100 * time.Millisecond},
		"all jitter, a half":    {full, 1, 0.5, 500 * time.Millisecond},
		"no growth":             {with(func(c *RetryConfig) { c.Multiplier = 1 }), math.MaxUint64, 0, 500 * time.Millisecond},
		"shrinking is no thing": {with(func(c *RetryConfig) { c.Multiplier = 0.5 }), 50, 0, 500 * time.Millisecond},
		"NaN":                   {with(func(c *RetryConfig) { c.Multiplier, c.Jitter = math.NaN(), math.NaN() }), 50, math.NaN(), time.Second},
		"infinite":              {with(func(c *RetryConfig) { c.Multiplier = math.Inf(1) }), 2, 0, 30 * time.Second},
		"the far end":           {RetryConfig{Initial: 1 << 62, Multiplier: 2, Max: math.MaxInt64}, 2, 0, math.MaxInt64},
		"max below initial":     {with(func(c *RetryConfig) { c.Max = 10 * time.Millisecond }), 1, 0, 5 * time.Millisecond},
		"nothing configured":    {RetryConfig{}, 1, 0, leastDelay},
		"one nanosecond":        {RetryConfig{Initial: 1, Multiplier: 1, Max: 1, Jitter: 1}, 1, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.retry.Delay(c.n, c.random)
			if diff := got - c.want; diff < -2 || diff > 2 {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func anyRetry(t *rapid.T) RetryConfig {
	return RetryConfig{
		Initial:       time.Duration(rapid.Int64().Draw(t, "initial")),
		Multiplier:    anyFloat().Draw(t, "multiplier"),
		Max:           time.Duration(rapid.Int64().Draw(t, "max")),
		Jitter:        anyFloat().Draw(t, "jitter"),
		RetryAfterMax: time.Duration(rapid.Int64().Draw(t, "retry_after_max")),
	}
}

func anyFloat() *rapid.Generator[float64] {
	return rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 2), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, 0, 1, 2}))
}

// Any schedule, sensible or not: within its bounds, and never 0.
func TestDelayOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := anyRetry(t)
		n := rapid.Uint64().Draw(t, "n")
		shortest, longest := r.Bounds(n)
		got := r.Delay(n, anyFloat().Draw(t, "random"))
		if shortest < 1 || shortest > longest || got < shortest || got > longest {
			t.Fatalf("%v is not within %v and %v", got, shortest, longest)
		}
	})
}

// A schedule that passed validation: what the contract says of it.
func TestDelayOfASchedule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := RetryConfig{
			Initial:    time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "initial")),
			Multiplier: rapid.OneOf(rapid.Float64Range(1, 10), rapid.Float64Range(1, math.MaxFloat64)).Draw(t, "multiplier"),
			Jitter:     rapid.Float64Range(0, 1).Draw(t, "jitter"),
		}
		r.Max = time.Duration(rapid.Int64Range(int64(r.Initial), math.MaxInt64).Draw(t, "max"))
		n := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(1, 100)).Draw(t, "n")
		shortest, longest := r.Bounds(n)

		if longest > r.Max || longest < r.Initial {
			t.Fatalf("longest %v is not within %v and %v", longest, r.Initial, r.Max)
		}
		if shortest < longest/10 {
			t.Fatalf("shortest %v is below a tenth of %v", shortest, longest)
		}
		if n < math.MaxUint64 {
			if _, next := r.Bounds(n + 1); next < longest {
				t.Fatalf("delays fall from %v to %v", longest, next)
			}
		}
		a := rapid.Float64Range(0, 1).Draw(t, "a")
		b := rapid.Float64Range(a, 1).Draw(t, "b")
		if r.Delay(n, a) > r.Delay(n, b) {
			t.Fatalf("random %v gives more than %v", a, b)
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	p := Policy{MaxDeliver: 10, Retry: RetryConfig{Initial: time.Second, Multiplier: 2, Max: time.Minute, Jitter: 0.5}}
	b.ReportAllocs()
	for b.Loop() {
		p.Decide(Outcome{Kind: Answered, Status: 503}, Attempt{Number: 3, Random: 0.5})
	}
}
