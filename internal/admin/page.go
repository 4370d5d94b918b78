package admin

import (
	"embed"
	"io"
	"net/http"
	"path"
)

// page is the web page: plain HTML, CSS and JavaScript modules.
//
//go:embed page
var page embed.FS

var kinds = map[string]string{
	".css": "text/css; charset=utf-8",
	".js":  "text/javascript; charset=utf-8",
}

// policyOfPage lets the page use what comes from here, and nothing else: whatever a message holds, none of it can run.
const policyOfPage = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// lockDown sets the headers that keep other pages away from an answer.
func lockDown(h http.Header) {
	h.Set("Content-Security-Policy", policyOfPage)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Frame-Options", "DENY")
}

// index is the web page. It holds no message and asks for the token itself.
func (s *Server) index(w http.ResponseWriter, r *http.Request) {
	if status, why := s.guard(r, false); status != 0 && !(why == foreignSite && navigation(r)) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		io.WriteString(w, s.instead(why))
		return
	}
	s.file(w, "index.html", "text/html; charset=utf-8")
}

// instead is what those see who may not see the page.
func (s *Server) instead(why string) string {
	text := "jetsidecar\n\n" +
		"The web page and the API are not for this request: " + why + ".\n\n" +
		"/livez    200 while the process works\n" +
		"/readyz   200 when everything it needs is there, with the checks as JSON\n"
	if s.metrics != nil {
		text += "/metrics  for Prometheus\n"
	}
	if s.config.PProf {
		text += "/debug/pprof/  Go profiles\n"
	}
	return text
}

func (s *Server) asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	kind := kinds[path.Ext(name)]
	if kind == "" {
		http.Error(w, "no such path", http.StatusNotFound)
		return
	}
	if status, why := s.guard(r, false); status != 0 {
		http.Error(w, why, status)
		return
	}
	s.file(w, name, kind)
}

func (s *Server) file(w http.ResponseWriter, name, kind string) {
	content, err := page.ReadFile("page/" + name)
	if err != nil {
		http.Error(w, "no such path", http.StatusNotFound)
		return
	}
	lockDown(w.Header())
	w.Header().Set("Content-Type", kind)
	w.Write(content)
}
