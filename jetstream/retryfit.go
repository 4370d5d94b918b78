package jetstream

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// kept is how well a stream keeps its messages.
type kept struct {
	replicas int
	storage  natsjs.StorageType
}

func keptBy(c natsjs.StreamConfig) kept { return kept{max(c.Replicas, 1), c.Storage} }

// keptEvery is how often it is looked how the stream keeps its messages, and raising the replicas of the retry stream is tried.
const keptEvery = 30 * time.Second

// unfitRetries says why the messages of a stream must not wait in a retry stream, or nothing: it would drop what waits, or could
// lose it where the stream would not, or would not take its end, or keep what is done.
func unfitRetries(c natsjs.StreamConfig, source kept) string {
	have := keptBy(c)
	switch {
	case !c.AllowMsgSchedules:
		return "it does not allow message schedules (allow_msg_schedules)"
	case !c.AllowMsgTTL:
		return "it does not allow a TTL of a message (allow_msg_ttl), so it would not take the end of one"
	case c.Sealed:
		return "it is sealed"
	case c.NoAck:
		return "it has no_ack: it does not confirm what it stores"
	case c.SubjectTransform != nil:
		return "it has a subject transform: what waits would not be found"
	case !listensOnRetries(c.Subjects):
		return "it does not listen on " + RetrySubjects
	case c.MaxBytes > 0 || c.MaxMsgs > 0 || c.MaxMsgsPerSubject > 0 || c.MaxAge > 0 || c.Retention == natsjs.InterestPolicy:
		return "it has limits or a retention by which it drops messages that wait"
	case c.Retention != natsjs.WorkQueuePolicy:
		return "its retention is not workqueue: copies that are done with would stay in it"
	case have.replicas < source.replicas:
		return fmt.Sprintf("it has replicas: %d and the stream %d", have.replicas, source.replicas)
	case have.storage == natsjs.MemoryStorage && source.storage == natsjs.FileStorage:
		return "it is kept in memory and the stream in files"
	}
	return ""
}

// listensOnRetries reports whether some subjects are all that messages of the retry stream have.
func listensOnRetries(subjects []string) bool {
	return !slices.ContainsFunc([]string{"at", "due", "done"}, func(state string) bool { return !listens(subjects, retrySubject+state+".*.>") })
}

// judge looks whether messages may wait in the retry stream, which may have been made for another stream, by somebody else, or
// edited. With manage: update it gets as many replicas as the stream has. Nothing is moved to one that is not fit.
func (r *retries) judge(ctx context.Context, c natsjs.StreamConfig) {
	source, fresh := r.sourceKept(ctx)
	if fresh && r.used && r.main.cfg.Manage == ManageUpdate && keptBy(c).replicas < source.replicas {
		c = r.raise(ctx, c, source.replicas)
	}
	why := unfitRetries(c, source)
	if source.replicas == 0 {
		why = "it is not known yet how the stream keeps its messages"
	}
	r.mu.Lock()
	if why != "" && r.notRaised != "" {
		why += ", which could not be changed: " + r.notRaised
	}
	news := why != r.unfit && source.replicas > 0
	r.unfit, r.noTTL = why, !c.AllowMsgTTL
	r.mu.Unlock()
	switch {
	case !news || !r.used:
	case why != "":
		r.log.Warn("nothing is moved to the retry stream, retries wait at the durable", slog.String("retry_stream", RetryStream), slog.String("reason", why))
	default:
		r.log.Info("messages may wait in the retry stream", slog.String("retry_stream", RetryStream))
	}
}

// sourceKept is how the stream keeps its messages, as far as is known, and whether that was looked up just now.
func (r *retries) sourceKept(ctx context.Context) (k kept, fresh bool) {
	r.mu.Lock()
	k, fresh = r.kept, time.Since(r.keptAt) >= keptEvery
	if fresh {
		r.keptAt = time.Now()
	}
	r.mu.Unlock()
	if !fresh {
		return k, false
	}
	info, err := r.main.conn.streamInfo(ctx, r.main.cfg.Stream)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.keptAt = time.Time{} // asked again soon
		return r.kept, false
	}
	r.kept = keptBy(info.Config)
	return r.kept, true
}

// raise gives the retry stream more replicas. It returns the configuration that the stream has then.
func (r *retries) raise(ctx context.Context, c natsjs.StreamConfig, replicas int) natsjs.StreamConfig {
	within, cancel := r.main.conn.bounded(ctx, apiTimeout)
	defer cancel()
	want := c
	want.Replicas = replicas
	stream, err := r.main.conn.js().UpdateStream(within, want)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.notRaised = oneLine(err.Error(), 300)
		return c
	}
	r.notRaised = ""
	r.log.Info("raised the replicas of the retry stream", slog.String("retry_stream", RetryStream), slog.Int("replicas", replicas))
	return stream.CachedInfo().Config
}

func (r *retries) isUnfit() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unfit != ""
}
