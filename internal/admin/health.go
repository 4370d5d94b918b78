package admin

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"

	"github.com/jetsidecar/jetsidecar/internal/pipeline"
)

// Readiness is whether the sidecar does its work, and what it looked at to tell.
type Readiness struct {
	Ready  bool    `json:"ready"`
	Checks []Check `json:"checks"`
}

// Check is one thing the sidecar needs.
type Check struct {
	Name     string `json:"name"`               // nats, app, consumer or dlq
	Stream   string `json:"stream,omitempty"`   // the source stream, of consumer and dlq
	Consumer string `json:"consumer,omitempty"` // the durable, of consumer and dlq
	OK       bool   `json:"ok"`
	Detail   string `json:"detail"` // what is wrong, or worth to know
}

// Checks looks at NATS, the app, and of each consumer its durable and its DLQ, if it has one. appDetail says why the app
// is not reachable. An app that fails so that a breaker is open is not ready either.
func Checks(nats, app bool, appDetail string, statuses []pipeline.Status) Readiness {
	for _, s := range statuses {
		if s.BreakerOpen {
			appDetail = or(unless(app, appDetail), fmt.Sprintf("consumer %s of stream %s: %s", s.Consumer, s.Stream, s.BreakerDetail))
			app = false
		}
	}
	checks := []Check{
		{Name: "nats", OK: nats, Detail: unless(nats, "not connected")},
		{Name: "app", OK: app, Detail: unless(app, or(appDetail, "not reachable"))},
	}
	for _, s := range statuses {
		checks = append(checks, Check{
			Name: "consumer", Stream: s.Stream, Consumer: s.Consumer, OK: s.Bound,
			Detail: or(s.Detail, unless(s.Bound, "not bound")),
		})
		if s.DLQEnabled {
			checks = append(checks, Check{
				Name: "dlq", Stream: s.Stream, Consumer: s.Consumer, OK: s.DLQOK,
				Detail: or(s.DLQDetail, unless(s.DLQOK, "cannot take an entry")),
			})
		}
	}
	ready := true
	for _, c := range checks {
		ready = ready && c.OK
	}
	return Readiness{Ready: ready, Checks: checks}
}

// Stopping is what is told while the sidecar stops: it serves no consumer any more.
func (r Readiness) Stopping() Readiness {
	r.Ready, r.Checks = false, slices.Clone(r.Checks)
	for i := range r.Checks {
		if c := &r.Checks[i]; c.Name == "consumer" {
			c.OK, c.Detail = false, "the sidecar is stopping"
		}
	}
	return r
}

func unless(ok bool, detail string) string {
	if ok {
		return ""
	}
	return detail
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func livez(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	io.WriteString(w, "ok\n")
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	r := s.ready()
	if r.Checks == nil {
		r.Checks = []Check{}
	}
	body, err := json.Marshal(r)
	if err != nil {
		s.log.Error("readiness cannot be written", slog.String("error", err.Error()))
		http.Error(w, "readiness cannot be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if !r.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	w.Write(append(body, '\n'))
}
