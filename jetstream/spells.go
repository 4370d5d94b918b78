package jetstream

import (
	"sync"
	"time"
)

const (
	// spellsTold is how many times within spellsIn it is told that something went, and that it came back.
	spellsTold = 3
	spellsIn   = time.Minute
)

// spells limits what the log tells of something that comes and goes: beyond a few times in a minute it is told once in quietFor how often it went.
// The zero value is ready.
type spells struct {
	mu      sync.Mutex
	begun   []time.Time // the latest
	untold  int
	pending *time.Timer // tells of them
}

// begin notes that it went. It reports whether that is to be told; if not, tell is called later with the number of times since.
func (s *spells) begin(tell func(times int)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	often := len(s.begun) == spellsTold && now.Sub(s.begun[0]) < spellsIn
	if s.begun = append(s.begun, now); len(s.begun) > spellsTold {
		s.begun = s.begun[1:]
	}
	if s.pending == nil && !often {
		return true
	}
	s.untold++
	if s.pending == nil {
		s.pending = time.AfterFunc(quietFor, func() { s.sum(tell) })
	}
	return false
}

func (s *spells) sum(tell func(times int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending == nil {
		return
	}
	tell(s.untold)
	s.untold, s.pending = 0, nil
}

// told reports whether what belongs to the present spell is to be told by itself: not if tell is to be called.
func (s *spells) told() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending == nil
}

// end drops what is not told yet. No tell is under way after it.
func (s *spells) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending != nil {
		s.pending.Stop()
		s.pending = nil
	}
}
