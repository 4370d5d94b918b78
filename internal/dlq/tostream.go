package dlq

import (
	"context"
	"strconv"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

// toStream publishes an entry to its original subject.
func (r *replay) toStream(ctx context.Context, l *Letter) (*Outcome, error) {
	header := jetstream.OriginalHeader(l.Headers)
	header[jetstream.HeaderReplays] = []string{strconv.Itoa(l.Replays + 1)}
	id := jetstream.RepublishID(l.DLQStream, l.Seq, l.Time)
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
