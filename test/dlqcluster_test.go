package test

import (
	"sync"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

// Where there are three copies of everything, of which some lag behind, two replays at once deliver no entry twice either.
func TestReplaysInACluster(t *testing.T) {
	t.Parallel()
	c := localnats.RunCluster(t, 3)
	w := worldAt(t, c.URLs()...)
	w.makeStream(func(c *natsjs.StreamConfig) { c.Replicas = 3 })
	w.dlqOf(func(c *natsjs.StreamConfig) { c.Replicas, c.AllowDirect = 3, true })
	for n := range 60 {
		w.buryOne(letter(n + 1))
	}
	var runs sync.WaitGroup
	for range 2 {
		runs.Go(func() {
			if s := w.dlq("replay", "--rate", "0", "--concurrency", "2", "--yes"); s.code != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
	runs.Wait()
	w.eachOnce(60)
	if left := w.list(); len(left) != 0 {
		t.Errorf("%d left", len(left))
	}
	if info := w.streamInfo("KV_sidecar-state"); info == nil || info.Config.Replicas != 3 {
		t.Errorf("the claims have not as many copies as the source stream: %+v", info)
	}
}
