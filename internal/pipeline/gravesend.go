package pipeline

import (
	"context"
	"time"
)

// finish follows stopWaiting. It waits, while ctx lasts, until everything that is on its way to the DLQ is stored or refused. What is
// refused is handed back, if it may: what may not is tried again. It returns how many of these are left: it is not known what becomes of them. Those
// that wait at the server are another sidecar's as well as this one's.
func (g *graves) finish(ctx context.Context) (left int) {
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !g.atRest() && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-look.C:
			if g.isDue() {
				g.releaseHeld()
			}
		}
	}
	g.close()
	for {
		g.letGo()
		if left, all := g.left(); all {
			return left
		}
		<-look.C // a writer has one in hand
	}
}

// letGo hands back what waits in the queue, or keeps it where that may not be.
func (g *graves) letGo() {
	for {
		select {
		case dl := <-g.queue:
			if dl.mayGoBack() {
				dl.message.HandBack()
			} else {
				g.hold(dl)
			}
			g.count(-1)
		default:
			return
		}
	}
}

// stopWaiting lets nothing wait for the DLQ any more but what must not be handed back: the sidecar is stopping.
func (g *graves) stopWaiting() {
	g.mu.Lock()
	g.stopping = true
	held := g.held
	g.held = nil
	g.mu.Unlock()
	for _, dl := range held {
		dl.hasten(time.Now())
		g.putAside(dl, 0)
	}
}

// hasten keeps the next try from being late: a stop waits for it.
func (d *deadLetter) hasten(now time.Time) {
	if soon := now.Add(time.Second); d.notBefore.After(soon) {
		d.notBefore = soon
	}
}

// mayGoBack reports whether a dead letter may be handed back. One that may be stored although nothing said so could be accepted by the
// app then, and be in the DLQ too; one that the server would give up on would lose its cause.
func (d *deadLetter) mayGoBack() bool { return !d.unsure && !d.message.Stranded() }

// atRest reports whether nothing is on its way to the DLQ. At a stop everything soon is, or is handed back.
func (g *graves) atRest() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.busy == 0 && len(g.held) == 0
}

// isDue reports whether the DLQ is to be tried again.
func (g *graves) isDue() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.held) > 0 && time.Now().After(g.tries.next)
}

// close lets nothing more go to the DLQ.
func (g *graves) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

// left returns how many should have gone to the DLQ, and whether it knows of all: none is in the hands of a writer that sees later that nothing
// more goes there.
func (g *graves) left() (n int, all bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.storing + len(g.held), g.busy == g.storing
}

func (g *graves) isStopping() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stopping
}
