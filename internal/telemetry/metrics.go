package telemetry

import (
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// vectors are the metrics that are counted as things happen, by stream and consumer and never by a subject or an id.
type vectors struct {
	messages, requests           *prometheus.CounterVec
	duration, latency            *prometheus.HistogramVec
	inFlight                     *prometheus.GaugeVec
	publishFailures              *prometheus.CounterVec
	headersDropped, dedupeErrors *prometheus.CounterVec
}

// Bounds in seconds: requests 1ms to 60s, latency 1ms to 1h.
var (
	durationBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	latencyBuckets  = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 15, 60, 300, 900, 3600}
)

func newVectors() *vectors {
	return &vectors{
		messages: counter("sidecar_messages_total",
			"Messages settled, by verdict. A message that is retried counts once for each delivery.", "verdict"),
		requests: counter("sidecar_requests_total",
			"Requests to the app, by HTTP status; error if there was no whole answer.", "code"),
		duration: histogram("sidecar_request_duration_seconds",
			"Duration of requests to the app, until the whole answer was read.", durationBuckets),
		latency: histogram("sidecar_delivery_latency_seconds",
			"Time from stored in the stream to settled for good: acked, dropped or stored in the DLQ.", latencyBuckets),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sidecar_in_flight", Help: "Requests to the app in flight.",
		}, consumerLabels()),
		publishFailures: counter("sidecar_dlq_publish_failures_total", "Tries to store a dead letter that did not succeed."),
		headersDropped: counter("sidecar_headers_dropped_total",
			"Headers of messages that HTTP or the DLQ entry could not carry."),
		dedupeErrors: counter("sidecar_dedupe_errors_total", "Failures to reach the shared dedupe store."),
	}
}

func (v *vectors) register(r prometheus.Registerer) {
	r.MustRegister(v.messages, v.requests, v.duration, v.latency, v.inFlight, v.publishFailures, v.headersDropped, v.dedupeErrors)
}

func consumerLabels(more ...string) []string { return append([]string{"stream", "consumer"}, more...) }

func counter(name, help string, more ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, consumerLabels(more...))
}

func histogram(name, help string, buckets []float64) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, consumerLabels())
}

// codes counts requests of one consumer by status: made at the first of each, then found without a lookup.
type codes struct {
	vector           *prometheus.CounterVec
	stream, consumer string
	counters         [600]atomic.Pointer[prometheus.Counter] // by status; 0 is no whole answer, 1 any other
}

func newCodes(v *prometheus.CounterVec, stream, consumer string) *codes {
	return &codes{vector: v, stream: stream, consumer: consumer}
}

func (c *codes) inc(status int) {
	if status != 0 && (status < 100 || status > 599) {
		status = 1
	}
	slot := &c.counters[status]
	found := slot.Load()
	if found == nil {
		made := c.vector.WithLabelValues(c.stream, c.consumer, codeWord(status))
		found = &made
		slot.Store(found) // twice at most: both count in the same child
	}
	(*found).Inc()
}

func codeWord(status int) string {
	switch status {
	case 0:
		return "error"
	case 1:
		return "other"
	default:
		return strconv.Itoa(status)
	}
}
