package jetstream

import (
	"log/slog"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// msgSizeHeader says how large the body is that the server left out.
const msgSizeHeader = "Nats-Msg-Size"

// mayLackBody reports whether the server may have left out the body of a message: the durable was edited to deliver headers only. A publisher
// can have set the header too, so the stream is asked. Where the headers cannot be parsed it is not known whether that one is among them.
func mayLackBody(m *Message) bool {
	size := m.Header[msgSizeHeader]
	return len(m.Body) == 0 && (m.HeaderLost || len(size) > 0 && size[len(size)-1] != "0")
}

// offerWhole offers a message, once it is known that nothing of it was left out.
func (s *Source) offerWhole(m *Message) {
	switch {
	case m.unfit != "":
		s.decide(m, m.unfit, time.Now())
	case m.lacking, s.due == nil && mayLackBody(m):
		s.doubtBody(m)
	default:
		s.offer(m)
	}
}

// doubtBody keeps a message from the workers until its body is read from the stream: see completeAll. What the durable says of itself is no proof
// of how it was when it sent the message.
func (s *Source) doubtBody(m *Message) {
	m.lacking = true
	s.bodiless = append(s.bodiless, m)
	s.lookNow()
	select {
	case s.incomplete <- struct{}{}:
	default:
	}
}

// requeueDoubted is doubtBody for a message of takeDoubted. It reports whether it is one.
func (s *Source) requeueDoubted(m *Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.lacking && !m.released.Load() {
		s.doubtBody(m)
		return true
	}
	return false
}

// takeDoubted returns a message that is kept so, or nil if there is none.
func (s *Source) takeDoubted() *Message {
	for len(s.bodiless) > 0 {
		m := s.bodiless[0]
		s.bodiless = s.bodiless[1:]
		if !m.released.Load() {
			return m
		}
	}
	return nil
}

// settleBodies is told what the server says of the durable: where the user may not read the stream that has to do. What it says may not be true of
// the time when a message was sent, so only what comes once more without a body is taken to have none. The last delivery of a message whose body
// was left out waits until the user may read it.
func (s *Source) settleBodies(info *natsjs.ConsumerInfo, asked time.Time) {
	if len(s.bodiless) == 0 || !s.readDenied() {
		return
	}
	doubted := s.bodiless
	s.bodiless = nil
	for _, m := range doubted {
		last := s.isLast(m)
		switch {
		case m.released.Load():
		case m.arrivedAt.After(asked), last && (info.Config.HeadersOnly || s.due != nil):
			s.bodiless = append(s.bodiless, m)
		case info.Config.HeadersOnly, s.due != nil:
			s.putOff(m)
		case !last && !s.twiceEmpty(m):
			s.putOff(m)
		default:
			m.lacking = false
			s.offer(m)
		}
	}
}

// mostEmpty bounds how many messages are remembered to have come without a body. One that is forgotten is put off once more.
const mostEmpty = 10000

// twiceEmpty reports whether a message came without a body before, from a durable that said that it leaves out none. If not, that is remembered.
func (s *Source) twiceEmpty(m *Message) bool {
	if _, twice := s.empty[m.lease]; twice {
		delete(s.empty, m.lease)
		return true
	}
	for other := range s.empty {
		if len(s.empty) < mostEmpty {
			break
		}
		delete(s.empty, other)
	}
	s.empty[m.lease] = struct{}{}
	return false
}

// heedRefusal is told that the durable was looked at, and why it was refused before. One that was edited so that it cannot be served is not pulled
// from any more, by the requests that wait there neither. That is said once, and so is when it can be served again.
func (s *Source) heedRefusal(before string) {
	switch {
	case s.refused == before:
	case s.refused != "":
		s.log.Error("the durable was changed and cannot be served any more, waiting", slog.String("error", s.refused))
	default:
		s.log.Info("the durable can be served again")
	}
	if s.refused != "" && before == "" {
		s.retireLanes()
	}
}
