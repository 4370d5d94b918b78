package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// strangeFor is how long a message of the retry stream that makes no sense waits until it is looked at again.
const strangeFor = time.Minute

// strange is what is said of such a message.
const strange = "a message of the retry stream makes no sense: it stays there"

// errStrange says that a message of the retry stream makes no sense.
var errStrange = errors.New("it makes no sense")

// open unwraps a delivery of the retry stream. What is in the stream is nowhere else: only what is no sidecar's for sure is removed. All else that makes no
// sense, since the durable was edited or a sidecar of another version stored it, stays until it does.
func (r *retries) open(m *Message) {
	switch err := r.unwrap(m); {
	case err == nil:
	case errors.Is(err, errForeign):
		m.unfit = "+TERM not a message of a sidecar"
		r.sayStrange(m, "a message in the retry stream is no sidecar's: it is removed", err)
	default:
		m.unfit = nak(strangeFor)
		r.sayStrange(m, strange, err)
	}
}

func (r *retries) sayStrange(m *Message, what string, err error) {
	r.main.conn.complain("envelope "+what, what, slog.String("retry_stream", RetryStream), slog.Uint64("sequence", m.lease),
		slog.String("subject", oneLine(m.Subject, 200)), slog.String("error", oneLine(err.Error(), 200)))
}

// sealed reads a copy that came without its body, and unwraps it; nil if the stream has it no more.
func (r *retries) sealed(ctx context.Context, lease uint64) (*Message, error) {
	stored, err := r.source.Stored(ctx, lease)
	if stored == nil || err != nil {
		return nil, err
	}
	if err := r.unwrap(stored); err != nil {
		return nil, fmt.Errorf("%w: %w", errStrange, err)
	}
	if stored.lacking {
		return nil, fmt.Errorf("%w: its body is empty", errStrange)
	}
	return stored, nil
}
