package pipeline

import (
	"math/rand/v2"
	"time"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

const (
	// maxRemembered bounds the memory for dead letters that wait at the server for the DLQ to take them.
	maxRemembered = 8 << 20
	// entryOverhead is what a remembered dead letter costs besides its texts.
	entryOverhead = 512
	// rememberFor is how long a remembered dead letter that does not come back is kept: its message is gone.
	rememberFor = time.Hour
)

type asideKey struct {
	stream   time.Time // creation time
	sequence uint64
}

func keyOf(m *jetstream.Message) asideKey { return asideKey{m.StreamCreated, m.Sequence} }

func (d *deadLetter) size() int {
	return entryOverhead + len(d.letter.Error) + len(d.letter.Response)
}

// putAside lets a dead letter wait without a lease. It keeps its lease where the next message of its key waits for it, where the
// server would give up on it, since this is its last delivery, and where there is no more room to remember its cause.
func (g *graves) putAside(dl *deadLetter, wait time.Duration) {
	switch {
	case g.isStopping() && dl.mayGoBack():
		dl.message.HandBack()
	case g.isStopping():
		g.hold(dl) // finish tries on
	case g.p.order != nil || dl.message.Last():
		g.p.Source.Survived(dl.message)
		g.hold(dl)
	case g.remember(dl):
		wait = max(wait, firstPause)
		dl.message.Nak(wait + rand.N(wait/8)) // not before it is its turn, and not all at once
	default:
		g.p.Source.Survived(dl.message)
		g.hold(dl)
	}
}

// lost lets go of a dead letter whose lease is lost: another delivery of its message may have been answered otherwise meanwhile, so the next one
// is tried. Its cause is kept where the server delivers it no more, but says that it gave up on it, and where the entry may be stored.
func (g *graves) lost(dl *deadLetter) {
	if dl.unsure || dl.message.Last() {
		g.remember(dl)
	}
	dl.message.HandBack()
}

func (g *graves) hold(dl *deadLetter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = append(g.held, dl)
}

// remember keeps the cause of a dead letter for when its message comes again. It returns false if there is no room.
func (g *graves) remember(dl *deadLetter) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if earlier, ok := g.aside[keyOf(dl.message)]; ok {
		g.forget(keyOf(dl.message), earlier)
	}
	if g.remembered+dl.size() > maxRemembered {
		g.sweep(now)
	}
	if g.remembered+dl.size() > maxRemembered {
		return false
	}
	kept := *dl
	kept.since = now
	kept.message, kept.letter.Message = nil, nil // the body is not kept: it comes with the next delivery
	g.aside[keyOf(dl.message)] = &kept
	g.remembered += kept.size()
	return true
}

// dug returns the dead letter that this delivery continues, if there is one.
func (g *graves) dug(m *jetstream.Message) (*deadLetter, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	dl, ok := g.aside[keyOf(m)]
	if !ok {
		return nil, false
	}
	g.forget(keyOf(m), dl)
	dl.message, dl.letter.Message = m, m
	return dl, true
}

// cause returns a copy of what is remembered of a message that will not be delivered again, if there is something.
func (g *graves) cause(m *jetstream.Message) (*deadLetter, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	kept, ok := g.aside[keyOf(m)]
	if !ok {
		return nil, false
	}
	dl := *kept
	dl.message, dl.letter.Message = m, m
	return &dl, true
}

// done forgets the cause of a message that is settled.
func (g *graves) done(m *jetstream.Message) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if dl, ok := g.aside[keyOf(m)]; ok {
		g.forget(keyOf(m), dl)
	}
}

func (g *graves) forget(k asideKey, dl *deadLetter) {
	delete(g.aside, k)
	g.remembered -= dl.size()
}

// sweep forgets what did not come back.
func (g *graves) sweep(now time.Time) {
	for k, dl := range g.aside {
		if now.Sub(dl.since) > rememberFor {
			g.forget(k, dl)
		}
	}
}
