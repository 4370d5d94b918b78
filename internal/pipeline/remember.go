package pipeline

import "github.com/jetsidecar/jetsidecar/jetstream"

// Remember is told of a message that the app accepted in a replay: a duplicate of it that comes later is acked without a call.
// StreamCreated is that of the stream as it is now.
func (p *Pipeline) Remember(m *jetstream.Message) {
	if p.memory == nil {
		return
	}
	a := &attempt{message: m, scope: p.scopeOf(m)}
	p.identify(a)
	p.memory.Remember(a.key)
}
