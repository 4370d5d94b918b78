package main

import (
	"maps"
	"sync"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/pipeline"
	"github.com/jetsidecar/jetsidecar/policy"
)

// ledger counts what was published and what became of it.
type ledger struct {
	mu    sync.Mutex
	c     counts
	open  map[uint64]uint64   // published here and not settled: sequence, and that of the message it repeats or 0
	early map[uint64]struct{} // settled, and not known yet to be published here
	next  uint64              // what the message that is being published repeats, or 0
	last  uint64              // sequence of the last one published here
	ended bool                // no more will be published here
	done  chan struct{}       // closed when ended and nothing is open
}

// counts is a copy of a ledger.
type counts struct {
	published  int // by this process
	repeated   int // of those, with an id that was used before
	held       int // of those, held back by the stream's own duplicate window
	others     int // settled and not published by this process: by hand, or left from an earlier run
	waiting    int // published by this process and not settled
	deliveries int // settled deliveries, retries included
	results    map[pipeline.Result]int
	reasons    map[policy.Reason]int // of dead letters

	requests int
	busy     time.Duration // of all requests
	slowest  time.Duration
}

func newLedger() *ledger {
	return &ledger{
		c:    counts{results: make(map[pipeline.Result]int), reasons: make(map[policy.Reason]int)},
		open: make(map[uint64]uint64), early: make(map[uint64]struct{}), done: make(chan struct{}),
	}
}

// publishing notes that a message is on its way to the stream; of is the sequence of the one it repeats, 0 if none. It
// may be settled before the stream's confirmation is seen.
func (l *ledger) publishing(of uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = of
}

// published notes that the stream confirmed that message; held is whether it held it back. Calls come in the order of
// the sequences.
func (l *ledger) published(sequence uint64, held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.next
	l.next = 0
	l.c.published++
	if of != 0 {
		l.c.repeated++
	}
	if held {
		l.c.held++
		return
	}
	l.last = sequence
	for s := range l.early {
		if s < sequence {
			delete(l.early, s)
			l.c.others++
		}
	}
	if _, ok := l.early[sequence]; ok {
		delete(l.early, sequence)
		return
	}
	l.open[sequence] = of
}

// publishedAll notes that nothing more will be published.
func (l *ledger) publishedAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.c.others += len(l.early)
	clear(l.early)
	l.look()
}

// settled notes a settled delivery, and returns the sequence of the message that this one repeats, 0 if none is known.
func (l *ledger) settled(s *pipeline.Settled) (of uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.c.deliveries++
	l.c.results[s.Result]++
	if s.Result == pipeline.ResultDLQ {
		l.c.reasons[s.Reason]++
	}
	if s.Result == pipeline.ResultRetry { // not its end
		return l.open[s.Sequence]
	}
	of, ours := l.open[s.Sequence]
	switch {
	case ours:
		delete(l.open, s.Sequence)
	case l.ended:
		l.c.others++
	default:
		l.early[s.Sequence] = struct{}{}
		if s.Sequence > l.last {
			of = l.next
		}
	}
	l.look()
	return of
}

// look ends the waiting for the last message. l.mu is held.
func (l *ledger) look() {
	if !l.ended || len(l.open) > 0 {
		return
	}
	select {
	case <-l.done:
	default:
		close(l.done)
	}
}

// requested notes a request to the app.
func (l *ledger) requested(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.c.requests++
	l.c.busy += d
	l.c.slowest = max(l.c.slowest, d)
}

// counts is a copy.
func (l *ledger) counts() counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.c
	c.others += len(l.early)
	c.waiting = len(l.open)
	c.results, c.reasons = maps.Clone(c.results), maps.Clone(c.reasons)
	return c
}

// ended is how many messages came to their end.
func (c counts) ended() int {
	return c.results[pipeline.ResultAck] + c.results[pipeline.ResultDrop] + c.results[pipeline.ResultDuplicate] + c.results[pipeline.ResultDLQ]
}
