package forward

import (
	"context"
	"errors"
	"os"
	"time"
)

var past = time.Unix(1, 0)

// watch makes the end of ctx interrupt the request that begins. It stays registered with ctx as long as the link is used with
// it: most callers come again with the same.
func (l *link) watch(ctx context.Context) {
	if !l.bounded {
		l.bounded = true
		_ = l.nc.SetReadDeadline(l.until)
	}
	done := ctx.Done()
	l.mu.Lock()
	l.active = done
	l.mu.Unlock()
	if done != l.watched {
		if l.unwatch != nil {
			l.unwatch()
		}
		l.watched, l.unwatch = done, nil
		if done != nil {
			l.unwatch = context.AfterFunc(ctx, func() { l.interrupt(done) })
		}
	} else if ctx.Err() != nil {
		l.interrupt(done) // it ended before, while the link was idle
	}
}

// interrupt ends every wait of the request of a context that ended, and none of another.
func (l *link) interrupt(done <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if done == nil || l.active != done || l.interrupted {
		return
	}
	l.interrupted = true
	_ = l.nc.SetDeadline(past)
}

// extend reports whether an error was only a deadline of an earlier request, which it replaces. A deadline costs too much to
// be set for each.
func (l *link) extend(err error) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.interrupted || !time.Now().Before(l.until) {
		return false
	}
	return l.nc.SetReadDeadline(l.until) == nil
}
