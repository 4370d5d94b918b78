package pipeline

import (
	"context"
	"testing"
)

// What waits for the DLQ at the end and must not be handed back is not known to be settled.
func TestWhatIsLeftIsCounted(t *testing.T) {
	g := newGraves(&Pipeline{Config: Config{Concurrency: 1}})
	g.add(&deadLetter{unsure: true})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if left := g.finish(ctx); left != 1 {
		t.Errorf("%d are left, want 1", left)
	}
}

// Whatever is held and given another turn, it is at all times seen that there is something left.
func TestReleaseHeldIsSeen(t *testing.T) {
	g := newGraves(&Pipeline{Config: Config{Concurrency: 1}})
	g.hold(&deadLetter{unsure: true})
	stop := make(chan struct{})
	rested := make(chan bool)
	go func() {
		rest := false
		for {
			select {
			case <-stop:
				rested <- rest
				return
			default:
				rest = rest || g.atRest()
			}
		}
	}()
	for range 20000 {
		g.releaseHeld()
		g.hold(<-g.queue)
		g.count(-1)
	}
	close(stop)
	if <-rested {
		t.Error("it was at rest while a dead letter was there")
	}
}
