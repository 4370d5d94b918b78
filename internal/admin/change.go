package admin

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/dlq"
)

const (
	mostChanges   = 8                      // replays and removals at a time
	progressEvery = 200 * time.Millisecond // between two lines on how far it is
	aliveEvery    = 5 * time.Second        // between two lines when nothing happens
)

// ReplayRequest is the body of POST /api/dlq/replay: a selection, and how.
type ReplayRequest struct {
	Selection
	DryRun bool `json:"dry_run"`
	How
}

// How is the body of POST /api/dlq/{stream}/{seq}/replay.
type How struct {
	To          dlq.Destination `json:"to"`
	Rate        *float64        `json:"rate"`        // entries a second, 50 if it is left out; 0: no limit
	Concurrency *int            `json:"concurrency"` // 1 if it is left out
	MaxReplays  *int            `json:"max_replays"` // 100 if it is left out; 0: no limit
}

// RemoveRequest is the body of POST /api/dlq/rm.
type RemoveRequest struct {
	Selection
	DryRun bool `json:"dry_run"`
}

// Line is one line of the answer to POST /api/dlq/replay and /api/dlq/rm: progress, and last a report, with an error if it could
// not go on. Who leaves before the report, or whom the sidecar leaves, has read what failed so far.
type Line struct {
	Change   string        `json:"change,omitempty"` // in the first line: its name, for POST /api/dlq/stop
	Progress *dlq.Progress `json:"progress,omitempty"`
	Failures []dlq.Failure `json:"failures,omitempty"` // with progress: what is still in the DLQ so far, all of it; absent if it is as before
	Report   *dlq.Report   `json:"report,omitempty"`
	Error    string        `json:"error,omitempty"`
}

func (h How) options() (dlq.ReplayOptions, error) {
	o := dlq.ReplayOptions{
		To: h.To, Rate: given(h.Rate, dlq.DefaultRate), Concurrency: given(h.Concurrency, 1), MaxReplays: given(h.MaxReplays, dlq.DefaultMaxReplays),
	}
	switch {
	case h.To != "" && h.To != dlq.ToApp && h.To != dlq.ToStream:
		return o, errors.New("to: app or stream")
	case o.Rate < 0 || o.Rate > dlq.MaxRate:
		return o, fmt.Errorf("rate: 0 to %.0f", dlq.MaxRate)
	case o.Concurrency < 1 || o.Concurrency > dlq.MaxConcurrency:
		return o, fmt.Errorf("concurrency: 1 to %d", dlq.MaxConcurrency)
	case o.MaxReplays < 0:
		return o, errors.New("max_replays: must not be negative")
	}
	return o, nil
}

// given is what was given, or else what goes without saying.
func given[T any](v *T, otherwise T) T {
	if v == nil {
		return otherwise
	}
	return *v
}

// deleteEntry removes one entry.
func (s *Server) deleteEntry(w http.ResponseWriter, r *http.Request) {
	s.one(w, r, func(ctx context.Context, f dlq.Filter, told func(dlq.Progress)) (*dlq.Report, error) {
		return s.changes.Remove(ctx, f, dlq.RemoveOptions{OnProgress: told})
	})
}

