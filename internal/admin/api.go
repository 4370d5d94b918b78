package admin

import (
	"net/http"
	"strings"
)

// route is one method and path of the API.
type route struct {
	method, path string
	serve        http.HandlerFunc
}

// routes are all of the API; docs/openapi.yaml describes them.
func (s *Server) routes() []route {
	return []route{
		{http.MethodGet, "/api/consumers", s.bodiless(s.getConsumers)},
		{http.MethodGet, "/api/events", s.bodiless(s.getEvents)},
		{http.MethodGet, "/api/dlq", s.bodiless(s.reading(s.getDLQ))},
		{http.MethodGet, "/api/dlq/stats", s.bodiless(s.reading(s.getStats))},
		{http.MethodGet, "/api/dlq/{stream}/{seq}", s.bodiless(s.reading(s.getEntry))},
		{http.MethodDelete, "/api/dlq/{stream}/{seq}", s.bodiless(s.deleteEntry)},
		{http.MethodPost, "/api/dlq/{stream}/{seq}/replay", s.replayEntry},
		{http.MethodPost, "/api/dlq/replay", s.postReplay},
		{http.MethodPost, "/api/dlq/rm", s.postRemove},
		{http.MethodPost, "/api/dlq/stop", s.postStop},
	}
}

// api serves the routes to those who may use them.
func (s *Server) api() http.Handler {
	mux := http.NewServeMux()
	methods := map[string][]string{}
	for _, r := range s.routes() {
		mux.HandleFunc(r.method+" "+r.path, r.serve)
		methods[r.path] = append(methods[r.path], r.method)
	}
	for path, known := range methods {
		allow := strings.Join(known, ", ")
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", allow)
			s.refuse(w, http.StatusMethodNotAllowed, "only "+allow)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		s.refuse(w, http.StatusNotFound, "no such path")
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status, why := s.guard(r, true); status != 0 {
			if status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
			s.refuse(w, status, why)
			return
		}
		lockDown(w.Header())
		mux.ServeHTTP(w, r)
	})
}
