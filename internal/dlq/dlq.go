// Package dlq answers what is in the dead letter queues, and does with it what an operator asks: look, count, remove, replay.
// The command line and the admin listener use it alike.
//
// An entry that is stored in two parts is one entry here; it is named by the sequence of its first part. Messages of a DLQ
// stream that are no dead letters are never selected: Get alone shows them. A DLQ stream can be shared with consumers that are not in
// the configuration: their entries are selected only where a filter names the consumer.
package dlq

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/jetsidecar/jetsidecar/forward"
	"github.com/jetsidecar/jetsidecar/jetstream"
	"github.com/jetsidecar/jetsidecar/policy"
)

// Errors a caller can tell apart with errors.Is.
var (
	// ErrNotFound means that there is no such entry, or that its stream is none of the configured DLQ streams.
	ErrNotFound = errors.New("no such entry")
	// ErrAppAway means that a replay ended because the app cannot be connected to. What was not tried stays as it was.
	ErrAppAway = errors.New("the app cannot be connected to")
	// ErrAnew means that a DLQ stream is another one, of the same name, than that of which entries were selected.
	ErrAnew = errors.New("the DLQ stream was made anew since the entries were selected, and nothing of what is in it now was: select again")
	// ErrNoClaims means that a replay is refused because nothing keeps a second one from replaying the same entries.
	ErrNoClaims = errors.New("entries cannot be claimed")
)

// Consumer is one consumer whose dead letters there are.
type Consumer struct {
	Stream, Durable string
	DLQ             jetstream.DeadLetterConfig
	Policy          policy.Policy
	Target          *forward.Target
	// Manage says whether the bucket of claims may be made for this consumer's stream.
	Manage jetstream.Manage
	// Remember, if set, is told of a message that the app accepted in a replay, so that a later duplicate of it is known.
	Remember func(m *jetstream.Message)
}

// App is what replays are sent to, as by forward.Client.
type App interface {
	Forward(ctx context.Context, t *forward.Target, m *forward.Message) forward.Result
	// Probe looks whether the app is there. Up and LastError say what was found last.
	Probe(ctx context.Context) error
	Up() bool
	LastError() error
}

// Options are the parts of a Service.
type Options struct {
	Conn      *jetstream.Conn
	Consumers []Consumer // those with dlq.enabled: false are left out by New
	App       App        // nil: nothing can be replayed to the app
	Log       *slog.Logger
}

// Service works on the DLQ streams of a configuration. It is safe for concurrent use, and starts nothing by itself.
type Service struct {
	conn      *jetstream.Conn
	consumers []Consumer
	scope     scope
	streams   []string
	app       App
	log       *slog.Logger
	leaseEnds time.Duration // how long a removal waits for entries that others have in work
	finishFor time.Duration // how long it is tried on to remove an entry that is handled
}

// New makes a service. It asks nothing of the server.
func New(o Options) *Service {
	s := &Service{conn: o.Conn, app: o.App, log: o.Log, leaseEnds: leaseEnds, finishFor: finishFor}
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
	s.scope = scopeOf(s.consumers)
	slices.Sort(s.streams)
	s.streams = slices.Compact(s.streams)
	return s
}

// Streams are the DLQ streams of the configuration, sorted. They need not exist.
func (s *Service) Streams() []string { return s.streams }
