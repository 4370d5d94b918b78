package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"
)

const (
	maxBody     = 64 << 10        // bytes of a request
	bodyTimeout = 5 * time.Second // for all of it to come, to who may use the API
)

const noBody = "no body is wanted here"

// unread lets nobody wait for the body of a request, whatever is answered to it and by whom: the connection ends with the answer, and
// nothing that is still to come is read. Only what wants the body reads it: see body.
func unread(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // not there in tests without a connection
}

// hasBody reports whether a request has a body, or is to have one.
func hasBody(r *http.Request) bool { return r.ContentLength != 0 }

// bodiless refuses requests with a body.
func (s *Server) bodiless(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if hasBody(r) {
			s.refuse(w, http.StatusBadRequest, noBody)
			return
		}
		next(w, r)
	}
}

// wanted reads the whole body of a request. It does not wait long for it.
func (s *Server) wanted(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if !hasBody(r) {
		return nil, nil
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		unread(w)
		return nil, err
	}
	_ = control.SetReadDeadline(time.Time{}) // what is done now may take longer
	w.Header().Del("Connection")
	s.open.asked(r.Context())
	return raw, nil
}

// body reads a JSON object into v. An empty body is one that was forgotten, unless it may be left out.
func (s *Server) body(w http.ResponseWriter, r *http.Request, v any, optional bool) bool {
	if formLike(r.Header.Get("Content-Type")) {
		s.refuse(w, http.StatusUnsupportedMediaType, "the Content-Type must be application/json")
		return false
	}
	raw, err := s.wanted(w, r)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		s.refuse(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", maxBody))
		return false
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.refuse(w, http.StatusRequestTimeout, fmt.Sprintf("the body did not come within %s", bodyTimeout))
		return false
	case err != nil:
		s.refuse(w, http.StatusBadRequest, "the body could not be read")
		return false
	case len(bytes.TrimSpace(raw)) == 0 && optional:
		return true
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err = d.Decode(v); err == nil && !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) { // null
		err = errors.New("it is none")
	}
	if err == nil && d.More() {
		err = errors.New("there is more than one value")
	}
	if err != nil {
		s.refuse(w, http.StatusBadRequest, "the body must be a JSON object: "+wrongJSON(err))
		return false
	}
	return true
}

// wrongJSON is what is wrong with a body, in the words of the API.
func wrongJSON(err error) string {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) && kind.Field != "" {
		return fmt.Sprintf("%s: it must not be a %s", kind.Field[strings.LastIndexByte(kind.Field, '.')+1:], kind.Value)
	}
	if errors.Is(err, io.EOF) {
		return "it is empty"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// formLike reports whether a body can come of a form, or of a script that is to pass for one: a browser sends those from any page
// without asking first. A form of the usual type (application/x-www-form-urlencoded) is never JSON, and curl says so by default.
func formLike(contentType string) bool {
	kind, _, _ := mime.ParseMediaType(contentType)
	return kind == "text/plain" || kind == "multipart/form-data"
}
