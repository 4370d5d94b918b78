package jetstream

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"
)

var (
	errNotStored  = errors.New("the stream has the message no more")
	errUnreadable = errors.New("the user may not read the stream")
)

// completeAll gives the messages that came without their body what the stream has of them, one after the other, until ctx ends.
func (s *Source) completeAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.incomplete:
		}
		for m := s.firstDoubted(); m != nil; m = s.firstDoubted() {
			stored, err := s.readBody(ctx, m)
			if s.completed(m, stored, err) {
				continue
			}
			rest := lookPause
			if errors.Is(err, errUnreadable) {
				rest = infoEvery
			}
			if !sleep(ctx, rest) {
				return
			}
		}
	}
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

// firstDoubted is the first message that may lack its body, and stays among them.
func (s *Source) firstDoubted() *Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.takeDoubted()
	if m != nil {
		s.bodiless = slices.Insert(s.bodiless, 0, m)
	}
	return m
}

// completed is told what the stream has of a message that was in doubt. It reports whether that is settled: the message is offered, or comes again.
func (s *Source) completed(m *Message, stored *Message, err error) bool {
	if err != nil && !errors.Is(err, errNotStored) {
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
	case err != nil, !s.hasRoom(m, len(stored.Body)):
		s.putOff(m)
	default:
		s.fill(m, stored)
		s.offer(m)
	}
	return true
}

// hasRoom reports whether the body of a message may be held too. One that is delivered no more always may, and one that is alone.
func (s *Source) hasRoom(m *Message, body int) bool {
	return s.bytes+int64(body) <= s.cfg.MaxBytes-s.lentBytes || len(s.leases) == 1 || s.isLast(m)
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
	stored, err := s.Stored(ctx, m.Sequence)
	switch {
	case err != nil && s.readDenied():
		return nil, errUnreadable
	case err != nil:
		return nil, err
	case stored == nil || !stored.Stored.Equal(m.Stored):
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
	m.size += int64(len(m.Body))
	s.bytes += int64(len(m.Body))
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
	case errors.Is(err, errNotStored):
		s.settle(m, handBack)
	default:
		s.sayUnread(err)
		s.Requeue(m)
		sleep(ctx, retryTick)
	}
	return false
}
