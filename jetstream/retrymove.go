package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// retryJob is a message to be moved to the retry stream, or the verdict over one that was.
type retryJob struct {
	message *Message
	due     time.Time // when a message that is moved is to be tried again
	verdict string    // over a message of the retry stream; empty: it is moved
}

// takes reports whether a message that is to be tried again is to wait in the retry stream.
func (r *retries) takes(m *Message, delay time.Duration) bool {
	if delay < leastMoved || m.source != r.source && !r.main.crowded() || !r.fits(m) || r.main.conn.olderThan(2, 12) {
		return false
	}
	if m.source != r.source && r.main.cfg.Manage == ManageNone && !r.source.Status().Bound {
		return false // it is not made
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.stopping && !r.full && time.Now().After(r.notUntil)
}

// move moves a message in the background. It reports whether it takes the job.
func (r *retries) move(m *Message, delay time.Duration) bool {
	return r.takes(m, delay) && r.add(&retryJob{message: m, due: time.Now().Add(delay)})
}

// finish settles a message of the retry stream in the background, once it is stored there that it is done.
func (r *retries) finish(m *Message, verdict string) bool {
	return r.add(&retryJob{message: m, verdict: verdict})
}

func (r *retries) add(j *retryJob) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case r.jobs <- j:
	default:
		return false // more than can be leased
	}
	r.busy++
	if !r.wanted && j.verdict == "" {
		r.wanted = true
		r.log.Info("messages that wait for a retry hold half of max_ack_pending: further ones wait in the retry stream", slog.String("retry_stream", RetryStream))
	}
	r.nudge()
	return true
}

func (r *retries) write(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-r.jobs:
			if j.verdict == "" {
				r.store(ctx, j)
			} else {
				r.end(ctx, j)
			}
			r.ended()
		}
	}
}

func (r *retries) ended() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy--; r.busy == 0 {
		for _, done := range r.idle {
			close(done)
		}
		r.idle = nil
	}
}

// flush waits until all that is to be stored is, or ctx ends.
func (r *retries) flush(ctx context.Context) {
	r.mu.Lock()
	if r.busy == 0 {
		r.mu.Unlock()
		return
	}
	done := make(chan struct{})
	r.idle = append(r.idle, done)
	r.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// store moves a message: it is stored, then acked where it came from. Killed in between, it is delivered there again, and
// acked then without a call. If it is not known whether it was stored it waits where it is; if it was, the same happens.
func (r *retries) store(ctx context.Context, j *retryJob) {
	m := j.message
	err := r.ready(ctx)
	if err == nil {
		err = m.source.stillLeased(m)
	}
	if err == nil {
		err = r.publish(ctx, r.waiting(m, j.due))
	}
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, errStopped) && !errors.Is(err, errPaused) {
			r.failed(err)
		}
		m.Nak(time.Until(j.due))
		return
	}
	r.mu.Lock()
	r.moved++
	r.trouble = 0
	r.active = later(r.active, j.due.Add(lendFor))
	r.mu.Unlock()
	m.source.settle(m, "+ACK")
}

// end stores that a message of the retry stream is done, then settles it there.
func (r *retries) end(ctx context.Context, j *retryJob) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := r.publish(ctx, r.over(j.message))
		if err == nil {
			j.message.source.settle(j.message, j.verdict)
			return
		}
		r.main.conn.complain("retry done "+r.hash, "the retry stream does not take the end of a message, trying on",
			slog.String("stream", r.main.cfg.Stream), slog.String("consumer", r.main.cfg.Durable), slog.String("error", oneLine(err.Error(), 300)))
		wait := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
	}
}

var (
	errStopped = errors.New("stopping")
	errPaused  = errors.New("the retry stream is not used for a while")
)

// ready waits until the retry stream is served, which it may have to be made for.
func (r *retries) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, comingFor)
	defer cancel()
	look := time.NewTicker(retryTick / 10)
	defer look.Stop()
	for {
		st := r.source.Status()
		if st.Bound {
			return nil
		}
		if r.paused() {
			return errPaused
		}
		select {
		case <-r.stop:
			return errStopped
		case <-ctx.Done():
			return errors.New(st.Detail)
		case <-look.C:
		}
	}
}

