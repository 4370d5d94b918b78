package jetstream

import (
	"testing"
	"testing/synctest"
)

// One that is started while the end of another is waited for is waited for, too.
func TestJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j joined
		j.Wait() // for nothing
		first, second, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
		j.Go(func() { <-first })
		go func() { j.Wait(); close(over) }()
		synctest.Wait()
		j.Go(func() { <-second })
		close(first)
		synctest.Wait()
		select {
		case <-over:
			t.Error("the second one is not waited for")
		default:
		}
		close(second)
		<-over
	})
}
