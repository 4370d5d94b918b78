package jetstream

import (
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// That the lease of a message was lost before it was moved says nothing against the retry stream: others are moved on.
func TestMoveOfALostLease(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	cfg := b.config()
	cfg.RetryStream.Enabled = true
	b.publish(1)
	b.run(cfg)
	m := b.next()
	b.source.mu.Lock()
	b.source.release(m)
	b.source.mu.Unlock()
	r := b.source.retries
	r.add(r.moves, &retryJob{message: m, due: time.Now().Add(time.Minute)})
	if left := r.flush(b.ctx); left != 0 {
		t.Fatalf("%d moves are left", left)
	}
	if r.paused() {
		t.Error("nothing is moved any more")
	}
}
