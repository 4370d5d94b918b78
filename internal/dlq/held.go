package dlq

import (
	"context"
	"time"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

const (
	// heldPause is between two looks at entries that others have in work.
	heldPause = 200 * time.Millisecond
	// leaseEnds is how long a removal waits for them: a run that died holds them no longer.
	leaseEnds = jetstream.ClaimLease + time.Second
)

// held are entries that others had in work when it was their turn.
type held struct {
	refs  []ref
	owner string // of the claim that was met last
}

// hold puts an entry off.
func (r *run) hold(one ref, owner string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held.refs = append(r.held.refs, one)
	r.held.owner = owner
}

// waited waits a moment for those who have entries in work, says so, and returns the entries to be tried again. What runs that died
// meanwhile were done with is removed first. It returns none if ctx ends.
func (r *run) waited(ctx context.Context, claims map[string]*jetstream.Claims) ([]ref, error) {
	r.tellHeld()
	select {
	case <-ctx.Done():
		return nil, nil
	case <-time.After(heldPause):
	}
	refs := r.held.refs
	r.held.refs = nil
	for _, name := range streamsOf(refs) {
		dead, err := claims[name].Dead(ctx)
		if err == nil {
			err = r.adopt(ctx, claims[name], name, dead)
		}
		if err != nil {
			return nil, unlessStopped(ctx, err)
		}
	}
	return refs, nil
}

// tellHeld tells what is waited for, if it is not the same as before.
func (r *run) tellHeld() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := Waiting{Entries: len(r.held.refs), Owner: r.held.owner}
	if was := r.report.Waiting; was != nil && *was == now {
		return
	}
	r.report.Waiting = &now
	if r.onProgress != nil {
		p := r.report.Progress
		p.Last = nil
		r.onProgress(p)
	}
}
