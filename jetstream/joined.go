package jetstream

import "sync"

// joined are goroutines of which more may be started while their end is waited for, unlike those of a sync.WaitGroup.
type joined struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when none is left; nil: nobody waits for that
}

// Go runs f in a goroutine.
func (j *joined) Go(f func()) {
	j.mu.Lock()
	j.n++
	j.mu.Unlock()
	go func() {
		defer j.left()
		f()
	}()
}

func (j *joined) left() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.n--; j.n == 0 && j.none != nil {
		close(j.none)
		j.none = nil
	}
}

// Wait returns once none is left.
func (j *joined) Wait() {
	j.mu.Lock()
	if j.n == 0 {
		j.mu.Unlock()
		return
	}
	if j.none == nil {
		j.none = make(chan struct{})
	}
	none := j.none
	j.mu.Unlock()
	<-none
}
