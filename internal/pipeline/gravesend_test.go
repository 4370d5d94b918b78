package pipeline

import (
	"context"
	"testing"
	"testing/synctest"
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

// What a writer has in hand when the time is over is counted too: it is seen where it goes.
func TestWhatAWriterHasInHandIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGraves(&Pipeline{Config: Config{Concurrency: 1}})
		g.add(&deadLetter{unsure: true})
		dl := <-g.queue
		g.stopWaiting()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		left := make(chan int, 1)
		go func() { left <- g.finish(ctx) }()
		synctest.Wait()
		if len(left) != 0 {
			t.Errorf("%d are said to be left while a writer has one in hand", <-left)
			return
		}
		wait := g.turn(dl)
		if wait <= 0 {
			t.Fatal("it is sent to the dlq after the end")
		}
		g.putAside(dl, wait)
		g.count(-1)
		if n := <-left; n != 1 {
			t.Errorf("%d are left, want 1", n)
		}
	})
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
