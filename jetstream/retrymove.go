package jetstream

import (
	"context"
	"errors"
	"log/slog"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// retryJob is a message to be moved to the retry stream, or the verdict over one that was.
type retryJob struct {
	message *Message
	due     time.Time // when a message that is moved is to be tried again
	verdict string    // over a message of the retry stream; empty: it is moved
	back    bool      // it is moved to be handed back, also by a sidecar that is stopping
}

// takes reports whether a message that is to be tried again is to wait in the retry stream.
func (r *retries) takes(m *Message, delay time.Duration) bool {
	if delay < leastMoved || !r.used && m.source != r.source || m.source != r.source && !r.main.crowded() || !r.fits(m) ||
		!r.main.conn.Connected() || r.main.conn.olderThan(2, 12) {
		return false
	}
	if m.source != r.source && r.main.cfg.Manage == ManageNone && !r.source.Status().Bound {
		return false // it is not made
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.stopping && r.mayTake()
}

// mayTake reports whether the retry stream takes messages, as far as is known. The caller holds r.mu.
func (r *retries) mayTake() bool {
	return !r.full && r.unfit == "" && time.Now().After(r.notUntil)
}

// takesBack reports whether a message that the durable delivers no more can be handed back in the retry stream.
func (r *retries) takesBack(m *Message) bool {
	if !r.main.cfg.RetryStream.Enabled || !r.fits(m) || r.main.conn.olderThan(2, 12) || r.main.cfg.Manage == ManageNone && !r.source.Status().Bound {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mayTake()
}

// takeBack hands such a message back in the background. It reports whether it takes the job.
func (r *retries) takeBack(m *Message) bool {
	return r.takesBack(m) && r.add(r.moves, &retryJob{message: m, due: time.Now(), back: true})
}

// move moves a message in the background. It reports whether it takes the job.
func (r *retries) move(m *Message, delay time.Duration) bool {
	return r.takes(m, delay) && r.add(r.moves, &retryJob{message: m, due: time.Now().Add(delay)})
}

// finish settles a message of the retry stream in the background, once it is stored there that it is done.
func (r *retries) finish(m *Message, verdict string) bool {
	return r.add(r.ends, &retryJob{message: m, verdict: verdict})
}

func (r *retries) add(jobs chan *retryJob, j *retryJob) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case jobs <- j:
	default:
		return false // more than can be leased
	}
	r.busy++
	if !r.wanted && j.verdict == "" {
		r.wanted = true
		r.sayWanted(j.back)
	}
	r.nudge()
	return true
}

func (r *retries) sayWanted(back bool) {
	if back {
		r.log.Info("messages are handed back that the durable delivers no more, by its own limit: they go to the retry stream", slog.String("retry_stream", RetryStream))
		return
	}
	r.log.Info("messages that wait for a retry hold half of max_ack_pending: further ones wait in the retry stream", slog.String("retry_stream", RetryStream))
}

// write does one job after the other until ctx ends.
func write(ctx context.Context, jobs <-chan *retryJob, do func(context.Context, *retryJob), ended func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-jobs:
			do(ctx, j)
			ended()
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

// flush waits until all that is to be stored is, or ctx ends. It returns how many are not: none of them is settled.
func (r *retries) flush(ctx context.Context) (left int) {
	r.mu.Lock()
	if r.busy == 0 {
		r.mu.Unlock()
		return 0
	}
	done := make(chan struct{})
	r.idle = append(r.idle, done)
	r.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.busy
}

// store moves a message: it is stored, then acked where it came from. Killed in between, it is delivered there again, and
// acked then without a call. If it is not known whether it was stored it waits where it is; if it was, the same happens.
func (r *retries) store(ctx context.Context, j *retryJob) {
	m := j.message
	err := r.ready(ctx, j)
	if err == nil {
		err = m.source.completeBody(ctx, m)
	}
	if err == nil {
		err = m.source.stillLeased(m)
	}
	if err == nil {
		err = r.publish(ctx, r.waiting(m, j.due))
	}
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, errStopped) && !errors.Is(err, errPaused) && !errors.Is(err, ErrNotConnected) && !errors.Is(err, errLeaseLost) {
			r.failed(err)
		}
		if j.back {
			m.source.settle(m, handBack)
			return
		}
		m.Nak(time.Until(j.due))
		return
	}
	r.mu.Lock()
	r.moved++
	r.trouble = 0
	if r.used {
		r.active = later(r.active, j.due.Add(lendFor))
	}
	r.mu.Unlock()
	m.source.settle(m, "+ACK")
}

// end stores that a message of the retry stream is done, then settles it there. While the stream does not take that nothing is
// moved. With the stream deleted there is nothing to settle.
func (r *retries) end(ctx context.Context, j *retryJob) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := r.publish(ctx, r.over(j.message))
		if err == nil {
			j.message.source.settle(j.message, j.verdict)
			return
		}
		if errors.Is(err, natsjs.ErrNoStreamResponse) && r.deleted(ctx) {
			return
		}
		r.restMoves()
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
