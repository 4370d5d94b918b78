package dlq

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

// toStream publishes an entry to its original subject.
func (r *replay) toStream(ctx context.Context, l *Letter) (*Outcome, error) {
	id, header := republished(&l.Entry, l.Headers)
	err := r.s.conn.Republish(ctx, l.Stream, l.Subject, id, header, l.Body)
	switch {
	case err == nil:
		return &Outcome{Result: Published}, nil
	case lost(err):
		return nil, err
	default:
		return left(0, err), nil
	}
}

// republished are the id and the headers that an entry is published again with.
func republished(e *Entry, stored map[string][]string) (id string, header map[string][]string) {
	header = jetstream.OriginalHeader(stored)
	header[jetstream.HeaderReplays] = []string{strconv.Itoa(e.Replays + 1)}
	return jetstream.RepublishID(e.DLQStream, e.Seq, e.Time), header
}

// refusals finds, of entries as they are selected, those that their stream would refuse. Each stream is looked up once.
type refusals struct {
	s       *Service
	streams map[string]*jetstream.StreamState // nil: it does not exist, or could not be looked up
	missing map[string]bool
	why     map[Cursor]string
}

func (s *Service) newRefusals() *refusals {
	return &refusals{s: s, streams: map[string]*jetstream.StreamState{}, missing: map[string]bool{}, why: map[Cursor]string{}}
}

// look is told of an entry.
func (r *refusals) look(ctx context.Context, e *Entry) {
	if why := r.of(ctx, e); why != "" {
		r.why[e.Cursor()] = why
	}
}

func (r *refusals) of(ctx context.Context, e *Entry) string {
	state, known := r.streams[e.Stream]
	if !known {
		found, err := r.s.conn.StreamState(ctx, e.Stream)
		if err == nil {
			state = &found
		}
		r.streams[e.Stream], r.missing[e.Stream] = state, errors.Is(err, jetstream.ErrStreamNotFound)
	}
	switch {
	case r.missing[e.Stream]:
		return fmt.Sprintf("stream %s does not exist", e.Stream)
	case state == nil:
		return "" // the replay may find it
	}
	return r.s.conn.Refusal(e.Stream, state, e.Subject, e.head+e.Size)
}
