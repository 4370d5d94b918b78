package main

import (
	"bufio"
	"fmt"
	"io"
	"sync/atomic"
)

// screenLines is how many lines may wait to be written. Lines that come faster are counted only: whoever has one must
// never wait for a terminal.
const screenLines = 4096

// screen writes lines.
type screen struct {
	lines   chan string
	lost    atomic.Int64
	ending  chan struct{}
	written chan struct{} // closed when everything is written
}

// newScreen starts to write to w. broken is called when w takes no more.
func newScreen(w io.Writer, broken func()) *screen {
	s := &screen{lines: make(chan string, screenLines), ending: make(chan struct{}), written: make(chan struct{})}
	go s.run(w, broken)
	return s
}

// line shows a line. It never waits. What comes after close is not shown.
func (s *screen) line(text string) {
	select {
	case s.lines <- text:
	default:
		s.lost.Add(1)
	}
}

// close waits until all lines are written.
func (s *screen) close() {
	close(s.ending)
	<-s.written
}

func (s *screen) run(w io.Writer, broken func()) {
	defer close(s.written)
	out := bufio.NewWriter(w)
	for {
		select {
		case text := <-s.lines:
			s.write(out, text, broken)
		case <-s.ending:
			for len(s.lines) > 0 {
				s.write(out, <-s.lines, broken)
			}
			return
		}
	}
}

// write writes a line, and flushes it unless more are waiting.
func (s *screen) write(out *bufio.Writer, text string, broken func()) {
	out.WriteString(text + "\n")
	if n := s.lost.Swap(0); n > 0 {
		fmt.Fprintf(out, "(%d lines are not shown: they came faster than they could be written)\n", n)
	}
	if len(s.lines) == 0 && out.Flush() != nil {
		broken()
	}
}
