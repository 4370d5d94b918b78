package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// lastTimeout bounds the question what was stored last about a message.
const lastTimeout = time.Second

// blindFor is the pause after it could not be asked for what was stored about a message.
const blindFor = time.Second

// last is the sequence of what was stored last about a message; 0 if there is nothing.
func (r *retries) last(ctx context.Context, m *Message) (uint64, error) {
	request, err := json.Marshal(map[string]string{"last_by_subj": r.subject("*", r.key(m))})
	if err != nil {
		return 0, err
	}
	var answer struct {
		Message struct {
			Seq uint64 `json:"seq"`
		} `json:"message"`
	}
	if r.denied() {
		return 0, nil // and so it is for every sidecar of this user: nothing was moved
	}
	ctx, cancel := context.WithTimeout(ctx, lastTimeout)
	defer cancel()
	err = r.main.conn.api(ctx, "STREAM.MSG.GET."+RetryStream, request, &answer)
	var refused *natsjs.APIError
	switch {
	case err == nil:
		return answer.Message.Seq, nil
	case errors.As(err, &refused) && (refused.ErrorCode == errMessageNotFound || refused.ErrorCode == natsjs.JSErrCodeStreamNotFound):
		return 0, nil
	case r.denied():
		return 0, nil
	}
	return 0, err
}

// Moved reports whether a message of the stream was moved to the retry stream: what becomes of it is decided there.
func (s *Source) Moved(ctx context.Context, m *Message) (bool, error) {
	if s.retries == nil || s.conn.olderThan(2, 12) || s.retries.empty.Load() {
		return false, nil
	}
	last, err := s.retries.last(ctx, m)
	return last > 0, err
}

// superseded reports whether a delivery is to be acked without a call, because something was stored about its message later:
// it was moved, or it is done. If that is not known now, the delivery is put off, still leased.
func (r *retries) superseded(ctx context.Context, m *Message) (yes bool) {
	if !r.asks(m) {
		return false
	}
	if r.isBlind() {
		r.putOff(m)
		return true
	}
	over, err := r.isOver(ctx, m)
	switch {
	case ctx.Err() != nil:
		r.putOff(m) // stopping: it is handed back
	case err != nil:
		r.blindUntil(time.Now().Add(blindFor))
		r.putOff(m)
	case !over:
		return false
	default:
		m.source.settle(m, "+ACK")
	}
	return true
}

// asks reports whether it must be looked up what was stored about a delivery's message. A copy is always looked up: a durable that
// was made anew or lost state in a crash counts from one again, and a server that was killed can bring a copy twice.
func (r *retries) asks(m *Message) bool {
	return (m.source != r.main || r.main.again(m)) && !r.empty.Load() && !r.main.conn.olderThan(2, 12)
}

// isOver looks up whether something was stored about a message after what was delivered.
func (r *retries) isOver(ctx context.Context, m *Message) (bool, error) {
	last, err := r.last(ctx, m)
	if err != nil && ctx.Err() == nil {
		r.main.conn.complain("retry look "+r.hash, "it is not known whether a message waits in the retry stream, asking on",
			slog.String("stream", r.main.cfg.Stream), slog.String("consumer", r.main.cfg.Durable), slog.String("error", oneLine(err.Error(), 300)))
	}
	return m.source == r.main && last > 0 || m.source == r.source && last > m.lease, err
}

// remain reports whether messages wait in the retry stream although none are moved there any more: it was turned off since, or
// more leases were configured then. A user who may not ask has none.
func (r *retries) remain(ctx context.Context) bool {
	if r.empty.Load() && r.barred {
		return false
	}
	left, err := r.left(ctx)
	switch {
	case left:
		r.empty.Store(false)
		r.sayLeft()
		return true
	case err != nil:
		r.barred = r.denied()
		r.empty.Store(r.barred)
		return false
	}
	r.empty.Store(true)
	return false
}

// left reports whether messages of the durable are in the retry stream: waiting, due, or leased by any sidecar.
func (r *retries) left(ctx context.Context) (bool, error) {
	for _, state := range []string{"at", "due"} {
		m, err := r.main.conn.stored(ctx, RetryStream, map[string]any{"seq": 1, "next_by_subj": r.subject(state, ">")})
		switch {
		case m != nil:
			return true, nil
		case err != nil && !errors.Is(err, ErrStreamNotFound):
			return false, err
		}
	}
	return false, nil
}

// denied reports whether the user may not ask what is in the retry stream.
func (r *retries) denied() bool {
	return r.main.conn.denied(r.main.conn.prefix + "STREAM.MSG.GET." + RetryStream)
}

// RetriesLeft asks whether messages of the durable are in the retry stream, whoever moved them. They may be where no answer comes; for a user who may
// not ask there are none.
func (s *Source) RetriesLeft(ctx context.Context) bool {
	r := s.retries
	if r == nil || !r.serving.Load() || r.denied() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, lastTimeout)
	defer cancel()
	left, err := r.left(ctx)
	return left || err != nil && !r.denied()
}

// sayLeft says once that messages are left in the retry stream.
func (r *retries) sayLeft() {
	if r.main.order != nil {
		r.log.Warn("messages wait in the retry stream from before there was an order: they are served beside the others, each in turn with those of its key, until none is left",
			slog.String("retry_stream", RetryStream))
		return
	}
	r.log.Warn("messages wait in the retry stream, which is not used any more: they are served until none is left", slog.String("retry_stream", RetryStream))
}

func (r *retries) isBlind() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.blind)
}

func (r *retries) blindUntil(then time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.blind = later(r.blind, then)
}

func (r *retries) putOff(m *Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deferred = append(r.deferred, m)
	r.nudge()
}

// offerAgain gives deliveries that were put off back to the workers.
func (r *retries) offerAgain() {
	r.mu.Lock()
	if time.Now().Before(r.blind) {
		r.mu.Unlock()
		return
	}
	deferred := r.deferred
	r.deferred = nil
	r.mu.Unlock()
	for _, m := range deferred {
		m.source.Requeue(m)
	}
}
