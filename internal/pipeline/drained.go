package pipeline

import (
	"context"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

// drained reports whether no message is left for the app, here or at the server, as far as is known.
func (p *Pipeline) drained(context.Context) bool {
	src := p.Source.Status()
	return src.Bound && p.Source.Leased() == 0 && p.nothingWaits(src)
}

// nothingWaits reports whether no message waits at the server that would try the app soon.
func (p *Pipeline) nothingWaits(src jetstream.Status) bool {
	return src.Pending == 0 && src.AckPending == 0 && src.Moved == 0
}
