package dlq

import (
	"log/slog"
	"slices"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

// New makes a service. It asks nothing of the server.
func New(o Options) *Service {
	s := &Service{conn: o.Conn, app: o.App, log: o.Log}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	for _, c := range o.Consumers {
		if !c.DLQ.Enabled {
			continue
		}
		s.consumers = append(s.consumers, c)
		s.streams = append(s.streams, jetstream.DeadLetterStream(c.DLQ, c.Stream, c.Durable))
	}
	slices.Sort(s.streams)
	s.streams = slices.Compact(s.streams)
	return s
}
