package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// ensure makes the retry stream where it is wanted and missing. It is called before the durable is looked for.
func (r *retries) ensure(ctx context.Context) error {
	info, err := r.main.conn.streamInfo(ctx, RetryStream)
	if errors.Is(err, ErrStreamNotFound) && r.isWanted() && r.main.cfg.Manage != ManageNone {
		info, err = r.create(ctx)
	}
	if err != nil {
		return err
	}
	if !info.Config.AllowMsgSchedules {
		return fmt.Errorf("stream %s does not allow message schedules (allow_msg_schedules)", RetryStream)
	}
	r.judge(ctx, info.Config)
	return nil
}

func (r *retries) create(ctx context.Context) (*natsjs.StreamInfo, error) {
	source, err := r.main.conn.streamInfo(ctx, r.main.cfg.Stream)
	if err != nil {
		return nil, err
	}
	stream, err := r.main.conn.createStream(ctx, natsjs.StreamConfig{
		Name:              RetryStream,
		Description:       "messages that wait for a retry, moved here by sidecars",
		Subjects:          []string{retrySubject + ">"},
		Retention:         natsjs.WorkQueuePolicy,
		Storage:           natsjs.FileStorage,
		Replicas:          max(source.Config.Replicas, 1),
		AllowMsgSchedules: true,
		AllowMsgTTL:       true,
		Duplicates:        doneFor,
	})
	if errors.Is(err, natsjs.ErrStreamNameAlreadyInUse) {
		return r.main.conn.streamInfo(ctx, RetryStream) // another sidecar made it just now
	}
	if err != nil {
		return nil, fmt.Errorf("creating stream %s: %w", RetryStream, err)
	}
	r.log.Info("created the retry stream", slog.String("retry_stream", RetryStream))
	return stream.CachedInfo(), nil
}

// deleted reports whether it is certain that there is no retry stream.
func (r *retries) deleted(ctx context.Context) bool {
	_, err := r.main.conn.streamInfo(ctx, RetryStream)
	return errors.Is(err, ErrStreamNotFound)
}

// look asks now and then for the size of the stream and the server's time.
func (r *retries) look(ctx context.Context) {
	if time.Since(r.looked) < infoEvery {
		return
	}
	r.looked = time.Now()
	info, err := r.main.conn.streamInfo(ctx, RetryStream)
	if err != nil {
		return // said by the source
	}
	r.judge(ctx, info.Config)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.full = r.main.cfg.RetryStream.MaxBytes > 0 && info.State.Bytes >= uint64(r.main.cfg.RetryStream.MaxBytes)
	if !info.TimeStamp.IsZero() {
		r.skew = time.Until(info.TimeStamp)
	}
}

var (
	errStopped = errors.New("stopping")
	errPaused  = errors.New("the retry stream is not used for a while")
)

// ready waits until the retry stream is served, which it may have to be made for.
func (r *retries) ready(ctx context.Context, j *retryJob) error {
	wait, stop := comingFor, r.stop
	if j.back {
		wait, stop = putTimeout, nil // there is no other time for it
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	look := time.NewTicker(retryTick / 10)
	defer look.Stop()
	for {
		st := r.source.Status()
		switch {
		case r.paused() || st.Bound && r.isUnfit():
			return errPaused
		case st.Bound:
			return nil
		}
		select {
		case <-stop:
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

// restMoves lets messages wait at the durable for a while, since the stream did not take the end of one.
func (r *retries) restMoves() {
	if !r.main.conn.Connected() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notUntil = later(r.notUntil, time.Now().Add(retryTrouble))
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
	ack, err := r.main.conn.publish(ctx, msg)
	switch {
	case err != nil && !errors.Is(err, ErrUnpublishable) && errors.Is(context.Cause(ctx), ErrNotConnected):
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

// over is what is stored when a message that was moved is done. In a stream that takes no TTL, where messages that an older version moved
// may wait, it stays.
func (r *retries) over(m *Message) *nats.Msg {
	msg := &nats.Msg{Subject: r.subject("done", r.key(m))}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.noTTL {
		msg.Header = nats.Header{"Nats-TTL": []string{r.doneFor().String()}}
	}
	return msg
}

// doneFor is how long it is kept that a message that was moved is done: longer than its source waits to deliver it again.
func (r *retries) doneFor() time.Duration {
	r.main.mu.Lock()
	defer r.main.mu.Unlock()
	if r.main.bound == nil {
		return max(doneFor, 2*r.main.cfg.AckWait)
	}
	return max(doneFor, 2*ackWait(r.main.bound.info.Config))
}
