package forward

import (
	"context"
	"time"

	"github.com/jetsidecar/jetsidecar/policy"
)

// Message is what is sent to the app. Its header and body must not be changed once it was forwarded, not even afterwards:
// a request that was answered early may still be being sent.
type Message struct {
	Stream, Consumer, Subject string

	Sequence   uint64 // stream sequence
	Delivered  uint64 // this delivery's number, 1 on the first
	MaxDeliver uint64 // the limit, 0 = none
	Pending    uint64 // messages behind this one
	Stored     time.Time

	Header map[string][]string // names as published, case-sensitive
	Body   []byte

	// Sending, if set, is called with true when a connection is had and the request is about to be sent, and with false
	// when it turns out that nothing of it was, and a connection is waited for again.
	Sending func(bool)

	// Wanted, if set, is asked whether the message is still to be sent: every second while the app is not ready, after every wait, before a connection is asked for, and over
	// plain HTTP/1.1 again when it is had. If not, the outcome is HandedBack.
	Wanted func() bool

	// Turn, if set, waits until it is the request's turn, where so many a second may be sent. It is the request's turn when it is forwarded;
	// Turn is called where that was more than a fraction of a second ago when it could be sent, never while a connection is held. If it
	// returns an error, the outcome is HandedBack.
	Turn func(context.Context) error

	batch *batchOf // it stands for a batch, which its body is
}

// Result is what one attempt came to.
type Result struct {
	policy.Outcome
	Duration       time.Duration // from the connection being had to the end; 0 if none was had
	HeadersDropped int           // header lines left out because HTTP cannot carry them, and attributes that an event cannot have
	Sent           bool          // the app may have seen the request
	Refused        bool          // no connection could be made at first

	coding string // Content-Encoding of the answer's body
}
