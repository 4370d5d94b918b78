package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/dlq"
)

// remoteAnswer is how long an answer may take to begin.
const remoteAnswer = time.Minute

// remote are the dead letters as a running sidecar has them, by the API of its admin listener.
type remote struct {
	base    *url.URL      // without user and password, which no error shows
	user    *url.Userinfo // of a proxy before it; nil: none
	token   string
	client  *http.Client
	streams []string
	leave   time.Duration // how long a change that was stopped here is waited for
	late    time.Duration // the same of one that the sidecar does not know
}

// remoteURL reads the URL of an admin listener; without a scheme it is http.
func remoteURL(address string) (*url.URL, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, errors.New("flag --admin: it is not the URL of an admin listener, as http://127.0.0.1:9090")
	}
	return base, nil
}

// dialRemote looks whether the API is there.
func dialRemote(ctx context.Context, base *url.URL, token string) (*remote, error) {
	shown := *base
	shown.User = nil
	r := &remote{base: &shown, user: base.User, token: token, leave: remoteLeave, late: remoteLate, client: &http.Client{
		Transport:     &http.Transport{Proxy: nil, DialContext: dialAsking, ResponseHeaderTimeout: remoteAnswer},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the token is for this one
	}}
	var page remotePageAnswer
	if err := r.get(ctx, url.Values{"limit": {"1"}}, &page, "api", "dlq"); err != nil {
		return nil, err
	}
	r.streams = page.Streams
	return r, nil
}

func (r *remote) close() { r.client.CloseIdleConnections() }

// Streams are the DLQ streams of the sidecar's configuration.
func (r *remote) Streams() []string { return r.streams }

// Missing are the DLQ streams that the filter looks at and that do not exist: those that the sidecar does not say to have counted.
func (r *remote) Missing(ctx context.Context, f dlq.Filter) (names []string, err error) {
	q := parameters(dlq.Filter{Stream: f.Stream, First: 1, Last: 1}) // to count as little as can be
	var counted struct {
		UpTo []dlq.Cursor `json:"up_to"`
	}
	if err := r.get(ctx, q, &counted, "api", "dlq", "stats"); err != nil {
		return nil, err
	}
	for _, name := range r.streams {
		is := func(c dlq.Cursor) bool { return c.Stream == name }
		if (f.Stream == "" || f.Stream == name) && !slices.ContainsFunc(counted.UpTo, is) {
			names = append(names, name)
		}
	}
	return names, nil
}

// Get brings one entry.
func (r *remote) Get(ctx context.Context, stream string, seq uint64) (*dlq.Letter, error) {
	var l dlq.Letter
	err := r.get(ctx, nil, &l, "api", "dlq", stream, strconv.FormatUint(seq, 10))
	return &l, err
}

// Stats counts entries.
func (r *remote) Stats(ctx context.Context, f dlq.Filter) (*dlq.Stats, error) {
	var st dlq.Stats
	err := r.get(ctx, parameters(f), &st, "api", "dlq", "stats")
	return &st, err
}

func (r *remote) get(ctx context.Context, q url.Values, into any, path ...string) error {
	resp, err := r.send(ctx, http.MethodGet, q, nil, path...)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		if !badJSON(err) && ctx.Err() == nil {
			return fmt.Errorf("the sidecar at %s went away: %w", r.base, err)
		}
		return fmt.Errorf("reading the answer of the admin listener: %w", err)
	}
	return nil
}

// send makes a request. Any status but 200 is an error.
func (r *remote) send(ctx context.Context, method string, q url.Values, body io.Reader, path ...string) (*http.Response, error) {
	for i := range path {
		path[i] = url.PathEscape(path[i])
	}
	u := r.base.JoinPath(path...)
	u.RawQuery = q.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	switch password, _ := r.user.Password(); {
	case r.token != "":
		req.Header.Set("Authorization", "Bearer "+r.token)
	case r.user != nil:
		req.SetBasicAuth(r.user.Username(), password)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, r.unreached(err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized {
		return nil, r.unauthorized()
	}
	var fault struct {
		Error string `json:"error"`
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // the status says enough
	if json.Unmarshal(text, &fault) != nil || fault.Error == "" {
		fault.Error = "is there a sidecar's admin listener?"
	}
	return nil, &refusedError{resp.StatusCode, fmt.Sprintf("%s answered %s: %s", r.base, resp.Status, fault.Error)}
}

// refusedError is an answer that is no success.
type refusedError struct {
	status int
	text   string
}

func (e *refusedError) Error() string { return e.text }

// parameters is a filter as the API takes it: in text.
func parameters(f dlq.Filter) url.Values {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("stream", f.Stream)
	set("consumer", f.Consumer)
	set("subject", f.Subject)
	set("reason", f.Reason)
	if f.Status != nil {
		set("status", strconv.Itoa(*f.Status))
	}
	if !f.Since.IsZero() {
		set("since", f.Since.UTC().Format(time.RFC3339Nano))
	}
	if !f.Until.IsZero() {
		set("until", f.Until.UTC().Format(time.RFC3339Nano))
	}
	bound := func(n uint64) string {
		if n == 0 {
			return ""
		}
		return strconv.FormatUint(n, 10)
	}
	if f.First != 0 || f.Last != 0 {
		set("seq", bound(f.First)+"-"+bound(f.Last))
	}
	if f.Limit > 0 {
		set("limit", strconv.Itoa(f.Limit))
	}
	return q
}
