package admin

import (
	"maps"
	"sync"
)

// depths are how many entries the DLQ streams have: one number for each, though consumers that share one have looked at it at
// different times. The latest look counts. It is that of a consumer whose number changed; one that stays may be old. Of several that changed
// the highest counts, which has what was stored last. (The highest of all would show a purge only after all had looked.)
// The zero value is ready.
type depths struct {
	mu      sync.Mutex
	seen    map[*watched]uint64
	streams map[string]uint64
}

// look is the depth of each DLQ stream now. It is called from any goroutine.
func (d *depths) look(consumers []*watched) map[string]uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.seen == nil {
		d.seen, d.streams = map[*watched]uint64{}, map[string]uint64{}
	}
	latest := map[string]uint64{}
	for _, w := range consumers {
		st := w.Pipeline.Status()
		if before, known := d.seen[w]; !st.DLQEnabled || known && before == st.DLQDepth {
			continue
		}
		d.seen[w] = st.DLQDepth
		latest[st.DLQStream] = max(latest[st.DLQStream], st.DLQDepth)
	}
	maps.Copy(d.streams, latest)
	return maps.Clone(d.streams)
}
