// Package telemetry tells operators what happens: the log and the metrics. It is the only package that knows the
// metrics library.
package telemetry

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/jetsidecar/jetsidecar/internal/pipeline"
)

// Options are what a Telemetry is made of. The funcs are called at each scrape, from any goroutine; a nil one leaves
// out its metrics.
type Options struct {
	Log           *slog.Logger
	Statuses      func() []pipeline.Status // one for each consumer
	AppUp         func() bool
	NATSConnected func() bool
	Version       string
	Commit        string
}

// Telemetry is the log and the metrics of one sidecar.
type Telemetry struct {
	log      *slog.Logger
	registry *prometheus.Registry
	vectors  *vectors
}

// New makes a Telemetry with a registry of its own. It starts nothing.
func New(o Options) *Telemetry {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	t := &Telemetry{log: o.Log, registry: prometheus.NewRegistry(), vectors: newVectors()}
	t.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newGauges(o),
	)
	t.vectors.register(t.registry)
	return t
}

// Handler serves the metrics in the Prometheus formats.
func (t *Telemetry) Handler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{
		Registry: t.registry, ErrorLog: scrapeLog{t.log}, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4,
	})
}

// scrapeLog logs what went wrong in a scrape.
type scrapeLog struct{ log *slog.Logger }

// Println is called with an error among other values.
func (l scrapeLog) Println(v ...any) {
	for _, x := range v {
		if err, ok := x.(error); ok {
			l.log.Warn("metrics are incomplete", slog.String("error", err.Error()))
		}
	}
}
