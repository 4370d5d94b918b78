package dlq

import (
	"cmp"
	"iter"
	"time"
)

// idleMost is how many entries a merge brings from other streams before it closes the reader of one that has to wait, for it not to keep a
// consumer and what that read ahead. It is opened again when its turn comes.
const idleMost = 4096

// source is one DLQ stream in a merge.
type source struct {
	name string
	// open reads the entries that come after a sequence.
	open func(after uint64) iter.Seq2[*Entry, error]
	// least is a time before which the next entry was not stored: that of the entry before, or of the first message of the stream.
	least time.Time
	after uint64 // sequence of the last entry that was read
	left  Passed // what the reader left out since that entry

	head   *Entry // the next entry; nil: it is not read yet
	passed Passed // what was left out before the head, or at the end
	next   func() (*Entry, error, bool)
	close  func() // nil: it is not open
	pulled int    // how many entries were brought when it was read last
	ended  bool
}

// merge brings the entries of all sources by the time they were stored, and of the same time by the name of the stream; those of one
// source in its own order. A source is opened when an entry of it can be the next. What is read of a source ahead is one entry. What was
// left out is added to passed with the entry of its source that comes after it, or when all have ended: so one page counts it, however the
// entries are cut into pages.
func merge(sources []*source, passed *Passed) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		defer func() {
			for _, s := range sources {
				s.park()
			}
		}()
		for brought := 0; ; {
			s := first(sources)
			if s == nil {
				for _, s := range sources {
					passed.Add(&s.passed)
				}
				return
			}
			if s.head == nil {
				if err := s.pull(brought); err != nil {
					yield(nil, err)
					return
				}
				continue
			}
			e := s.head
			s.head = nil
			passed.Add(&s.passed)
			if brought++; !yield(e, nil) {
				return
			}
			if brought%idleMost == 0 {
				parkIdle(sources, brought)
			}
		}
	}
}

// first is the source whose turn it is; nil if all have ended.
func first(sources []*source) (best *source) {
	for _, s := range sources {
		if !s.ended && (best == nil || cmp.Or(s.least.Compare(best.least), cmp.Compare(s.name, best.name)) < 0) {
			best = s
		}
	}
	return best
}

// pull reads the next entry.
func (s *source) pull(brought int) error {
	if s.close == nil {
		s.next, s.close = iter.Pull2(s.open(s.after))
	}
	s.pulled = brought
	e, err, ok := s.next()
	if err != nil {
		return err
	}
	s.passed, s.left = s.left, Passed{}
	if !ok {
		s.ended = true
		s.park()
		return nil
	}
	s.head, s.least, s.after = e, e.Time, e.Seq
	return nil
}

// park closes the reader. What was read stays.
func (s *source) park() {
	if s.close != nil {
		s.close()
		s.close = nil
	}
}

// parkIdle closes the readers of sources that wait for long.
func parkIdle(sources []*source, brought int) {
	for _, s := range sources {
		if s.head != nil && brought-s.pulled >= idleMost {
			s.park()
		}
	}
}
