package admin

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/dlq"
)

// readTimeoutDLQ bounds how long the DLQ is read for one answer.
const readTimeoutDLQ = time.Minute

// mostReads are requests that read the DLQ at a time: an entry may be large.
const mostReads = 16

// Letters are read here, as by dlq.Service.
type Letters interface {
	List(ctx context.Context, f dlq.Filter) iter.Seq2[*dlq.Entry, error]
	Get(ctx context.Context, stream string, seq uint64) (*dlq.Letter, error)
	Stats(ctx context.Context, f dlq.Filter) (*dlq.Stats, error)
}

// Changes are made here, as by dlq.Service.
type Changes interface {
	Streams() []string
	Remove(ctx context.Context, f dlq.Filter, o dlq.RemoveOptions) (*dlq.Report, error)
	Replay(ctx context.Context, f dlq.Filter, o dlq.ReplayOptions) (*dlq.Report, error)
}

// Page is the answer to GET /api/dlq.
type Page struct {
	Streams    []string     `json:"streams"` // the DLQ streams of the configuration
	Entries    []*dlq.Entry `json:"entries"`
	Next       string       `json:"next,omitempty"` // for after; absent at the end
	dlq.Passed              // what was left out on the way to these entries
}

// Stats is the answer to GET /api/dlq/stats.
type Stats struct {
	*dlq.Stats
	UpTo []dlq.Cursor `json:"up_to"` // for a replay or a removal of no more than was counted
}

// reading bounds a request that reads the DLQ.
func (s *Server) reading(next func(http.ResponseWriter, *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, end, ok := s.begin(&s.reads, r, mostReads)
		if !ok {
			s.busy(w)
			return
		}
		defer end()
		ctx, cancel := context.WithTimeout(ctx, readTimeoutDLQ)
		defer cancel()
		next(w, r.WithContext(ctx))
	}
}

// selected is the filter that a request's parameters ask for; nil after a refusal.
func (s *Server) selected(w http.ResponseWriter, r *http.Request, more ...string) *dlq.Filter {
	sel, err := selectionOf(r.URL.Query(), more...)
	if err == nil {
		var f dlq.Filter
		if f, err = sel.filter(time.Now()); err == nil {
			return &f
		}
	}
	s.refuse(w, http.StatusBadRequest, err.Error())
	return nil
}

func (s *Server) getDLQ(w http.ResponseWriter, r *http.Request) {
	f := s.selected(w, r, "order")
	if f == nil {
		return
	}
	if f.Limit == 0 {
		f.Limit = defaultPage
	}
	if f.Limit > maxPage {
		s.refuse(w, http.StatusBadRequest, "limit: at most "+strconv.Itoa(maxPage))
		return
	}
	page := Page{Streams: s.changes.Streams()}
	streams := page.Streams
	if f.Stream != "" {
		streams = []string{f.Stream}
	}
	if err := f.After.Check(streams); err != nil {
		s.failed(w, err)
		return
	}
	var next dlq.Position
	var err error
	switch order := r.URL.Query().Get("order"); order {
	case "", "oldest":
		page.Entries, next, page.Passed, err = s.oldest(r.Context(), *f, streams)
	case "newest":
		page.Entries, next, page.Passed, err = s.newest(r.Context(), *f, streams)
	default:
		s.refuse(w, http.StatusBadRequest, "order: oldest or newest")
		return
	}
	if err != nil {
		s.failed(w, err)
		return
	}
	page.Next = next.String()
	s.answer(w, http.StatusOK, page)
}

func (s *Server) getStats(w http.ResponseWriter, r *http.Request) {
	f := s.selected(w, r)
	if f == nil {
		return
	}
	stats, err := s.letters.Stats(r.Context(), *f)
	if err != nil {
		s.failed(w, err)
		return
	}
	if stats.Groups == nil {
		stats.Groups = []dlq.Group{}
	}
	s.answer(w, http.StatusOK, Stats{stats, stats.UpTo})
}

func (s *Server) getEntry(w http.ResponseWriter, r *http.Request) {
	stream, seq, ok := s.named(w, r)
	if !ok {
		return
	}
	letter, err := s.letters.Get(r.Context(), stream, seq)
	if err != nil {
		s.failed(w, err)
		return
	}
	if letter.Headers == nil {
		letter.Headers = map[string][]string{}
	}
	if letter.Body == nil {
		letter.Body = []byte{}
	}
	s.answer(w, http.StatusOK, letter)
}

// named is the entry that a request's path names.
func (s *Server) named(w http.ResponseWriter, r *http.Request) (stream string, seq uint64, ok bool) {
	stream = r.PathValue("stream")
	seq, err := strconv.ParseUint(r.PathValue("seq"), 10, 64)
	if err != nil || seq == 0 {
		s.refuse(w, http.StatusBadRequest, "the sequence must be a number from 1 on")
		return "", 0, false
	}
	if !slices.Contains(s.changes.Streams(), stream) {
		s.refuse(w, http.StatusNotFound, "there is no such DLQ stream in the configuration")
		return "", 0, false
	}
	return stream, seq, true
}

// failed answers with what the DLQ could not do.
func (s *Server) failed(w http.ResponseWriter, err error) {
	s.refuse(w, statusOf(err), err.Error())
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, dlq.ErrPosition):
		return http.StatusBadRequest
	case errors.Is(err, dlq.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, dlq.ErrAnew):
		return http.StatusConflict
	case errors.Is(err, dlq.ErrAppAway):
		return http.StatusBadGateway
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	default: // NATS is away, or does not let us
		return http.StatusServiceUnavailable
	}
}
