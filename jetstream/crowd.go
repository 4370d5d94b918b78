package jetstream

import (
	"fmt"
	"log/slog"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// fewWaiting is a max_waiting that a few sidecars can fill.
const fewWaiting = 16

// leaveRoom is told what the server says of the durable. Where no more pull requests may wait there, a source that it is not pinned to takes its own
// away: the server refuses those of the pinned client then, without a word as they have a heartbeat (nats-server consumer.go, processNextMsgRequest),
// and delivers nothing. It asks again once the durable is pinned to nobody, which each look tells, and not before:
// several of them would fill what is free again.
func (s *Source) leaveRoom(info *natsjs.ConsumerInfo, now time.Time) {
	full := info.Config.MaxWaiting > 0 && info.NumWaiting >= info.Config.MaxWaiting
	switch {
	case pinned(info.Config) == "" || pinnedTo(info) == "":
		s.makesWay = false
	case s.pin.id != "":
		s.makesWay = false
		if coming, _ := s.expected(); full && coming > 0 && info.NumPending > 0 && now.Sub(s.heard) >= 2*silence {
			s.sayCrowded("no pull request of this sidecar finds room at the durable, which is pinned to it: nothing comes", info)
		}
	case full && !s.makesWay:
		s.makesWay = true
		s.retireLanes()
		s.sayCrowded("no more pull requests may wait at the durable: this sidecar leaves room for the one that the durable is pinned to", info)
	}
}

func (s *Source) sayCrowded(what string, info *natsjs.ConsumerInfo) {
	s.conn.complain("crowded "+s.cfg.Stream+" "+s.cfg.Durable, what,
		slog.String("stream", s.cfg.Stream), slog.String("consumer", s.cfg.Durable), slog.Int("max_waiting", info.Config.MaxWaiting))
}

// fewMayWait warns of a durable for one sidecar at a time at which few pull requests may wait, or is empty.
func fewMayWait(cfg ConsumerConfig, have natsjs.ConsumerConfig) string {
	if !cfg.Ordered && pinned(have) == "" || have.MaxWaiting <= 0 || have.MaxWaiting >= fewWaiting {
		return ""
	}
	return fmt.Sprintf("its max_waiting is %d: where as many pull requests of sidecars wait, the one that has its turn gets no messages for seconds", have.MaxWaiting)
}
