// Package alert tells people that a DLQ stream has more entries than it should: once when that begins, and once when it is over.
package alert

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

const (
	// lookEvery is how often the depth is looked at.
	lookEvery = time.Second
	// renewEvery is how often an Alertmanager is told again of an alert that lasts, and renewFor how long it believes it
	// without being told: it keeps alerts in memory only, and ends the ones that nobody renews.
	renewEvery, renewFor = time.Minute, 5 * time.Minute
)

// Config is the alert of one consumer's DLQ stream.
type Config struct {
	Stream, Consumer, DLQStream string
	Threshold                   int    // entries above which there is an alert
	URL                         string // empty: nothing is posted
	Format                      Format
	UserAgent                   string
}

// Parts are what a Watch is made of.
type Parts struct {
	// State is the number of entries, and whether it is above the threshold.
	State func() (depth uint64, above bool)
	// Causes is a sample of why the entries are there.
	Causes func(context.Context) map[string]int
	// Transport posts; nil means one of its own.
	Transport http.RoundTripper
	Log       *slog.Logger
}

// Watch watches one DLQ stream.
type Watch struct {
	cfg Config
	Parts
	sender *sender // nil: nothing is posted
	firing bool
	last   Alert     // the one of the last change
	told   time.Time // when it was last handed to the sender
}

// New prepares a Watch. It starts nothing: see Run.
func New(cfg Config, parts Parts) *Watch {
	w := &Watch{cfg: cfg, Parts: parts}
	if cfg.URL != "" {
		w.sender = newSender(cfg, parts)
	}
	return w
}

// Run watches until ctx ends. What was not posted by then is not posted.
func (w *Watch) Run(ctx context.Context) {
	var sending sync.WaitGroup
	defer sending.Wait()
	if w.sender != nil {
		sending.Go(func() { w.sender.run(ctx) })
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for ctx.Err() == nil {
		w.look(ctx)
		select {
		case <-ctx.Done():
		case <-look.C:
		}
	}
}

// look compares the depth with the threshold.
func (w *Watch) look(ctx context.Context) {
	depth, above := w.State()
	now := time.Now()
	switch {
	case above != w.firing:
		w.changed(ctx, depth, above, now)
	case above && w.cfg.Format == Alertmanager && now.Sub(w.told) >= renewEvery:
		w.last.Depth = depth
		w.tell(w.last, now)
	}
}

// changed says that the alert began, or is over.
func (w *Watch) changed(ctx context.Context, depth uint64, above bool, now time.Time) {
	w.firing = above
	about := []any{slog.String("dlq_stream", w.cfg.DLQStream), slog.Uint64("depth", depth), slog.Int("alert_depth", w.cfg.Threshold)}
	a := Alert{
		Status: Firing, Stream: w.cfg.Stream, Consumer: w.cfg.Consumer, DLQStream: w.cfg.DLQStream,
		Depth: depth, Threshold: w.cfg.Threshold, Time: now.UTC(), since: now.UTC(),
	}
	if above {
		w.Log.Error("the dlq has more entries than alert_depth", about...)
	} else {
		w.Log.Info("the dlq is back to alert_depth or below", about...)
		a.Status, a.since = Resolved, w.last.since
	}
	if w.sender != nil {
		a.Reasons = w.Causes(ctx)
	}
	w.last = a
	w.tell(a, now)
}

func (w *Watch) tell(a Alert, now time.Time) {
	w.told = now
	if w.sender != nil {
		w.sender.put(a)
	}
}
