package admin

import (
	"context"
	"net/http"
	"sync"
)

// jobs are the requests of one kind that take long. They are bounded, and end when the sidecar stops. The zero value is ready.
type jobs struct {
	mu      sync.Mutex
	stopped bool
	last    int
	running map[int]context.CancelFunc
	none    chan struct{} // closed when the last one ended after the stop
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
	return job, func() {
		cancel()
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(j.running, id)
		if j.stopped && len(j.running) == 0 {
			close(j.none)
		}
	}, true
}

// stop ends all jobs; none begins any more. Doing so again does nothing.
func (j *jobs) stop() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.stopped {
		return
	}
	j.stopped, j.none = true, make(chan struct{})
	if len(j.running) == 0 {
		close(j.none)
	}
	for _, cancel := range j.running {
		cancel()
	}
}

// idle is closed when all jobs have ended after the stop.
func (j *jobs) idle() <-chan struct{} {
	j.stop()
	return j.none
}

// begin starts the job of a request, as jobs.begin does. Until it ends the connection makes way for none.
func (s *Server) begin(j *jobs, r *http.Request, most int) (job context.Context, end func(), ok bool) {
	job, last, ok := j.begin(r.Context(), most)
	if !ok {
		return nil, nil, false
	}
	s.open.busy(r.Context())
	return job, func() { s.open.asked(r.Context()); last() }, true
}
