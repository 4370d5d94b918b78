package pipeline

import (
	"sync"
	"time"
)

// seldomEvery is the shortest time between two lines that say the same of one message and another.
const seldomEvery = 30 * time.Second

// seldom keeps a line that every message could cause from filling the log.
type seldom struct {
	mu   sync.Mutex // a leaf
	last time.Time
}

// now reports whether the line is due, and counts it as logged then.
func (s *seldom) now() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.last.IsZero() && time.Since(s.last) < seldomEvery {
		return false
	}
	s.last = time.Now()
	return true
}
