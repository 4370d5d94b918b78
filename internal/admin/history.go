package admin

import (
	"sync"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/pipeline"
	"github.com/jetsidecar/jetsidecar/internal/telemetry"
)

const (
	historyStep   = 5 * time.Second
	historySteps  = 60                    // five minutes
	rateSteps     = 12                    // a minute
	shortestSpan  = 10 * time.Millisecond // of a rate
	historyMemory = historySteps + 1      // samples: a point is what lies between two
)

// sample is a consumer at one moment.
type sample struct {
	at     time.Time
	counts telemetry.Counts
	status pipeline.Status
}

// history is what a consumer did in the last minutes: a ring of samples.
type history struct {
	mu      sync.Mutex
	samples [historyMemory]sample
	taken   int
}

func (h *history) add(s sample) {
	s.status = pipeline.Status{ // without its texts
		Leased: s.status.Leased, Pending: s.status.Pending, AckPending: s.status.AckPending,
		BreakerOpen: s.status.BreakerOpen, DLQDepth: s.status.DLQDepth,
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.samples[h.taken%historyMemory] = s
	h.taken++
}

// rates are messages a second since a minute ago, or since the first sample.
func (h *history) rates(now time.Time, counts telemetry.Counts) Rates {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.taken == 0 {
		return Rates{}
	}
	back := min(h.taken, rateSteps)
	s := h.samples[(h.taken-back)%historyMemory]
	return ratesBetween(s.counts, counts, now.Sub(s.at))
}

// points are the last minutes, the oldest first.
func (h *history) points() []Point {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := min(h.taken, historyMemory)
	points := make([]Point, 0, historySteps)
	for i := h.taken - kept + 1; i < h.taken; i++ {
		points = append(points, pointBetween(h.samples[(i-1)%historyMemory], h.samples[i%historyMemory]))
	}
	return points
}

func pointBetween(a, b sample) Point {
	return Point{
		Time: b.at.UTC(), Rates: ratesBetween(a.counts, b.counts, b.at.Sub(a.at)), InFlight: b.counts.InFlight, Leased: b.status.Leased,
		Parked: b.status.Parked(), Pending: b.status.Pending, BreakerOpen: b.status.BreakerOpen, DLQDepth: b.status.DLQDepth,
	}
}

func ratesBetween(a, b telemetry.Counts, span time.Duration) Rates {
	seconds := max(span, shortestSpan).Seconds()
	per := func(a, b uint64) float64 { return float64(b-a) / seconds }
	return Rates{
		Ack: per(a.Ack, b.Ack), Retry: per(a.Retry, b.Retry), DLQ: per(a.DLQ, b.DLQ), Drop: per(a.Drop, b.Drop),
		Duplicate: per(a.Duplicate, b.Duplicate), Requests: per(a.Requests, b.Requests),
	}
}
