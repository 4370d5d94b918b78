package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/dlq"
)

const (
	maxPage     = 1000 // entries of an answer
	defaultPage = 100
)

// Selection is a filter as it comes in parameters and in JSON: each part as text, numbers too.
type Selection struct {
	Stream   string `json:"stream"` // the DLQ stream
	Consumer string `json:"consumer"`
	Subject  string `json:"subject"`
	Reason   string `json:"reason"`
	Status   text   `json:"status"`
	Since    string `json:"since"` // RFC 3339, or a duration ago
	Until    string `json:"until"`
	Seq      text   `json:"seq"` // N, A-B, A- or -B
	Limit    text   `json:"limit"`
	After    string `json:"after"` // STREAM:SEQ for each DLQ stream, with points between

	UpTo []string `json:"up_to"` // STREAM:SEQ, one for each DLQ stream; in JSON alone
}

// text is a JSON string, or a number as text.
type text string

// UnmarshalJSON takes a string or a number.
func (t *text) UnmarshalJSON(b []byte) error {
	if bytes.HasPrefix(b, []byte(`"`)) {
		var s string
		err := json.Unmarshal(b, &s)
		*t = text(s)
		return err
	}
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil {
		return err
	}
	*t = text(n)
	return nil
}

// selectionOf takes a selection from parameters; others than those named in more are refused.
func selectionOf(q url.Values, more ...string) (Selection, error) {
	s := Selection{}
	into := map[string]func(string){
		"stream": func(v string) { s.Stream = v }, "consumer": func(v string) { s.Consumer = v }, "subject": func(v string) { s.Subject = v },
		"reason": func(v string) { s.Reason = v }, "status": func(v string) { s.Status = text(v) }, "since": func(v string) { s.Since = v },
		"until": func(v string) { s.Until = v }, "seq": func(v string) { s.Seq = text(v) }, "limit": func(v string) { s.Limit = text(v) },
		"after": func(v string) { s.After = v },
	}
	for _, name := range more {
		into[name] = func(string) {}
	}
	for name, values := range q {
		set, known := into[name]
		if !known {
			return s, fmt.Errorf("there is no parameter %q", name)
		}
		if len(values) > 1 {
			return s, fmt.Errorf("%s is given more than once", name)
		}
		set(values[0])
	}
	return s, nil
}

// filter makes a filter of a selection, or says everything that is wrong with it.
func (s Selection) filter(now time.Time) (dlq.Filter, error) {
	f := dlq.Filter{Stream: s.Stream, Consumer: s.Consumer, Subject: s.Subject, Reason: s.Reason}
	var faults []error
	note := func(name string, err error) {
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", name, err))
		}
	}
	var err error
	if s.Status != "" {
		n, err := dlq.ParseStatus(string(s.Status))
		note("status", err)
		f.Status = &n
	}
	f.Since, err = moment(s.Since, now)
	note("since", err)
	f.Until, err = moment(s.Until, now)
	note("until", err)
	f.First, f.Last, err = span(string(s.Seq))
	note("seq", err)
	if s.Limit != "" {
		if f.Limit, err = strconv.Atoi(string(s.Limit)); err != nil || f.Limit < 1 {
			note("limit", fmt.Errorf("%q is no number from 1 on", s.Limit))
			f.Limit = 0 // said once
		}
	}
	f.After, err = dlq.ParsePosition(s.After)
	note("after", err)
	f.UpTo, err = bounds(s.UpTo)
	note("up_to", err)
	return f, errors.Join(append(faults, f.Validate())...)
}

// bounds are how far each DLQ stream is selected; nil if they are left out.
func bounds(texts []string) (upTo []dlq.Cursor, err error) {
	if texts == nil {
		return nil, nil
	}
	upTo = make([]dlq.Cursor, len(texts))
	for i, text := range texts {
		if upTo[i], err = dlq.ParseCursor(text); err != nil {
			return nil, err
		}
	}
	return upTo, nil
}

// moment is a time of a filter; none if it is left out.
func moment(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	return dlq.ParseMoment(s, now)
}

// span is the sequences of a filter; all if they are left out.
func span(s string) (first, last uint64, err error) {
	if s == "" {
		return 0, 0, nil
	}
	return dlq.ParseSpan(s)
}
