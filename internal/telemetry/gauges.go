package telemetry

import (
	"runtime"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jetsidecar/jetsidecar/internal/pipeline"
)

// gauges are the metrics that are read at each scrape instead of being kept.
type gauges struct {
	o         Options
	consumers []consumerGauge
	dlqDepth  *prometheus.Desc
	moved     *prometheus.Desc
	dlqAlert  *prometheus.Desc
	appUp     *prometheus.Desc
	connected *prometheus.Desc
	build     *prometheus.Desc
}

type consumerGauge struct {
	desc *prometheus.Desc
	read func(pipeline.Status) float64
}

func newGauges(o Options) *gauges {
	return &gauges{
		o: o,
		consumers: []consumerGauge{
			{gauge("sidecar_concurrency_limit", "Requests that may be at the app at a time: concurrency, or what was found out with an adaptive one.", consumerLabels()...),
				func(s pipeline.Status) float64 { return float64(s.ConcurrencyLimit) }},
			{gauge("sidecar_leased", "Messages leased by this sidecar, those in flight included.", consumerLabels()...),
				func(s pipeline.Status) float64 { return float64(s.Leased) }},
			{gauge("sidecar_pending", "Messages in the stream that were not delivered yet (num_pending).", consumerLabels()...),
				func(s pipeline.Status) float64 { return float64(s.Pending) }},
			{gauge("sidecar_ack_pending", "Messages delivered and not settled, by any sidecar (num_ack_pending).", consumerLabels()...),
				func(s pipeline.Status) float64 { return float64(s.AckPending) }},
			{gauge("sidecar_max_ack_pending", "The most of those that the durable allows (max_ack_pending); 0 if there is no limit.", consumerLabels()...),
				func(s pipeline.Status) float64 { return float64(s.MaxAckPending) }},
			{gauge("sidecar_consumer_bound", "1 if the durable is there and served.", consumerLabels()...),
				func(s pipeline.Status) float64 { return bit(s.Bound) }},
			{gauge("sidecar_parked", "Messages that wait at the server for a retry, or are held by other sidecars.", consumerLabels()...),
				func(s pipeline.Status) float64 { return float64(s.Parked()) }},
			{gauge("sidecar_breaker_open", "1 while the app fails message after message and is only probed.", consumerLabels()...),
				func(s pipeline.Status) float64 { return bit(s.BreakerOpen) }},
		},
		moved:     gauge("sidecar_moved_total", "Messages moved to the stream sidecar-retries to wait for a retry there.", consumerLabels()...),
		dlqDepth:  gauge("sidecar_dlq_depth", "Entries in the DLQ stream.", consumerLabels()...),
		dlqAlert:  gauge("sidecar_dlq_alert", "1 while the DLQ stream has more entries than alert_depth.", consumerLabels()...),
		appUp:     gauge("sidecar_app_up", "1 if the app can be reached."),
		connected: gauge("sidecar_nats_connected", "1 if NATS is connected."),
		build:     gauge("sidecar_build_info", "1, with what this sidecar was built from.", "version", "commit", "goversion"),
	}
}

func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe is a prometheus.Collector's.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range g.consumers {
		ch <- c.desc
	}
	ch <- g.dlqDepth
	ch <- g.moved
	ch <- g.dlqAlert
	ch <- g.appUp
	ch <- g.connected
	ch <- g.build
}

// Collect is a prometheus.Collector's.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	send(ch, g.build, 1, g.o.Version, g.o.Commit, runtime.Version())
	if g.o.AppUp != nil {
		send(ch, g.appUp, bit(g.o.AppUp()))
	}
	if g.o.NATSConnected != nil {
		send(ch, g.connected, bit(g.o.NATSConnected()))
	}
	if g.o.Statuses == nil {
		return
	}
	for _, s := range g.o.Statuses() {
		for _, c := range g.consumers {
			send(ch, c.desc, c.read(s), s.Stream, s.Consumer)
		}
		ch <- prometheus.MustNewConstMetric(g.moved, prometheus.CounterValue, float64(s.Moved), label(s.Stream), label(s.Consumer))
		if s.DLQEnabled {
			send(ch, g.dlqDepth, float64(s.DLQDepth), s.Stream, s.Consumer)
			send(ch, g.dlqAlert, bit(s.DLQAlert), s.Stream, s.Consumer)
		}
	}
}

func send(ch chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	for i, l := range labels {
		labels[i] = label(l)
	}
	ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

// label makes a text one that a label may hold.
func label(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

func bit(on bool) float64 {
	if on {
		return 1
	}
	return 0
}
