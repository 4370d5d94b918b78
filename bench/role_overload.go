package main

import (
	"math"
	"net/http"
	"sync"
	"time"
)

// What an app does that has more requests at a time than it can take.
const (
	refuses = "answers 503"
	slows   = "is slower than linear"
	waits   = "lets them wait"
	dies    = "is away for 1s"
)

// deathTime is how long a dead app is away.
const deathTime = time.Second

// capacity is what an app can take.
type capacity struct {
	most   int // requests at a time; 0: any
	beyond string

	mu       sync.Mutex
	inFlight int
	workers  chan struct{}
	died     chan struct{} // closed when it dies
	back     time.Time
}

func newCapacity(most int, beyond string) *capacity {
	return &capacity{most: most, beyond: beyond, workers: make(chan struct{}, max(most, 1)), died: make(chan struct{})}
}

// work takes as long as a request does, and reports whether it may be answered 200. It panics to break the connection.
func (c *capacity) work(delay time.Duration) bool {
	if c.most == 0 {
		time.Sleep(delay)
		return true
	}
	n, died := c.come()
	defer c.leave()
	switch {
	case died == nil:
		panic(http.ErrAbortHandler)
	case c.beyond == waits:
		c.workers <- struct{}{}
		defer func() { <-c.workers }()
	case n > c.most && c.beyond == refuses:
		return false
	case n > c.most && c.beyond == slows:
		delay = time.Duration(float64(delay) * math.Pow(float64(n)/float64(c.most), 2))
	}
	select {
	case <-died:
		panic(http.ErrAbortHandler)
	case <-time.After(delay):
		return true
	}
}

// come returns how many requests there are, and a channel that is closed when the app dies; nil if it is dead.
func (c *capacity) come() (int, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight++
	switch now := time.Now(); {
	case c.beyond != dies:
	case now.Before(c.back):
		return c.inFlight, nil
	case c.inFlight > c.most:
		close(c.died)
		c.died, c.back = make(chan struct{}), now.Add(deathTime)
		return c.inFlight, nil
	}
	return c.inFlight, c.died
}

func (c *capacity) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight--
}
