package jetstream

import (
	"log/slog"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// msgSizeHeader says how large the body is that the server left out.
const msgSizeHeader = "Nats-Msg-Size"

// mayLackBody reports whether the server may have left out the body of a message: the durable was edited to deliver headers only. A publisher
// can have set the header too, so the durable is asked.
func mayLackBody(m *Message) bool {
	size := m.Header[msgSizeHeader]
	return len(m.Body) == 0 && len(size) > 0 && size[len(size)-1] != "0"
}

// doubtBody keeps a message from the workers until it is known that nothing of it was left out.
func (s *Source) doubtBody(m *Message) {
	s.bodiless = append(s.bodiless, m)
	s.suspect, s.doubtedAt = true, time.Now()
	s.wake()
}

// settleBodies is told what the server says of the durable: whether what may lack its body does. That is handed back; nothing more is pulled then.
func (s *Source) settleBodies(info *natsjs.ConsumerInfo, asked time.Time) {
	later := s.bodiless[:0]
	for _, m := range s.bodiless {
		switch {
		case m.released.Load():
		case info.Config.HeadersOnly:
			s.decide(m, handBack, time.Now())
		case m.arrivedAt.After(asked):
			later = append(later, m)
		default:
			s.offer(m)
		}
	}
	clear(s.bodiless[len(later):])
	s.bodiless = later
}

// sayRefused says once that the durable, edited meanwhile, cannot be served any more, and when it can again.
func (s *Source) sayRefused(before string) {
	switch {
	case s.refused == before:
	case s.refused != "":
		s.log.Error("the durable was changed and cannot be served any more, waiting", slog.String("error", s.refused))
	default:
		s.log.Info("the durable can be served again")
	}
}