// failed lets messages wait at the durable for a while.
func (r *retries) failed(err error) {
	r.mu.Lock()
	if now := time.Now(); now.After(r.notUntil) { // the others that wait fail for the same reason
		r.trouble = min(max(2*r.trouble, retryTrouble), retryTroubleMost)
		r.notUntil = now.Add(r.trouble)
	}
	r.mu.Unlock()
	r.main.conn.complain("retry stream "+r.hash, "a message cannot wait in the retry stream, it waits at the durable",
		slog.String("stream", r.main.cfg.Stream), slog.String("consumer", r.main.cfg.Durable), slog.String("error", oneLine(err.Error(), 300)))
}

// paused reports whether nothing is moved now, after a failure.
func (r *retries) paused() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.notUntil)
}

// publish stores a message in the retry stream.
func (r *retries) publish(ctx context.Context, msg *nats.Msg) error {
	if !r.main.conn.Connected() {
		return ErrNotConnected
	}
	ctx, cancel := r.main.conn.bounded(ctx, putTimeout)
	defer cancel()
	ack, err := r.main.conn.js.PublishMsg(ctx, msg)
	switch {
	case err != nil && errors.Is(context.Cause(ctx), ErrNotConnected):
		return ErrNotConnected
	case err != nil:
		return fmt.Errorf("storing in stream %s: %w", RetryStream, err)
	case ack.Stream != RetryStream:
		return fmt.Errorf("storing in stream %s: stream %s took it", RetryStream, ack.Stream)
	}
	return nil
}

// waiting is the schedule by which a message waits.
func (r *retries) waiting(m *Message, due time.Time) *nats.Msg {
	key := r.key(m)
	r.mu.Lock()
	due = due.Add(r.skew)
	r.mu.Unlock()
	msg := envelope(m, r.main.cfg.Stream, r.main.cfg.Durable)
	msg.Subject = r.subject("at", key)
	msg.Header["Nats-Schedule"] = []string{"@at " + due.UTC().Format(time.RFC3339Nano)}
	msg.Header["Nats-Schedule-Target"] = []string{r.subject("due", key)}
	msg.Header[natsjs.MsgIDHeader] = []string{r.hash + "." + key + "." + strconv.FormatUint(m.Delivered, 10)}
	return msg
}

// over is what is stored when a message that was moved is done.
func (r *retries) over(m *Message) *nats.Msg {
	return &nats.Msg{Subject: r.subject("done", r.key(m)), Header: nats.Header{"Nats-TTL": []string{doneFor.String()}}}
}

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
	subject := "STREAM.MSG.GET." + RetryStream
	if r.main.conn.denied(r.main.conn.prefix + subject) {
		return 0, nil // and so it is for every sidecar of this user: nothing was moved
	}
	ctx, cancel := context.WithTimeout(ctx, lastTimeout)
	defer cancel()
	err = r.main.conn.api(ctx, subject, request, &answer)
	var refused *natsjs.APIError
	switch {
	case err == nil:
		return answer.Message.Seq, nil
	case errors.As(err, &refused) && (refused.ErrorCode == errMessageNotFound || refused.ErrorCode == natsjs.JSErrCodeStreamNotFound):
		return 0, nil
	case r.main.conn.denied(r.main.conn.prefix + subject):
		return 0, nil
	}
	return 0, err
}

// superseded reports whether a delivery is to be acked without a call, because something was stored about its message later:
// it was moved, or it is done. If that is not known now, the delivery is put off, still leased.
func (r *retries) superseded(ctx context.Context, m *Message) (yes bool) {
	if r.main.conn.olderThan(2, 12) || m.source == r.main && !r.main.again(m) || m.source == r.source && m.repeats == 1 {
		return false
	}
	if r.isBlind() {
		r.putOff(m)
		return true
	}
	last, err := r.last(ctx, m)
	switch {
	case ctx.Err() != nil:
		r.putOff(m) // stopping: it is handed back
	case err != nil:
		r.main.conn.complain("retry look "+r.hash, "it is not known whether a message waits in the retry stream, asking on",
			slog.String("stream", r.main.cfg.Stream), slog.String("consumer", r.main.cfg.Durable), slog.String("error", oneLine(err.Error(), 300)))
		r.mu.Lock()
		r.blind = time.Now().Add(blindFor)
		r.mu.Unlock()
		r.putOff(m)
	case m.source == r.main && last == 0, m.source == r.source && last <= m.lease:
		return false
	default:
		m.source.settle(m, "+ACK")
	}
	return true
}

// lastTimeout bounds the question what was stored last about a message.
const lastTimeout = time.Second

// blindFor is the pause after it could not be asked for what was stored about a message.
const blindFor = time.Second

func (r *retries) isBlind() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.blind)
}

func (r *retries) putOff(m *Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deferred = append(r.deferred, m)
	r.nudge()
}
