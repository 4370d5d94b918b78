package app

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// An app that comes and goes has so many lines in the log at once, and then one in so long.
const (
	reachLines = 4
	reachEvery = 15 * time.Second
)

// reach logs whether the app is reachable: each change, or where they are too many what came of them after a while.
type reach struct {
	log   *slog.Logger
	lines *rate.Limiter
	late  chan struct{} // gets one when there are changes without a line

	mu   sync.Mutex
	held int // changes without a line
	err  error
}

func newReach(log *slog.Logger) *reach {
	return &reach{log: log, lines: rate.NewLimiter(rate.Every(reachEvery), reachLines), late: make(chan struct{}, 1)}
}

// changed is told that the app is there, or why it is not.
func (r *reach) changed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
	if r.held++; r.held > 1 {
		return
	}
	if r.lines.Allow() {
		r.line()
		return
	}
	select {
	case r.late <- struct{}{}:
	default:
	}
}

// run writes the lines that had to wait, until ctx ends.
func (r *reach) run(ctx context.Context) {
	for {
		select {
		case <-r.late:
		case <-ctx.Done():
			return
		}
		if r.lines.Wait(ctx) != nil {
			return
		}
		r.mu.Lock()
		r.line()
		r.mu.Unlock()
	}
}

// line says how it is now. The caller holds r.mu.
func (r *reach) line() {
	var also []any
	if r.held > 1 {
		also = append(also, slog.Int("changes", r.held)) // since the last line
	}
	r.held = 0
	if r.err == nil {
		r.log.Info("the app is reachable", also...)
		return
	}
	r.log.Warn("the app is not reachable, pulling waits", append(also, slog.String("error", r.err.Error()))...)
}
