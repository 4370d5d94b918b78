package telemetry

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jetsidecar/jetsidecar/internal/pipeline"
)

// maxLogged bounds a text of others in a log line, in bytes.
const maxLogged = 1 << 10

// Consumer is told what happens in the pipeline of one consumer: a pipeline.Observer. All is looked up beforehand.
type Consumer struct {
	log      slog.Handler
	lines    *lines // nil: log writes them
	messages [len(results)]prometheus.Counter
	requests *codes
	duration prometheus.Observer
	latency  prometheus.Observer
	inFlight prometheus.Gauge

	publishFailures prometheus.Counter
	headersDropped  prometheus.Counter
	dedupeErrors    prometheus.Counter

	activity activity
}

var _ pipeline.Observer = (*Consumer)(nil)

// Consumer returns the observer of a durable consumer. Asked again, its metrics count on.
func (t *Telemetry) Consumer(stream, durable string) *Consumer {
	v := t.vectors
	log := t.log.Handler().WithAttrs([]slog.Attr{slog.String("stream", stream), slog.String("consumer", durable)})
	stream, durable = label(stream), label(durable)
	c := &Consumer{
		log:             log,
		lines:           linesOf(log),
		requests:        newCodes(v.requests, stream, durable),
		duration:        v.duration.WithLabelValues(stream, durable),
		latency:         v.latency.WithLabelValues(stream, durable),
		inFlight:        v.inFlight.WithLabelValues(stream, durable),
		publishFailures: v.publishFailures.WithLabelValues(stream, durable),
		headersDropped:  v.headersDropped.WithLabelValues(stream, durable),
		dedupeErrors:    v.dedupeErrors.WithLabelValues(stream, durable),
	}
	for i, r := range results {
		c.messages[i] = v.messages.WithLabelValues(stream, durable, string(r))
	}
	return c
}

// results are the words of sidecar_messages_total{verdict}; indexOf is their order.
var results = [...]pipeline.Result{
	pipeline.ResultAck, pipeline.ResultRetry, pipeline.ResultDLQ, pipeline.ResultDrop, pipeline.ResultDuplicate,
}

func indexOf(r pipeline.Result) int {
	for i, word := range results {
		if r == word {
			return i
		}
	}
	return -1
}

// Settled counts a settled message and logs its line.
func (c *Consumer) Settled(s *pipeline.Settled) {
	if i := indexOf(s.Result); i >= 0 {
		c.messages[i].Inc()
		c.activity.settled[i].Add(1)
	}
	if s.Result != pipeline.ResultRetry { // which is not the message's end
		c.latency.Observe(max(s.Latency, 0).Seconds())
	}
	level := slog.LevelInfo
	if s.Batched && s.Result == pipeline.ResultAck {
		level = slog.LevelDebug // the line of its batch says it
	}
	if s.Result == pipeline.ResultDLQ {
		level = slog.LevelWarn
	}
	if s.Result == pipeline.ResultRetry || s.Result == pipeline.ResultDLQ {
		c.activity.fail(s)
	}
	ctx := context.Background()
	if !c.log.Enabled(ctx, level) {
		return
	}
	if now := time.Now(); c.lines == nil || level == slog.LevelDebug || !c.lines.write(now, level, s) {
		c.line(ctx, now, level, s)
	}
}

// line logs one wide line. Both durations share one string, to allocate once; the record is made here, because a Logger
// would look for the caller each time.
func (c *Consumer) line(ctx context.Context, now time.Time, level slog.Level, s *pipeline.Settled) {
	var room [64]byte
	b := append(room[:0], s.Delay.String()...)
	n := len(b)
	both := string(append(b, s.Duration.String()...))
	attrs := [...]slog.Attr{
		slog.String("subject", s.Subject),
		slog.Uint64("sequence", s.Sequence),
		slog.Uint64("delivered", s.Delivered),
		slog.String("verdict", string(s.Result)),
		slog.String("reason", string(s.Reason)),
		slog.Int("status", s.Status),
		slog.String("delay", both[:n]),
		slog.String("duration", both[n:]),
		slog.String("error", s.Error[:min(len(s.Error), maxLogged)]),
	}
	fields := attrs[:]
	if s.Error == "" {
		fields = attrs[:len(attrs)-1]
	}
	r := slog.NewRecord(now, level, "settled", 0)
	r.AddAttrs(fields...)
	_ = c.log.Handle(ctx, r) // the sink never fails
}

// Requested counts a request to the app: its status, 0 if there was no whole answer, and how long it took.
func (c *Consumer) Requested(status int, d time.Duration) {
	c.requests.inc(status)
	c.activity.requests.Add(1)
	c.duration.Observe(d.Seconds())
}

// HeadersDropped counts headers that could not be passed on.
func (c *Consumer) HeadersDropped(n int) { c.headersDropped.Add(float64(max(n, 0))) }

// DeadLetterFailed counts a try to store a dead letter. The pipeline logs it, seldom enough.
func (c *Consumer) DeadLetterFailed(uint64, error) { c.publishFailures.Inc() }

// DedupeFailed counts a failure to reach the shared store of what was answered.
func (c *Consumer) DedupeFailed() { c.dedupeErrors.Inc() }

// InFlight is called with +1 before and -1 after each request.
func (c *Consumer) InFlight(delta int) {
	c.inFlight.Add(float64(delta))
	c.activity.inFlight.Add(int64(delta))
}
