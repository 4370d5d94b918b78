package forward

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

var errNotProbed = errors.New("app was not probed yet")

// app is whether the app is there. It is down until something shows otherwise.
type app struct {
	gated    bool // a ready path decides: requests wait until it passes
	onChange func(up bool, err error)

	up        atomic.Bool
	exchanged atomic.Bool // an answer came since the last look

	mu     sync.Mutex
	known  bool // something was found out
	err    error
	opened chan struct{} // closed while up
}

func newApp(gated bool, onChange func(bool, error)) *app {
	return &app{gated: gated, onChange: onChange, err: errNotProbed, opened: make(chan struct{})}
}

// wait returns once a request may try to connect.
func (a *app) wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !a.gated || a.up.Load() {
		return nil
	}
	for {
		a.mu.Lock()
		opened := a.opened
		a.mu.Unlock()
		select {
		case <-opened:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// connected is told of every new connection. With a ready path only that says whether the app is up.
func (a *app) connected() {
	if !a.gated && !a.up.Load() {
		a.set(nil)
	}
}

// unreachable is told that no connection could be made.
func (a *app) unreachable(err error) { a.set(err) }

// set is told what was found: nil for an app that is there. Only a change is passed on; the first finding is one.
func (a *app) set(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	up := err == nil
	changed := !a.known || up != a.up.Load()
	a.known, a.err = true, err
	if !changed {
		return
	}
	if up {
		close(a.opened)
	} else if a.up.Load() {
		a.opened = make(chan struct{})
	}
	a.up.Store(up)
	if a.onChange != nil {
		a.onChange(up, err)
	}
}

func (a *app) lastError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}
