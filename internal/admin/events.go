package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

const (
	liveEvery     = time.Second      // between two events on how the consumers do
	beatEvery     = 15 * time.Second // between two comments that show that the stream lives
	mostListeners = 32
	mostWaiting   = 8 // events that wait for one listener; it is dropped at the next
	sendTimeout   = 10 * time.Second
	retryAfter    = 2000 // milliseconds after which a browser asks again
)

// hub passes events on to those who listen. It never waits for one of them.
type hub struct {
	mu        sync.Mutex
	listeners map[chan []byte]struct{}
}

// listen adds a listener; its channel is closed when it is too slow. It is nil when there are too many.
func (h *hub) listen() (events chan []byte, leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.listeners) >= mostListeners {
		return nil, nil
	}
	if h.listeners == nil {
		h.listeners = map[chan []byte]struct{}{}
	}
	events = make(chan []byte, mostWaiting)
	h.listeners[events] = struct{}{}
	return events, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.listeners, events)
	}
}

// heard reports whether anybody listens.
func (h *hub) heard() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.listeners) > 0
}

func (h *hub) send(event []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.listeners {
		select {
		case l <- event:
		default:
			close(l)
			delete(h.listeners, l)
		}
	}
}

// DLQChange is an event: what is in a DLQ stream changed.
type DLQChange struct {
	Stream string `json:"stream"`
	Depth  uint64 `json:"depth"` // messages in it, as far as is known
}

// Step is an event: the latest point of a consumer's history.
type Step struct {
	Stream   string `json:"stream"`
	Consumer string `json:"consumer"`
	Point    Point  `json:"point"`
}

// tell sends an event to all who listen.
func (s *Server) tell(name string, v any) {
	if event := s.event(name, v); event != nil {
		s.hub.send(event)
	}
}

func (s *Server) event(name string, v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		s.log.Error("an event cannot be written", slog.String("error", err.Error()))
		return nil
	}
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, data)
}

// watch keeps the history, and tells the listeners what happens, until ctx ends.
func (s *Server) watch(ctx context.Context) {
	live, step := time.NewTicker(liveEvery), time.NewTicker(s.step)
	defer live.Stop()
	defer step.Stop()
	depths := map[string]uint64{}
	s.compare(depths)
	s.remember(time.Now())
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-step.C:
			s.remember(now)
			s.tell("history", s.steps())
		case now := <-live.C:
			if s.hub.heard() {
				s.tell("consumers", s.overview(now, false))
			}
			s.compare(depths)
		}
	}
}

func (s *Server) remember(now time.Time) {
	for _, w := range s.consumers {
		w.history.add(w.take(now))
	}
}

func (s *Server) steps() []Step {
	all := []Step{}
	for _, w := range s.consumers {
		if p := w.history.points(); len(p) > 0 {
			all = append(all, Step{Stream: w.Config.Stream, Consumer: w.Config.Durable, Point: p[len(p)-1]})
		}
	}
	return all
}

// compare tells of each DLQ stream whose depth is not what it was the last time.
func (s *Server) compare(depths map[string]uint64) {
	for _, w := range s.consumers {
		st := w.Pipeline.Status()
		if !st.DLQEnabled {
			continue
		}
		if before, known := depths[st.DLQStream]; known && before != st.DLQDepth {
			s.tell("dlq", DLQChange{st.DLQStream, st.DLQDepth})
		}
		depths[st.DLQStream] = st.DLQDepth
	}
}

// getEvents streams events until the reader goes, is too slow, or the sidecar stops.
func (s *Server) getEvents(w http.ResponseWriter, r *http.Request) {
	ctx, end, ok := s.streams.begin(r.Context(), mostListeners)
	if !ok {
		s.busy(w)
		return
	}
	defer end()
	events, leave := s.hub.listen()
	if events == nil {
		s.busy(w)
		return
	}
	defer leave()
	out := s.stream(w, "text/event-stream")
	if r.Method != http.MethodGet { // HEAD
		return
	}
	first := s.event("consumers", s.overview(time.Now(), false))
	if !out.send(append(fmt.Appendf(nil, "retry: %d\n\n", retryAfter), first...)) {
		return
	}
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for {
		var next []byte
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			next = []byte(": beat\n\n")
		case next, ok = <-events:
			if !ok {
				return
			}
		}
		if !out.send(next) {
			return
		}
	}
}

// busy refuses a request of which there are too many.
func (s *Server) busy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "5")
	s.refuse(w, http.StatusServiceUnavailable, "too many requests of this kind at a time, or the sidecar is stopping")
}

// stream is an answer of many parts, each of which must be taken in time.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (s *Server) stream(w http.ResponseWriter, kind string) stream {
	out := stream{w, http.NewResponseController(w)}
	_ = out.control.SetReadDeadline(time.Time{}) // its end would end the request too
	w.Header().Set("Content-Type", kind)
	w.Header().Set("X-Accel-Buffering", "no") // a proxy that buffers would hold it back
	return out
}

func (o stream) send(part []byte) bool {
	_ = o.control.SetWriteDeadline(time.Now().Add(sendTimeout)) // not there in tests without a connection
	if _, err := o.w.Write(part); err != nil {
		return false
	}
	return o.control.Flush() == nil
}
