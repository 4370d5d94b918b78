package telemetry

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/pipeline"
)

const (
	// maxFailures is how many failures of a consumer are kept, the last ones.
	maxFailures = 20
	// maxFailureText bounds a text of a failure that is kept, in bytes.
	maxFailureText = 512
)

// Counts are what happened in a consumer's pipeline since the start.
type Counts struct {
	Ack, Retry, DLQ, Drop, Duplicate uint64 // messages settled, by verdict; a retry counts once for each delivery
	Requests                         uint64 // to the app
	InFlight                         int64  // requests at the app now
}

// Failure is a message that was retried or dead-lettered.
type Failure struct {
	Time      time.Time
	Subject   string
	Sequence  uint64 // stream sequence
	Delivered uint64
	Result    pipeline.Result
	Reason    string // why it was dead-lettered
	Status    int    // HTTP status, 0 if there was no answer
	Error     string // error or Sidecar-Reason
	Delay     time.Duration
}

// activity is what people look at: counts, and the last failures. A message that passes costs two additions.
type activity struct {
	settled  [len(results)]atomic.Uint64
	requests atomic.Uint64
	inFlight atomic.Int64

	mu       sync.Mutex
	failures [maxFailures]Failure
	failed   int // failures ever kept: the next one goes to failed % maxFailures
}

// Counts are the numbers now.
func (c *Consumer) Counts() Counts {
	a := &c.activity
	n := func(r pipeline.Result) uint64 { return a.settled[indexOf(r)].Load() }
	return Counts{
		Ack: n(pipeline.ResultAck), Retry: n(pipeline.ResultRetry), DLQ: n(pipeline.ResultDLQ), Drop: n(pipeline.ResultDrop),
		Duplicate: n(pipeline.ResultDuplicate), Requests: a.requests.Load(), InFlight: a.inFlight.Load(),
	}
}

// Failures are the last failures, at most 20, the latest first.
func (c *Consumer) Failures() []Failure {
	a := &c.activity
	a.mu.Lock()
	defer a.mu.Unlock()
	kept := make([]Failure, 0, min(a.failed, maxFailures))
	for i := range cap(kept) {
		kept = append(kept, a.failures[(a.failed-1-i)%maxFailures])
	}
	return kept
}

func (a *activity) fail(s *pipeline.Settled) {
	f := Failure{
		Time: time.Now(), Subject: short(s.Subject), Sequence: s.Sequence, Delivered: s.Delivered,
		Result: s.Result, Reason: string(s.Reason), Status: s.Status, Error: short(s.Error), Delay: s.Delay,
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failures[a.failed%maxFailures] = f
	a.failed++
}

// short bounds a text of others. What is cut off is not held in memory.
func short(s string) string {
	if len(s) <= maxFailureText {
		return s
	}
	return strings.Clone(s[:maxFailureText])
}
