package telemetry

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"
)

const (
	sinkSize   = 64 << 10               // bytes collected before they are written, and the most that wait
	flushEvery = 100 * time.Millisecond // the oldest line waits no longer
	stallLimit = time.Second            // the longest a log call waits for a sink that takes nothing
)

// sink collects lines and writes them to w in order, from one short-lived goroutine at a time: a caller never waits in
// w itself, and at most stallLimit for it. It is idle without lines. The zero value but for w is ready.
type sink struct {
	w    io.Writer
	json bool // how to report lost lines

	mu       sync.Mutex
	buf      []byte        // lines that wait
	spare    []byte        // the other buffer, when nothing is being written
	timer    *time.Timer   // writes buf when it is due
	writing  chan struct{} // closed when the write on its way is over; nil if there is none
	stalled  bool          // the write on its way takes longer than stallLimit
	lost     uint64        // lines dropped meanwhile, or by writes that failed
	closed   bool
	escaping []byte // scratch
}

// Write takes one line. It never fails: who logs can do nothing about it.
func (s *sink) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(line)
	if !clean(line) {
		s.escaping = appendClean(s.escaping[:0], line)
		line = s.escaping
	}
	for len(s.buf) > 0 && len(s.buf)+len(line) > sinkSize {
		if s.writing == nil {
			s.begin()
		} else if !s.wait() {
			s.lost++
			return n, nil
		}
	}
	s.buf = append(s.buf, line...)
	switch {
	case s.writing != nil: // its end looks at buf
	case s.closed:
		s.begin()
		s.wait()
	case s.timer == nil:
		s.timer = time.AfterFunc(flushEvery, s.due)
	case len(s.buf) == len(line):
		s.timer.Reset(flushEvery)
	}
	return n, nil
}

// flush writes what there is and waits for it, at most stallLimit.
func (s *sink) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writing != nil && !s.wait() {
		return
	}
	if s.writing == nil {
		s.begin()
	}
	s.wait()
}

// close writes what there is, and all that comes later at once.
func (s *sink) close() {
	s.mu.Lock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.flush()
}

func (s *sink) due() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writing == nil {
		s.begin()
	}
}

// begin starts to write buf. s.mu is held, and nothing is being written.
func (s *sink) begin() {
	if len(s.buf) == 0 {
		return
	}
	full := s.buf
	s.buf, s.spare = s.spare[:0], nil
	done := make(chan struct{})
	s.writing = done
	go s.write(full, done)
}

func (s *sink) write(full []byte, done chan struct{}) {
	n, err := s.w.Write(full)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spare, s.writing, s.stalled = full, nil, false
	if cap(full) > 2*sinkSize { // of one enormous line
		s.spare = nil
	}
	switch {
	case err != nil:
		s.lost += uint64(bytes.Count(full[n:], []byte("\n"))) // told when it works again
	case s.lost > 0:
		s.buf = s.appendLost(s.buf)
		s.lost = 0
	}
	close(done)
	switch {
	case len(s.buf) == 0:
	case s.closed:
		s.begin()
	default:
		s.timer.Reset(flushEvery)
	}
}

// wait waits until the write on its way is over and reports whether it is; at most stallLimit, and not at all if it
// is known to be stuck. s.mu is held, but not while it waits.
func (s *sink) wait() bool {
	done := s.writing
	if done == nil {
		return true
	}
	if s.stalled {
		return false
	}
	s.mu.Unlock()
	limit := time.NewTimer(stallLimit)
	over := true
	select {
	case <-done:
	case <-limit.C:
		over = false
	}
	limit.Stop()
	s.mu.Lock()
	if !over && s.writing == done {
		s.stalled = true
	}
	return over || s.writing != done
}

func (s *sink) appendLost(b []byte) []byte {
	now := time.Now().Format(time.RFC3339Nano)
	if s.json {
		return fmt.Appendf(b, `{"time":%q,"level":%q,"msg":"log lines were lost","count":%d}`+"\n", now, slog.LevelError, s.lost)
	}
	return fmt.Appendf(b, "time=%s level=%s msg=\"log lines were lost\" count=%d\n", now, slog.LevelError, s.lost)
}
