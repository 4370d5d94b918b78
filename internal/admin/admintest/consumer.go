package admintest

import (
	"sync"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/admin"
	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/pipeline"
	"github.com/jetsidecar/jetsidecar/internal/telemetry"
	"github.com/jetsidecar/jetsidecar/policy"
)

// Consumer is a consumer that is made up: admin.Pipeline and admin.Activity.
type Consumer struct {
	mu       sync.Mutex
	status   pipeline.Status
	counts   telemetry.Counts
	failures []telemetry.Failure
	looks    int
}

// NewConsumer is bound, and has done nothing yet.
func NewConsumer(stream, durable string) *Consumer {
	return &Consumer{status: pipeline.Status{
		Stream: stream, Consumer: durable, Bound: true, MaxAckPending: 10000, ConcurrencyLimit: 16, DLQEnabled: true, DLQOK: true, DLQStream: stream + "_DLQ",
	}}
}

// Admin is the consumer as the admin listener takes it.
func (c *Consumer) Admin() admin.Consumer {
	st := c.Status()
	return admin.Consumer{Pipeline: c, Activity: c, Config: config.Consumer{
		Stream: st.Stream, Durable: st.Consumer, Concurrency: 16, Prefetch: 16, MaxDeliver: 10,
		Retry: policy.RetryConfig{Initial: time.Second, Multiplier: 2, Max: time.Minute, Jitter: 0.5, RetryAfterMax: 10 * time.Minute},
	}}
}

// Change changes what it says of itself.
func (c *Consumer) Change(f func(*pipeline.Status, *telemetry.Counts, *[]telemetry.Failure)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.status, &c.counts, &c.failures)
}

// Status is admin.Pipeline's.
func (c *Consumer) Status() pipeline.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// Counts is admin.Activity's.
func (c *Consumer) Counts() telemetry.Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// Failures is admin.Activity's.
func (c *Consumer) Failures() []telemetry.Failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failures
}

// LookAtDLQ is admin.Pipeline's.
func (c *Consumer) LookAtDLQ() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
}

// Looks is how often it was told to look at its DLQ.
func (c *Consumer) Looks() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.looks
}
