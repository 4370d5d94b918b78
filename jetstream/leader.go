package jetstream

import (
	"time"

	"github.com/nats-io/nats.go"
)

// ledAnew is told that another server leads the durable, or soon will. What was on its way to the one before may be lost, acks and what keeps
// leases alive too, and nothing else tells of that; and the new one knows of no pin.
func (s *Source) ledAnew(now time.Time) {
	s.before = s.most
	for _, l := range s.lanes {
		s.uncoverAll(l)
	}
	s.unsettled()
	s.keepAll = true
	s.askAnew(now, true)
}

// electedSubject is where that is told.
func (s *Source) electedSubject() string {
	return "$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED." + s.cfg.Stream + "." + s.cfg.Durable
}

// elected takes the advisory that a server was elected to lead the durable. It comes before that one delivers anything (nats-server
// jetstream_cluster.go, processConsumerLeaderChange), also to who has no pull request waiting.
func (s *Source) elected(*nats.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bound != nil {
		s.ledAnew(time.Now())
	}
}

// leaderChanged is told, by a look, that another server leads the durable: it may not know of the requests that came with acks, which tell nothing.
func (s *Source) leaderChanged(now time.Time) {
	for _, l := range s.lanes {
		if l.exchange && l.open > 0 && !l.doubted {
			l.doubted, l.doubtedAt = true, now
		}
	}
}
