package admin

import (
	"context"
	"sync"
)

// jobs are the requests that take long: event streams and replays. They are bounded, and end when the sidecar stops. The zero
// value is ready.
type jobs struct {
	mu      sync.Mutex
	stopped bool
	last    int
	running map[int]context.CancelFunc
	all     sync.WaitGroup
}

// begin starts a job if fewer than most run. The returned context ends with ctx, and at the stop; end must be called.
func (j *jobs) begin(ctx context.Context, most int) (job context.Context, end func(), ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.stopped || len(j.running) >= most {
		return nil, nil, false
	}
	job, cancel := context.WithCancel(ctx)
	if j.running == nil {
		j.running = map[int]context.CancelFunc{}
	}
	j.last++
	id := j.last
	j.running[id] = cancel
	j.all.Add(1)
	return job, func() {
		cancel()
		j.mu.Lock()
		delete(j.running, id)
		j.mu.Unlock()
		j.all.Done()
	}, true
}

// stop ends all jobs; none begins any more.
func (j *jobs) stop() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stopped = true
	for _, cancel := range j.running {
		cancel()
	}
}

// wait waits until all have ended.
func (j *jobs) wait() { j.all.Wait() }
