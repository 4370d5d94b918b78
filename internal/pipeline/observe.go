package pipeline

import (
	"time"

	"github.com/jetsidecar/jetsidecar/policy"
)

// Result is the word for a settled message in the metric and the log line.
type Result string

// The results. All but Duplicate are a verdict's.
const (
	ResultAck       Result = "ack"
	ResultRetry     Result = "retry"
	ResultDLQ       Result = "dlq"
	ResultDrop      Result = "drop"
	ResultDuplicate Result = "duplicate" // already answered: acked without a call
)

// Settled describes one settled message. It is passed by pointer and must not be kept.
type Settled struct {
	Subject   string
	Sequence  uint64 // stream sequence
	Delivered uint64 // this delivery's number, 1 on the first
	Batched   bool   // it came to the app in a batch, of which Batch is told
	Result    Result
	Reason    policy.Reason // why it was dead-lettered
	Status    int           // HTTP status, 0 if there was no answer
	Error     string        // error or Sidecar-Reason, as it came (may hold any bytes)
	Delay     time.Duration // until the next delivery, for a retry
	Duration  time.Duration // of the call of the app, 0 if there was none
	Latency   time.Duration // from stored in the stream to settled
}

// Batch describes one request with several messages. It is passed by pointer and must not be kept.
type Batch struct {
	Messages    int
	First, Last uint64 // the lowest and the highest stream sequence
	Bytes       int    // of the messages' bodies
	Status      int    // HTTP status, 0 if there was no answer
	Error       string // error or Sidecar-Reason, as it came
	Duration    time.Duration

	Ack, Retry, DLQ, Drop int // messages, by verdict
	Again                 int // messages that are tried again in smaller requests, or in place
}

// Observer is told what happens in one consumer's pipeline. Its methods are called from many goroutines and
// must not block.
type Observer interface {
	// Settled is called once for each settled message.
	Settled(*Settled)
	// Requested is called once for each request to the app that was sent: its HTTP status, 0 if there was no
	// whole answer, and how long it took.
	Requested(status int, d time.Duration)
	// Batched is called once for each request with a batch, after Requested.
	Batched(*Batch)
	// HeadersDropped counts headers of messages that could not be passed on.
	HeadersDropped(n int)
	// DeadLetterFailed is called for each failed try to store a dead letter.
	DeadLetterFailed(sequence uint64, err error)
	// DedupeFailed is called each time that the shared dedupe bucket does not answer.
	DedupeFailed()
	// InFlight is called with +1 before and -1 after each request to the app.
	InFlight(delta int)
}

// Status is a snapshot of one consumer's pipeline.
type Status struct {
	Stream   string
	Consumer string
	Bound    bool   // the durable is there and served
	Detail   string // why it is not bound, or what it waits for; empty when all is well

	BreakerOpen   bool   // the app fails message after message
	BreakerDetail string // since when, and what opened it
	BreakerSince  time.Time
	BreakerCause  string // what opened it

	// ConcurrencyLimit is how many requests may be at the app at a time now.
	ConcurrencyLimit int

	Leased     int    // messages leased by this process, in flight included
	Pending    uint64 // messages in the stream not yet delivered (num_pending)
	AckPending uint64 // delivered and not settled (num_ack_pending), by any sidecar of the durable
	Moved      uint64 // messages moved to the retry stream by this process, each time they were
	// MaxAckPending is the most of those that the durable allows, as the server has it; 0 means no limit, or not known.
	MaxAckPending int

	DLQEnabled bool
	DLQOK      bool   // the DLQ can take an entry, as far as is known
	DLQDetail  string // why it cannot, or else why it does not take a single entry
	DLQStream  string
	DLQDepth   uint64 // entries in the DLQ stream
	DLQAlert   bool   // more than alert_depth
}

// Parked is the number of messages that wait at the server for a retry, or are held by other sidecars.
func (s Status) Parked() uint64 {
	if leased := uint64(s.Leased); leased < s.AckPending {
		return s.AckPending - leased
	}
	return 0
}
