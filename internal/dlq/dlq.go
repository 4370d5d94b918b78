// Package dlq answers what is in the dead letter queues, and does with it what an operator asks: look, count, remove, replay.
// The command line and the admin listener use it alike.
//
// An entry that is stored in two parts is one entry here; it is named by the sequence of its first part. Messages of a DLQ
// stream that are no dead letters are never selected: Get alone shows them.
package dlq

import (
	"context"
	"errors"
	"iter"
	"log/slog"

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
	streams   []string
	app       App
	log       *slog.Logger
}

// Streams are the DLQ streams of the configuration, sorted. They need not exist.
func (s *Service) Streams() []string { return s.streams }

// List brings the entries that the filter selects, DLQ stream by DLQ stream and each in order of arrival, as they are read:
// bodies are not. It ends with an error, at the latest when ctx does. A DLQ stream that does not exist has no entries.
// To page, set Filter.Limit, and Filter.After to the Cursor of the last entry that was brought.
func (s *Service) List(ctx context.Context, f Filter) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {}
}

// Get brings one entry with its headers and its body, joined if it is in two parts; seq may be that of either. A message that
// is no dead letter is brought too: its Reason, Stream and Consumer are empty. It returns ErrNotFound if there is none.
func (s *Service) Get(ctx context.Context, stream string, seq uint64) (*Letter, error) {
	return nil, ErrNotFound
}

// Stats counts the entries that the filter selects.
func (s *Service) Stats(ctx context.Context, f Filter) (*Stats, error) {
	return nil, ErrNotFound
}

// Remove removes the entries that the filter selects and that are there when it begins. Between two entries it stops when
// ctx ends, and says so in the report. An error means that it could not go on; the report then says what was done.
func (s *Service) Remove(ctx context.Context, f Filter, o RemoveOptions) (*Report, error) {
	return &Report{}, nil
}

// Replay replays the entries that the filter selects and that are there when it begins, in order of arrival, each once. An
// entry is gone when its replay succeeded, or when it is stored anew with the new cause. When ctx ends, what is in work is
// finished, unless it waits for a connection to the app, and the report says that it was interrupted. An error means that it
// could not go on (ErrAppAway, ErrNoClaims, NATS away); the report then says what was done.
func (s *Service) Replay(ctx context.Context, f Filter, o ReplayOptions) (*Report, error) {
	return &Report{}, nil
}
