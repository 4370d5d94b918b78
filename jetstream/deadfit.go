package jetstream

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// unkept says why a stream is no DLQ stream, or nothing: what it confirms is not kept until it is removed, or the tools cannot read it.
func unkept(c natsjs.StreamConfig) string {
	switch {
	case c.Retention == natsjs.InterestPolicy:
		return "its retention is interest: it drops entries that no consumer waits for"
	case c.Retention == natsjs.WorkQueuePolicy:
		return "its retention is workqueue: its entries cannot be read without taking them out"
	case c.NoAck:
		return "it has no_ack: it does not confirm what it stores"
	}
	return ""
}

// keepsEntries is an error that says why a stream is no DLQ stream; nil if it may be one.
func keepsEntries(c natsjs.StreamConfig) error {
	if why := unkept(c); why != "" {
		return misfit{fmt.Errorf("DLQ stream %s is not used: %s", c.Name, why)}
	}
	return nil
}

// dropping says by which limits a DLQ stream drops entries, or nothing. The age that is configured is none: it is wanted.
func dropping(c natsjs.StreamConfig, cfg DeadLetterConfig) string {
	var by []string
	if c.Discard == natsjs.DiscardOld {
		if c.MaxMsgs > 0 {
			by = append(by, fmt.Sprintf("max_msgs: %d with discard: old", c.MaxMsgs))
		}
		if c.MaxBytes > 0 {
			by = append(by, fmt.Sprintf("max_bytes: %d with discard: old", c.MaxBytes))
		}
	}
	if c.MaxMsgsPerSubject > 0 && !(c.Discard == natsjs.DiscardNew && c.DiscardNewPerSubject) {
		by = append(by, fmt.Sprintf("max_msgs_per_subject: %d", c.MaxMsgsPerSubject))
	}
	if c.MaxAge > 0 && (cfg.MaxAge == 0 || c.MaxAge < cfg.MaxAge) {
		by = append(by, fmt.Sprintf("max_age: %s, which is not dlq.max_age", c.MaxAge))
	}
	return strings.Join(by, ", ")
}

// leastDeadLetterWindow is the duplicate window below which a DLQ stream is warned of: what the server gives a stream that asks for none.
const leastDeadLetterWindow = 2 * time.Minute

// shortWindow says that an entry which is stored again, as after a crash, may be stored twice in a DLQ stream, or nothing.
func shortWindow(c natsjs.StreamConfig) string {
	least := leastDeadLetterWindow
	if c.MaxAge > 0 {
		least = min(least, c.MaxAge) // it cannot be longer
	}
	if c.Duplicates >= least {
		return ""
	}
	return fmt.Sprintf("its duplicate window is %s: an entry that is stored again later than that, after a crash or an answer that was lost, is there twice", c.Duplicates)
}

// warnShortWindow logs a duplicate window that is too short, once until it changes.
func (d *DeadLetters) warnShortWindow(c natsjs.StreamConfig) {
	if short := shortWindow(c); d.isNews(&d.short, short) {
		d.log.Warn("the dlq stream may store an entry twice", slog.String("dlq_stream", d.name), slog.String("reason", short))
	}
}

// warnForgetful logs that the DLQ stream is kept in memory, once until it changes.
func (d *DeadLetters) warnForgetful(c natsjs.StreamConfig) {
	if why := forgetful(c); d.isNews(&d.forgets, why) {
		d.log.Warn("the dlq stream may lose its entries", slog.String("dlq_stream", d.name), slog.String("reason", why))
	}
}

// isNews takes in what is wrong, where it was something else before, and reports whether that is to be told.
func (d *DeadLetters) isNews(was *string, why string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	news := why != "" && why != *was
	*was = why
	return news
}

// forgetful says that a restart of the server takes the entries of a DLQ stream, or nothing.
func forgetful(c natsjs.StreamConfig) string {
	if c.Storage != natsjs.MemoryStorage {
		return ""
	}
	return "it is kept in memory: a restart of its servers takes its entries, and their messages are settled"
}

// warnDropping logs the limits by which the DLQ stream drops entries, once until they change.
func (d *DeadLetters) warnDropping(c natsjs.StreamConfig) {
	by := dropping(c, d.cfg)
	d.mu.Lock()
	news := by != d.drops
	d.drops = by
	d.mu.Unlock()
	switch {
	case !news:
	case by != "":
		d.log.Warn("the dlq stream drops entries by its limits", slog.String("dlq_stream", d.name), slog.String("limits", by))
	default:
		d.log.Info("the dlq stream drops no entries any more", slog.String("dlq_stream", d.name))
	}
}
