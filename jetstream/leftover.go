package jetstream

import (
	"context"
	"time"
)

// What waits in the retry stream from before an order was set is of the past: messages after it were called long ago. It is served
// beside the others. A copy takes its turn among those of its key, by its sequence, so that of one key one at a time is called;
// and where a durable is pinned to one sidecar, the others leave the copies to that one too.

// beginCopy begins a message of the retry stream, on a source that keeps order, as Begin does.
func (r *retries) beginCopy(ctx context.Context, m *Message) bool {
	sure, ours := r.main.owner()
	switch {
	case !sure:
		r.blindUntil(time.Now().Add(retryTick))
		r.putOff(m)
		return false
	case !ours:
		m.HandBack()
		return false
	}
	return r.source.begin(m) && !r.superseded(ctx, m)
}

// mayServe reports whether the retry stream is this sidecar's to serve.
func (r *retries) mayServe() bool {
	sure, ours := r.main.owner()
	return r.main.order == nil || sure && ours
}

// owner reports whether it is known whom the durable is pinned to, and whether that is this source. A durable is pinned with the first
// message that it delivers: one that has none to deliver, and is pinned to nobody, is anybody's.
func (s *Source) owner() (sure, ours bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bound == nil || s.order == nil || s.order.unsure {
		return false, false
	}
	info := s.bound.info
	idle := info.NumPending == 0 && info.NumAckPending == 0 && pinnedTo(info) == ""
	return true, !s.anothers() || idle
}
