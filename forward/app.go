package forward

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

var errNotProbed = errors.New("app was not probed yet")

// answerShows is how long an answer shows that the app is there, whatever connections cannot be made meanwhile: an app that is gone has
// closed those it answered over, and one that has as many as it takes has not gone.
const answerShows = time.Second

// app is whether the app is there. It is down until something shows otherwise.
type app struct {
	gated    bool // a ready path decides: requests wait until it passes
	onChange func(up bool, err error)
	born     time.Time

	up        atomic.Bool
	exchanged atomic.Bool   // an answer came since the last look
	last      atomic.Int64  // when an answer came last, since born
	lost      atomic.Bool   // the last connection could not be made
	fell      chan struct{} // gets one when the app is found away by that

	mu     sync.Mutex
	known  bool // something was found out
	err    error
	since  time.Time     // it is what it is
	opened chan struct{} // closed while up
}

func newApp(gated bool, onChange func(bool, error)) *app {
	return &app{
		gated: gated, onChange: onChange, born: time.Now(), err: errNotProbed,
		fell: make(chan struct{}, 1), opened: make(chan struct{}),
	}
}

// askEvery is how often it is asked of a message that waits whether it is still to be sent.
const askEvery = time.Second

// wait returns once a request may try to connect, or with an error when ctx ends or the message is not wanted any more.
func (a *app) wait(ctx context.Context, stillWanted func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !a.gated || a.up.Load() {
		return nil
	}
	ask := time.NewTicker(askEvery)
	defer ask.Stop()
	for {
		a.mu.Lock()
		opened := a.opened
		a.mu.Unlock()
		select {
		case <-opened:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-ask.C:
			if err := stillWanted(); err != nil {
				return err
			}
		}
	}
}

// connected is told of every new connection. With a ready path only that says whether the app is up.
func (a *app) connected() {
	switch {
	case a.gated:
		a.lost.Store(false)
	case !a.up.Load():
		a.set(nil)
	}
}

// answered is told of an answer, and when its request began. Without a ready path the app is up then, if the request began after it was
// found away: before that, an app that is on its way out answers too.
func (a *app) answered(began, now time.Time) {
	a.exchanged.Store(true)
	a.last.Store(max(int64(now.Sub(a.born)), 1))
	if a.gated || a.up.Load() {
		return
	}
	a.mu.Lock()
	away := a.since
	a.mu.Unlock()
	if !began.Before(away) {
		a.set(nil)
	}
}

// unreachable is told that no connection could be made.
func (a *app) unreachable(err error) {
	if last := a.last.Load(); a.up.Load() && last > 0 && time.Since(a.born)-time.Duration(last) < answerShows {
		return
	}
	a.lost.Store(true)
	if !a.change(err) {
		return
	}
	select {
	case a.fell <- struct{}{}:
	default:
	}
}

// set is told what was found over a connection: nil for an app that is there.
func (a *app) set(err error) {
	a.lost.Store(false)
	a.change(err)
}

// change notes what was found, and reports whether it differs. Only a change is passed on; the first finding is one.
func (a *app) change(err error) (changed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	up := err == nil
	changed = !a.known || up != a.up.Load()
	a.known, a.err = true, err
	if !changed {
		return false
	}
	if up {
		close(a.opened)
	} else if a.up.Load() {
		a.opened = make(chan struct{})
	}
	a.since = time.Now()
	a.up.Store(up)
	if a.onChange != nil {
		a.onChange(up, err)
	}
	return true
}

func (a *app) lastError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}
