package jetstream

import (
	"context"
	"sync"
	"time"
)

// togetherLooked is how many messages of a batch are looked up in the retry stream at a time.
const togetherLooked = 16

// NextBatch waits for messages to work on, as Next does, and appends them to dst: as many as the batch may hold. One that is not
// full waits for more, not longer than it may, and only while more can come. It returns none when ctx ends. It is called by one
// goroutine at a time.
func (s *Source) NextBatch(ctx context.Context, c BatchConfig, dst []*Message) []*Message {
	for ctx.Err() == nil {
		batch := s.fillBatch(ctx, c, dst)
		if batch = s.beginAll(ctx, batch); len(batch) > len(dst) {
			return batch
		}
	}
	return dst
}

// fillBatch takes what a batch may hold.
func (s *Source) fillBatch(ctx context.Context, c BatchConfig, dst []*Message) []*Message {
	var bytes int64
	var full *time.Timer
	var whole <-chan time.Time
	defer func() {
		if full != nil {
			full.Stop()
		}
	}()
	for first := len(dst); len(dst)-first < c.MaxMessages; {
		m := s.takeNow()
		if m == nil {
			switch {
			case len(dst) == first: // not begun
			case c.MaxWait <= 0 || !s.mayBring():
				return dst
			case full == nil:
				full = time.NewTimer(c.MaxWait)
				whole = full.C
			}
			if m = s.await(ctx, whole); m == nil {
				return dst
			}
		}
		if len(dst) > first && bytes+m.size > c.MaxBytes {
			s.left.Store(m)
			return dst
		}
		dst = append(dst, m)
		bytes += m.size
	}
	return dst
}

// takeNow is a message that is there; nil if none is.
func (s *Source) takeNow() *Message {
	if s.left.Load() != nil {
		if m := s.left.Swap(nil); m != nil {
			return m
		}
	}
	select {
	case m := <-s.ready:
		return m
	default:
	}
	if s.retries == nil {
		return nil
	}
	select {
	case m := <-s.retries.source.ready:
		return m
	default:
		return nil
	}
}

// await waits for a message, until whole or the end of ctx.
func (s *Source) await(ctx context.Context, whole <-chan time.Time) *Message {
	var due chan *Message
	if s.retries != nil {
		due = s.retries.source.ready
	}
	select {
	case m := <-s.ready:
		return m
	case m := <-due:
		return m
	case <-whole:
	case <-ctx.Done():
	}
	return nil
}

// mayBring reports whether messages can come soon: one came just now, they are asked for, or leases are about to end. Nothing was ready:
// what was not worth a request while there was is asked for now.
func (s *Source) mayBring() bool {
	due := s.retries != nil && s.retries.source.mayBring()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bound == nil || s.stopped || s.pulling == PullNothing {
		return due
	}
	s.refill()
	coming, _ := s.expected()
	return due || len(s.ready) > 0 || coming > 0 || len(s.settling) > 0
}

// beginAll marks messages as worked on, as Next does, and returns those that are to be.
func (s *Source) beginAll(ctx context.Context, batch []*Message) []*Message {
	begun := batch[:0]
	for len(batch) > 0 {
		of := batch[0].source
		n := 1
		for n < len(batch) && batch[n].source == of {
			n++
		}
		begun = of.beginMany(batch[:n], begun)
		batch = batch[n:]
	}
	if s.retries == nil {
		return begun
	}
	return s.retries.notSuperseded(ctx, begun)
}

// beginMany appends to begun those of the messages, all of this source, that are begun.
func (s *Source) beginMany(batch, begun []*Message) []*Message {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heedSilence(now)
	for _, m := range batch {
		switch {
		case m.released.Load():
		case s.expired(m, now):
			s.release(m)
		default:
			m.started = true
			begun = append(begun, m)
		}
	}
	s.refill()
	return begun
}

// notSuperseded drops the deliveries that are superseded. Those that must be asked for are asked for several at a time.
func (r *retries) notSuperseded(ctx context.Context, batch []*Message) []*Message {
	if r.empty.Load() || r.main.conn.olderThan(2, 12) {
		return batch
	}
	var gone sync.Map
	var asking sync.WaitGroup
	slots := make(chan struct{}, togetherLooked)
	for _, m := range batch {
		if m.source == r.main && !r.main.again(m) {
			continue
		}
		slots <- struct{}{}
		asking.Go(func() {
			if r.superseded(ctx, m) {
				gone.Store(m, nil)
			}
			<-slots
		})
	}
	asking.Wait()
	kept := batch[:0]
	for _, m := range batch {
		if _, yes := gone.Load(m); !yes {
			kept = append(kept, m)
		}
	}
	return kept
}
