package pipeline

import (
	"context"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

// drained reports whether no message is left for the app, here or at the server, as far as is known. It asks for what waits in the retry stream: it
// is called only while a breaker is open, seldom, with no message to try the app with.
func (p *Pipeline) drained(ctx context.Context) bool {
	p.retriesLeft.Store(p.Source.RetriesLeft(ctx))
	src := p.Source.Status()
	return src.Bound && p.Source.Leased() == 0 && p.nothingWaits(src)
}

// nothingWaits reports whether no message waits at the server that would try the app sooner or later.
func (p *Pipeline) nothingWaits(src jetstream.Status) bool {
	return src.Pending == 0 && src.AckPending == 0 && !p.retriesLeft.Load()
}
