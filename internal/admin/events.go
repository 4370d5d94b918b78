package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

const (
	liveEvery     = time.Second      // between two events on how the consumers do
	beatEvery     = 15 * time.Second // between two comments that show that the stream lives
	mostListeners = 32
	sendTimeout   = 10 * time.Second // a reader that takes nothing for so long is dropped
	retryAfter    = 2000             // milliseconds after which a browser asks again
)

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

// tell sends an event to all who listen. For a listener that lags it takes the place of the one before of this name and subject.
func (s *Server) tell(name, about string, v any) {
	if event := s.event(name, v); event != nil {
		s.hub.send(topic{name, about}, event)
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
	told := s.depths.look(s.consumers)
	s.remember(time.Now())
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-step.C:
			s.remember(now)
			s.tell("history", "", s.steps())
		case now := <-live.C:
			if s.hub.heard() {
				s.tell("consumers", "", s.overview(now, false))
			}
			depths := s.depths.look(s.consumers)
			s.compare(told, depths)
			told = depths
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
func (s *Server) compare(before, now map[string]uint64) {
	for stream, depth := range now {
		if was, known := before[stream]; known && was != depth {
			s.tell("dlq", stream, DLQChange{stream, depth})
		}
	}
}

// getEvents streams events until the reader goes, takes nothing any more, or the sidecar stops.
func (s *Server) getEvents(w http.ResponseWriter, r *http.Request) {
	ctx, end, ok := s.begin(&s.streams, r, mostListeners)
	if !ok {
		s.busy(w)
		return
	}
	defer end()
	l := s.hub.listen()
	defer s.hub.leave(l)
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
		case <-l.ready:
			next = s.hub.take(l)
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