// replayEntry replays one entry.
func (s *Server) replayEntry(w http.ResponseWriter, r *http.Request) {
	var how How
	if !s.body(w, r, &how, true) {
		return
	}
	o, err := how.options()
	if err != nil {
		s.refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	s.one(w, r, s.replaying(o))
}

// replaying replays with these options.
func (s *Server) replaying(o dlq.ReplayOptions) change {
	return func(ctx context.Context, f dlq.Filter, told func(dlq.Progress)) (*dlq.Report, error) {
		o.OnProgress = told
		return s.changes.Replay(ctx, f, o)
	}
}

// change removes or replays what a filter selects, and tells how far it is.
type change func(ctx context.Context, f dlq.Filter, told func(dlq.Progress)) (*dlq.Report, error)

// keptAnswer is the answer where the entry was left as it was.
type keptAnswer struct {
	Error string `json:"error"`
	*dlq.Outcome
}

// one does it with the entry that the path names, and answers with what became of it.
func (s *Server) one(w http.ResponseWriter, r *http.Request, do change) {
	stream, seq, ok := s.named(w, r)
	if !ok {
		return
	}
	ctx, end, ok := s.begin(&s.changing, r, mostChanges)
	if !ok {
		s.busy(w)
		return
	}
	defer end()
	letter, err := s.letters.Get(ctx, stream, seq) // either part of two names the entry
	if err != nil {
		s.failed(w, err)
		return
	}
	consumer := r.URL.Query().Get("consumer")
	if err := letter.Unnamed(consumer); err != nil {
		s.refuse(w, http.StatusConflict, err.Error()+", as the parameter consumer")
		return
	}
	if shown := r.URL.Query().Get("time"); shown != "" && shown != letter.Time.Format(time.RFC3339Nano) {
		s.failed(w, dlq.ErrAnew)
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // the app may take longer than a request of ours should
	_ = control.SetWriteDeadline(time.Time{})
	var last *dlq.Outcome
	report, err := do(ctx, dlq.Filter{Stream: stream, Consumer: consumer, First: letter.Seq, Last: letter.Seq}, func(p dlq.Progress) {
		if p.Last != nil {
			last = p.Last
		}
	})
	_ = control.SetWriteDeadline(time.Now().Add(sendTimeout))
	s.changed(stream)
	switch {
	case last != nil && last.Result == dlq.Kept:
		s.answer(w, http.StatusConflict, keptAnswer{last.Why, last})
	case last != nil:
		s.answer(w, http.StatusOK, last)
	case err != nil:
		s.failed(w, err)
	case report.Interrupted:
		s.refuse(w, http.StatusServiceUnavailable, "it was stopped before it was through")
	default:
		s.refuse(w, http.StatusNotFound, dlq.ErrNotFound.Error())
	}
}

func (s *Server) postReplay(w http.ResponseWriter, r *http.Request) {
	var request ReplayRequest
	if !s.body(w, r, &request, false) {
		return
	}
	o, err := request.options()
	if err != nil {
		s.refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	o.DryRun = request.DryRun
	s.many(w, r, request.Selection, s.replaying(o))
}

func (s *Server) postRemove(w http.ResponseWriter, r *http.Request) {
	var request RemoveRequest
	if !s.body(w, r, &request, false) {
		return
	}
	s.many(w, r, request.Selection, func(ctx context.Context, f dlq.Filter, told func(dlq.Progress)) (*dlq.Report, error) {
		return s.changes.Remove(ctx, f, dlq.RemoveOptions{DryRun: request.DryRun, OnProgress: told})
	})
}

// StopRequest is the body of POST /api/dlq/stop.
type StopRequest struct {
	Change string `json:"change"`
}

// postStop stops a change between two entries. Its own answer then ends with the report.
func (s *Server) postStop(w http.ResponseWriter, r *http.Request) {
	var request StopRequest
	if !s.body(w, r, &request, false) {
		return
	}
	stop, found := s.stops.Load(request.Change)
	if !found {
		s.refuse(w, http.StatusNotFound, "there is no such change, or it has ended")
		return
	}
	stop.(context.CancelFunc)()
	s.answer(w, http.StatusOK, request)
}

// many does it with all that are selected, and answers with lines of JSON as it goes on. It stops when the reader goes, or asks for it.
func (s *Server) many(w http.ResponseWriter, r *http.Request, sel Selection, do change) {
	f, err := sel.filter(time.Now())
	if err != nil {
		s.refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, end, ok := s.begin(&s.changing, r, mostChanges)
	if !ok {
		s.busy(w)
		return
	}
	defer end()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	name := rand.Text()
	s.stops.Store(name, stop)
	meter := newMeter()
	var report *dlq.Report
	done := make(chan struct{})
	go func() {
		defer close(done)
		report, err = do(ctx, f, meter.told)
	}()
	out := s.stream(w, "application/x-ndjson")
	if !s.report(out, name, meter, done) {
		stop() // nobody reads on: a replay that nobody watches is not wanted
	}
	<-done
	s.stops.Delete(name)
	s.changed(f.Stream)
	last := Line{Report: report}
	if err != nil {
		last.Error = err.Error()
	}
	if report != nil && report.Failures == nil {
		report.Failures = []dlq.Failure{}
	}
	out.line(last)
}

// changed lets the depth of a DLQ stream be looked up, or that of all: what shows it then shows it right.
func (s *Server) changed(stream string) {
	for _, w := range s.consumers {
		if stream == "" || w.Pipeline.Status().DLQStream == stream {
			w.Pipeline.LookAtDLQ()
		}
	}
}

// report writes how far it is until it is done, and reports whether somebody reads.
func (s *Server) report(out stream, name string, m *meter, done <-chan struct{}) bool {
	tick, alive := time.NewTicker(progressEvery), time.NewTicker(aliveEvery)
	defer tick.Stop()
	defer alive.Stop()
	if !out.line(Line{Change: name, Progress: &dlq.Progress{}}) { // at once: it has begun
		return false
	}
	for {
		select {
		case <-done:
			return true
		case <-tick.C:
			if l := m.news(); l != nil && !out.line(*l) {
				return false
			}
		case <-alive.C:
			if !out.line(m.latest()) {
				return false
			}
		}
	}
}

func (o stream) line(l Line) bool {
	b, err := json.Marshal(l)
	return err == nil && o.send(append(b, '\n'))
}

// meter keeps the latest progress, and what failed so far.
type meter struct {
	mu       sync.Mutex
	now      dlq.Progress
	failures dlq.Failures
	// What was not read yet.
	new, failed bool
}

func newMeter() *meter { return &meter{} }

func (m *meter) told(p dlq.Progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now, m.new = p, true
	if p.Last != nil && m.failures.Add(*p.Last) {
		m.failed = true
	}
}

// news is a line on the latest progress, nil if it was read before.
func (m *meter) news() *Line {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.new {
		return nil
	}
	p := m.now
	l := &Line{Progress: &p}
	if m.failed {
		l.Failures = m.failures.List()
	}
	m.new, m.failed = false, false
	return l
}

// latest is a line on the latest progress, whether it was read before or not.
func (m *meter) latest() Line {
	if l := m.news(); l != nil {
		return *l
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.now
	return Line{Progress: &p}
}
