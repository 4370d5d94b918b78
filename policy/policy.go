// Package policy decides what becomes of a message after an attempt to deliver it.
//
// Everything here is a pure function of its arguments: the package knows no clock, no context, no
// random source and no NATS. Time and randomness come in as data.
package policy

import "time"

// Verdict is what happens to a message.
type Verdict uint8

// The verdicts. The zero Verdict means that none was given.
const (
	Ack   Verdict = iota + 1 // done: remember it, then ack
	Retry                    // deliver again after a delay (NakWithDelay)
	DLQ                      // store it in the dead letter queue, then term
	Drop                     // not wanted: remember it, then ack, counted apart
)

// Reason says why a message was dead-lettered. It is one closed set: the same word in the metric, the
// log line and the Dlq-Reason header.
type Reason string

// The reasons.
const (
	ReasonRejected         Reason = "rejected"           // the app's answer said so
	ReasonMaxDeliver       Reason = "max_deliver"        // a retry on the last allowed attempt
	ReasonMaxAge           Reason = "max_age"            // a retry of a message that is too old
	ReasonCrashLoop        Reason = "crash_loop"         // its processes died while it was tried alone
	ReasonMaxDeliverServer Reason = "max_deliver_server" // the server gave up on it
	ReasonUndeliverable    Reason = "undeliverable"      // no valid HTTP request can be made of it
)

// Kind says how an attempt ended.
type Kind uint8

// The kinds of outcome.
const (
	Answered      Kind = iota + 1 // the whole answer was read
	NoAnswer                      // the request was sent, but no whole answer came in time, or the connection broke
	Undeliverable                 // no valid request can be made of the message
	HandedBack                    // cut off by a stop before an answer: not an attempt, not a failure
)

// Outcome is what one attempt came to. Failing is an outcome, never an error.
type Outcome struct {
	Kind       Kind
	Status     int           // HTTP status, when Answered
	Action     Verdict       // from Sidecar-Action; zero if the header is absent or makes no sense
	Reason     string        // from Sidecar-Reason, as sent (at most 1 KiB)
	Later      bool          // a Retry-After that makes sense was there, also one of 0 or in the past
	RetryAfter time.Duration // from it, else 0
	Error      string        // what went wrong, when there is no answer
	Response   []byte        // the start of the response body, at most 1 KiB
}

// Attempt is what Decide needs to know of the message.
type Attempt struct {
	Number uint64        // this delivery's number, 1 on the first
	Age    time.Duration // since the stream stored the message
	Random float64       // in [0, 1), for the jitter
}

// Decision is the verdict over one attempt.
type Decision struct {
	Verdict Verdict       // zero only for HandedBack
	Reason  Reason        // set when Verdict is DLQ
	Delay   time.Duration // set when Verdict is Retry, always above 0
}
