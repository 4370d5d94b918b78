package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

const (
	// maxVoid bounds for how many messages it is remembered that their marks are void.
	maxVoid = 1000
	// voidPause is the pause after a mark could not be removed; it doubles up to voidPauseMost.
	voidPause     = 250 * time.Millisecond
	voidPauseMost = 10 * time.Second
	// lastRemoval bounds one removal at a stop.
	lastRemoval = 2 * time.Second
)

// voidMarks are marks that could not be removed although their message has a verdict, or was handed back. To this process they say
// nothing. They are removed later, since to another one they would tell of a process that died.
type voidMarks struct {
	marks Marks
	log   *slog.Logger
	wake  chan struct{}

	mu       sync.Mutex               // a leaf
	counts   map[string]int           // by message: how many of its marks
	removing map[string]chan struct{} // by message whose marks are removed just now: closed when that is over
}

func newVoidMarks(marks Marks, log *slog.Logger) *voidMarks {
	return &voidMarks{marks: marks, log: log, wake: make(chan struct{}, 1), counts: map[string]int{}, removing: map[string]chan struct{}{}}
}

// of is how many of a message's marks are void.
func (v *voidMarks) of(key string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.counts[key]
}

// add is told of marks that could not be removed. It returns false if there are too many of them.
func (v *voidMarks) add(key string, n int) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, known := v.counts[key]; !known && len(v.counts) >= maxVoid {
		return false
	}
	v.counts[key] = n
	select {
	case v.wake <- struct{}{}:
	default:
	}
	return true
}

// gone is told that what is there of a message now, if anything, is not void.
func (v *voidMarks) gone(key string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.counts, key)
}

// writeOver is told that a message's marks are about to be written over: none is void then. It waits while they are removed, since that could
// hit the new ones.
func (v *voidMarks) writeOver(ctx context.Context, key string) {
	v.gone(key)
	v.mu.Lock()
	over := v.removing[key]
	v.mu.Unlock()
	if over == nil {
		return
	}
	select {
	case <-ctx.Done():
	case <-over:
	}
}

// begin takes a message whose void marks are to be removed: end must follow. There may be none, or only such as are being removed.
func (v *voidMarks) begin() (key string, ok, busy bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for key := range v.counts {
		if v.removing[key] == nil {
			v.removing[key] = make(chan struct{})
			return key, true, false
		}
	}
	return "", false, len(v.removing) > 0
}

func (v *voidMarks) end(key string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.removing[key])
	delete(v.removing, key)
}

// run removes void marks as they come, until ctx ends.
func (v *voidMarks) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-v.wake:
			v.removeAll(ctx, v.marks.Remove)
		}
	}
}

// removeAll tries until all are removed, or ctx ends.
func (v *voidMarks) removeAll(ctx context.Context, remove func(context.Context, string) error) {
	wait := voidPause
	for ctx.Err() == nil {
		key, ok, busy := v.begin()
		switch {
		case busy:
			pause(ctx, voidPause/10)
			continue
		case !ok:
			return
		}
		err := remove(ctx, key)
		if err == nil {
			v.gone(key)
		}
		v.end(key)
		if err == nil {
			wait = voidPause
			continue
		}
		pause(ctx, jittered(wait))
		wait = min(2*wait, voidPauseMost)
	}
}

// finish removes what is left at a stop, and says what stays: after ctx there is no time for it. What the user may not remove stays.
func (v *voidMarks) finish(ctx context.Context) {
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	v.removeAll(ctx, func(ctx context.Context, key string) error {
		within, cancel := context.WithTimeout(ctx, lastRemoval)
		defer cancel()
		err := v.marks.Remove(within, key)
		if errors.Is(err, jetstream.ErrDenied) {
			giveUp()
		}
		return err
	})
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.counts); n > 0 {
		v.log.Warn("marks stay of messages that no process died of", slog.Int("messages", n))
	}
}
