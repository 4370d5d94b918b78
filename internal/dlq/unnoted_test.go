package dlq

import (
	"context"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/forward"
)

// An entry whose answer cannot be noted, as the bucket of the claims is gone, is removed all the same.
func TestUnnotedIsRemoved(t *testing.T) {
	b := newBench(t, 1)
	s := b.service(nil)
	s.finishFor = time.Second // the bucket does not answer
	b.app.script = func(context.Context, *forward.Message) forward.Result {
		b.must(b.js.DeleteKeyValue(context.Background(), "sidecar-state"))
		return answer(200)
	}
	r, err := s.Replay(t.Context(), Filter{}, ReplayOptions{})
	if err == nil || r.Done != 1 || r.Kept != 0 {
		t.Errorf("%v, %+v", err, r)
	}
	if left := b.left(s); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
}
