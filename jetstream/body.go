package jetstream

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"
)

var (
	errNotStored  = errors.New("the stream has the message no more")
	errUnreadable = errors.New("the user may not read the stream")
)

// bodyReads is how many messages are read from the stream at a time.
const bodyReads = 16

// completeAll gives the messages that came without their body what the stream has of them, until ctx ends.
func (s *Source) completeAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.incomplete:
		}
		for some := s.firstDoubted(); len(some) > 0; some = s.firstDoubted() {
			if rest := s.completeSome(ctx, some); rest > 0 && !sleep(ctx, rest) {
				return
			}
		}
	}
}

// completeSome reads messages at the same time, and offers them in the order in which they came. It returns how long to wait if some are not settled.
func (s *Source) completeSome(ctx context.Context, some []*Message) (rest time.Duration) {
	stored, errs := make([]*Message, len(some)), make([]error, len(some))
	var reading sync.WaitGroup
	for i, m := range some {
		reading.Go(func() { stored[i], errs[i] = s.readBody(ctx, m) })
	}
	reading.Wait()
	for i, m := range some {
		switch {
		case s.completed(m, stored[i], errs[i]):
		case errors.Is(errs[i], errUnreadable):
			rest = infoEvery
		default:
			rest = max(rest, lookPause)
		}
	}
	return rest
}

// sleep reports whether ctx lasted so long.
func sleep(ctx context.Context, d time.Duration) bool {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wait.C:
		return true
	}
}

// firstDoubted are the first messages that may lack their body, and stay among them: as many as may be read at a time. Their bodies fit into what may
// be leased, but for one.
func (s *Source) firstDoubted() []*Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bodiless = slices.DeleteFunc(s.bodiless, func(m *Message) bool { return m.released.Load() })
	free := s.cfg.MaxBytes - s.lentBytes - s.bytes
	n := 0
	for n < min(len(s.bodiless), bodyReads) {
		if free -= s.leftOut(s.bodiless[n]); free < 0 && n > 0 {
			break
		}
		n++
	}
	return slices.Clone(s.bodiless[:n])
}

// leftOut is how large the body is at most that the server left out of a message.
func (s *Source) leftOut(m *Message) int64 {
	most := s.conn.mostPayload()
	if size := m.Header[msgSizeHeader]; len(size) > 0 { // the server's own is the last, a publisher's that of an empty body
		if n, err := strconv.ParseInt(size[len(size)-1], 10, 64); err == nil && n >= 0 {
			return min(n, most)
		}
	}
	return most
}

// completed is told what the stream has of a message that was in doubt. It reports whether that is settled: the message is offered, or comes again.
func (s *Source) completed(m *Message, stored *Message, err error) bool {
	switch {
	case errors.Is(err, errStrange):
		s.due.sayStrange(m, strange, err)
	case err != nil && !errors.Is(err, errNotStored):
		s.sayUnread(err)
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.bodiless, m)
	if i < 0 {
		return true // it was taken, to be handed back
	}
	s.bodiless = slices.Delete(s.bodiless, i, i+1)
	switch {
	case m.released.Load():
	case errors.Is(err, errStrange):
		s.decide(m, nak(strangeFor), time.Now())
	case err != nil, !s.hasRoom(m, stored.size):
		s.putOff(m)
	default:
		s.fill(m, stored)
		s.offer(m)
	}
	return true
}

// hasRoom reports whether the body of a message may be held too. One that is delivered no more always may, and one that is alone.
func (s *Source) hasRoom(m *Message, body int64) bool {
	return s.bytes+body <= s.cfg.MaxBytes-s.lentBytes || len(s.leases) == 1 || s.isLast(m)
}

// putOff hands a message back for later.
func (s *Source) putOff(m *Message) {
	s.decide(m, nak(crowdedFor/2+rand.N(crowdedFor/2)), time.Now())
}

// readBody reads a message from the stream, by its leader.
func (s *Source) readBody(ctx context.Context, m *Message) (*Message, error) {
	if s.readDenied() {
		return nil, errUnreadable
	}
	read := s.Stored
	if s.due != nil {
		read = s.due.sealed
	}
	stored, err := read(ctx, m.lease)
	switch {
	case err != nil && s.readDenied():
		return nil, errUnreadable
	case err != nil:
		return nil, err
	case stored == nil || stored.Sequence != m.Sequence || !stored.StreamCreated.Equal(m.StreamCreated) || !stored.Stored.Equal(m.Stored):
		return nil, errNotStored
	}
	return stored, nil
}

// readDenied reports whether the server refused to let the user read messages of the stream.
func (s *Source) readDenied() bool {
	return s.conn.denied(s.conn.prefix + "STREAM.MSG.GET." + s.cfg.Stream)
}

func (s *Source) sayUnread(err error) {
	if errors.Is(err, ErrNotConnected) || errors.Is(err, context.Canceled) {
		return
	}
	s.conn.complain("body "+s.cfg.Stream+" "+s.cfg.Durable+" "+err.Error(), "a message that may have come without its body cannot be read from the stream, it waits",
		slog.String("stream", s.cfg.Stream), slog.String("consumer", s.cfg.Durable), slog.String("error", oneLine(err.Error(), 300)))
}

// fill makes a message what is stored.
func (s *Source) fill(m, stored *Message) {
	m.lacking = false
	if m.released.Load() {
		return
	}
	m.Header, m.HeaderLost, m.Body = stored.Header, stored.HeaderLost, stored.Body
	if m.keyed != nil { // by what its header says now
		for _, other := range s.unfile(m) {
			s.offerNext(other)
		}
		s.file(m)
	}
	m.size += stored.size
	s.bytes += stored.size
}

// completeBody does as much for a message that is worked on at a stop, or moved, all the same. It returns an error if that cannot be done now.
func (s *Source) completeBody(ctx context.Context, m *Message) error {
	s.mu.Lock()
	lacking := m.lacking
	s.mu.Unlock()
	if !lacking {
		return nil
	}
	stored, err := s.readBody(ctx, m)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fill(m, stored)
	return nil
}

// resumes reports whether a message of TakeReady is whole. One that is not comes from there again, after a while, if the stream has it.
func (s *Source) resumes(ctx context.Context, m *Message) bool {
	err := s.completeBody(ctx, m)
	switch {
	case err == nil:
		return true
	case errors.Is(err, errNotStored), errors.Is(err, errStrange):
		s.settle(m, handBack)
	default:
		s.sayUnread(err)
		s.Requeue(m)
		sleep(ctx, retryTick)
	}
	return false
}
