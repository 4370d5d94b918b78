package jetstream

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// ownRefusal is an error that is about one entry: its subject or its size. Others may be stored.
type ownRefusal struct{ error }

func (r ownRefusal) Unwrap() error { return r.error }

// RefusedAlone reports whether a dead letter was not stored because of its own subject or size, so that it says nothing of others.
func RefusedAlone(err error) bool {
	return errors.Is(err, ErrDeadLetterTooLarge) || errors.As(err, new(ownRefusal))
}

// The answers to a publish that are about the message, by their codes (nats-server errors.json), and of the code that is shared by all that
// a store refuses the texts (nats-server store.go).
const (
	errMessageTooLong  natsjs.ErrorCode = 10054
	errHeaderTooLong   natsjs.ErrorCode = 10097
	errStoreFailed     natsjs.ErrorCode = 10077
	fullSubject                         = "maximum messages per subject exceeded"
	fullOfMessages                      = "maximum messages exceeded"
	fullOfBytes                         = "maximum bytes exceeded"
	tooLargeForStorage                  = "message too large"
)

// isOfEntry reports whether the answer to a publish is about the message.
func isOfEntry(err error) bool {
	if errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrBadSubject) {
		return true
	}
	var api *natsjs.APIError
	if !errors.As(err, &api) {
		return false
	}
	switch api.ErrorCode {
	case errMessageTooLong, errHeaderTooLong:
		return true
	case errStoreFailed:
		return strings.Contains(api.Description, fullSubject) || strings.Contains(api.Description, tooLargeForStorage)
	}
	return false
}

const (
	// refusalCounts is how long an entry that was not stored counts, while the stream looks fine: it is tried again well within that
	// time, unless its message is gone.
	refusalCounts = time.Minute
	// maxDeniedSubjects bounds of how many subjects it is remembered that they are denied.
	maxDeniedSubjects = 1000
)

// try is one that is over.
type try struct {
	sequence    uint64 // of the message
	subject     string // of the entry
	began, over time.Time
}

// outcomes are what the tries to store entries say of the DLQ.
type outcomes struct {
	refuse string               // why the last entry was not stored that counts for all; empty when one was since
	full   bool                 // it was, since the stream was full
	since  time.Time            // when that was
	own    string               // why an entry was refused that does not count for others
	ownSeq uint64               // its message
	ownAt  time.Time            // when that was
	stored time.Time            // when the last try began that stored an entry
	denied map[string]time.Time // since when the user may not publish to a subject
}

func (o *outcomes) note(t try, err error) {
	switch {
	case err == nil:
		o.refuse, o.stored = "", later(o.stored, t.began)
		delete(o.denied, t.subject)
		if o.ownSeq == t.sequence {
			o.own = ""
		}
	case RefusedAlone(err) && !o.mayBeOfAll(t, err):
		o.own, o.ownSeq, o.ownAt = fmt.Sprintf("message %d is held back: %s", t.sequence, detailOf(err)), t.sequence, t.over
	case !o.stored.After(t.began): // else it is over
		o.refuse, o.full, o.since = detailOf(err), isFull(err), t.over
	}
}

// isFull reports whether the answer to a publish is that the stream has reached a limit of its own.
func isFull(err error) bool {
	var api *natsjs.APIError
	return errors.As(err, &api) && api.ErrorCode == errStoreFailed &&
		(strings.Contains(api.Description, fullOfMessages) || strings.Contains(api.Description, fullOfBytes))
}

// roomSeen is told of a look at the stream that began at a time and found room in it: it is not full any more. What was refused is not tried
// again if its message is gone.
func (o *outcomes) roomSeen(began time.Time) {
	if o.full && began.After(o.since) {
		o.refuse, o.full = "", false
	}
}

// roomy reports whether a stream has room, for a large entry too.
func roomy(info *natsjs.StreamInfo) bool {
	c, st := info.Config, info.State
	return full(info) == nil && (c.MaxBytes <= 0 || st.Bytes <= uint64(c.MaxBytes)/2)
}

// mayBeOfAll reports whether a refusal may be one of every subject: the user may not publish to this one, and nothing was stored since that
// began.
func (o *outcomes) mayBeOfAll(t try, err error) bool {
	if !errors.Is(err, ErrDenied) {
		return false
	}
	began, known := o.denied[t.subject]
	if known {
		return !o.stored.After(began)
	}
	if len(o.denied) >= maxDeniedSubjects {
		clear(o.denied)
	}
	o.denied[t.subject] = t.over
	return true
}

// state reports whether the DLQ takes entries, and why not, or why it does not take a single one.
func (o *outcomes) state(now time.Time) (ok bool, detail string) {
	switch {
	case o.refuse != "" && now.Sub(o.since) < refusalCounts:
		return false, o.refuse
	case now.Sub(o.ownAt) < refusalCounts:
		return true, o.own
	}
	return true, ""
}
