package admin

import (
	"encoding/json"
	"log/slog"
	"net/http"
)

// answer writes a value as JSON.
func (s *Server) answer(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		s.log.Error("an answer cannot be written", slog.String("error", err.Error()))
		status, body = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(body, '\n'))
}

// fault is the body of every answer of the API that is no success.
type fault struct {
	Error string `json:"error"`
}

// refuse answers that a request is not served, and why.
func (s *Server) refuse(w http.ResponseWriter, status int, why string) {
	s.answer(w, status, fault{why})
}
