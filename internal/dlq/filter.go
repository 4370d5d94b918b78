package dlq

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jetsidecar/jetsidecar/policy"
)

// maxStatus is the highest status that an answer can have: three digits, whatever RFC 9110 makes of them.
const maxStatus = 999

// Filter selects entries: those that match all that is set. The zero Filter selects all of the configured consumers.
type Filter struct {
	Stream   string    `json:"stream,omitempty"`   // the DLQ stream; empty: all of the configuration
	Consumer string    `json:"consumer,omitempty"` // durable, of the configuration or not; empty: all of the configuration
	Subject  string    `json:"subject,omitempty"`  // the original subject, with wildcards * and >
	Reason   string    `json:"reason,omitempty"`
	Status   *int      `json:"status,omitempty"` // 0: no answer
	Since    time.Time `json:"since,omitzero"`   // stored in the DLQ then or later
	Until    time.Time `json:"until,omitzero"`   // stored in the DLQ before
	First    uint64    `json:"first,omitempty"`  // sequences in the DLQ stream, both included; 0: no bound
	Last     uint64    `json:"last,omitempty"`
	After    Position  `json:"after,omitzero"`  // only what comes after it in a List
	Limit    int       `json:"limit,omitempty"` // at most so many, the oldest of all DLQ streams; 0: no limit
	// UpTo keeps a selection to what an earlier one could see: of each DLQ stream entries up to the sequence that is named, and of
	// a stream that is not named none; nil: no bound. Stats and the report of a dry run say it. Of a stream that was made anew since it is ErrAnew,
	// and of one that was deleted an error too, if the cursor says when it was made.
	UpTo []Cursor `json:"up_to,omitzero"`
	// Passed, if set, is told by a List what was left out so far.
	Passed *Passed `json:"-"`
}

// Cursor is a place in a DLQ stream. Its text, also in JSON, is STREAM:SEQ, or STREAM:SEQ@MADE.
type Cursor struct {
	Stream string
	Seq    uint64
	Made   int64 // when the stream was created, in Unix nanoseconds, which tells it from one made anew; 0: it is not said
}

// String is the cursor's text; empty for the zero Cursor.
func (c Cursor) String() string {
	if c == (Cursor{}) {
		return ""
	}
	text := c.Stream + ":" + strconv.FormatUint(c.Seq, 10)
	if c.Made != 0 {
		text += "@" + strconv.FormatInt(c.Made, 10)
	}
	return text
}

// ParseCursor reads the text of a cursor.
func ParseCursor(text string) (Cursor, error) {
	if text == "" {
		return Cursor{}, nil
	}
	i := strings.LastIndexByte(text, ':')
	if i < 1 {
		return Cursor{}, fmt.Errorf("%q is not STREAM:SEQ", text)
	}
	at, made, told := strings.Cut(text[i+1:], "@")
	c := Cursor{Stream: text[:i]}
	var err, faulty error
	c.Seq, err = strconv.ParseUint(at, 10, 63)
	if told {
		c.Made, faulty = strconv.ParseInt(made, 10, 64)
	}
	if err != nil || faulty != nil {
		return Cursor{}, fmt.Errorf("%q is not STREAM:SEQ", text)
	}
	return c, nil
}

// MarshalJSON writes the cursor's text.
func (c Cursor) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }

// UnmarshalJSON reads the cursor's text.
func (c *Cursor) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	parsed, err := ParseCursor(text)
	*c = parsed
	return err
}

// upTo is the last sequence of a DLQ stream that the filter can select; 0: it selects nothing there.
func (f *Filter) upTo(stream string) uint64 {
	if f.UpTo == nil {
		return math.MaxUint64
	}
	last, found := uint64(0), false
	for _, c := range f.UpTo {
		if c.Stream == stream && (!found || c.Seq < last) {
			last, found = c.Seq, true
		}
	}
	return last
}

// Reasons are the words that Dlq-Reason may hold.
func Reasons() []string {
	return []string{
		string(policy.ReasonRejected), string(policy.ReasonMaxDeliver), string(policy.ReasonMaxAge), string(policy.ReasonCrashLoop),
		string(policy.ReasonMaxDeliverServer), string(policy.ReasonUndeliverable),
	}
}

// Validate says what is wrong with a filter whatever the entries are: each fault on its own line, as "name: why", the name being that
// of the field in JSON.
func (f *Filter) Validate() error {
	var faults []error
	fault := func(name, format string, args ...any) {
		faults = append(faults, fmt.Errorf("%s: %s", name, fmt.Sprintf(format, args...)))
	}
	if strings.ContainsAny(f.Consumer, " .*>\t\r\n") {
		fault("consumer", "%q is not the name of a consumer", f.Consumer)
	}
	if f.Subject != "" && !validPattern(f.Subject) {
		fault("subject", "%q is not a subject; * stands for one token, > at the end for one or more", f.Subject)
	}
	if f.Reason != "" && !slices.Contains(Reasons(), f.Reason) {
		fault("reason", "%q is none; there are %s", f.Reason, strings.Join(Reasons(), ", "))
	}
	if f.Status != nil && (*f.Status < 0 || *f.Status > maxStatus) {
		fault("status", "%d is not 1 to %d, which an app can answer with, nor 0 for no answer", *f.Status, maxStatus)
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		fault("until", "%s is not after since, %s", f.Until.Format(time.RFC3339), f.Since.Format(time.RFC3339))
	}
	if f.Last != 0 && f.First > f.Last {
		fault("seq", "%d-%d ends before it begins", f.First, f.Last)
	}
	if f.Limit < 0 {
		fault("limit", "%d is negative", f.Limit)
	}
	if slices.ContainsFunc(f.UpTo, func(c Cursor) bool { return c.Stream == "" }) {
		fault("up_to", "one of them is empty")
	}
	return errors.Join(faults...)
}

// Matches reports whether an entry is selected, but for whose it may be, its stream, the cursor, the bounds of each stream and the limit.
func (f *Filter) Matches(e *Entry) bool {
	switch {
	case f.Consumer != "" && e.Consumer != f.Consumer,
		f.Subject != "" && !subjectMatches(f.Subject, e.Subject),
		f.Reason != "" && e.Reason != f.Reason,
		f.Status != nil && e.Status != *f.Status,
		!f.Since.IsZero() && e.Time.Before(f.Since),
		!f.Until.IsZero() && !e.Time.Before(f.Until),
		e.Seq < f.First,
		f.Last != 0 && e.Seq > f.Last:
		return false
	}
	return true
}

// explicit reports whether the filter names one entry by its sequence.
func (f *Filter) explicit() bool { return f.First != 0 && f.First == f.Last }

func validPattern(pattern string) bool {
	if strings.ContainsAny(pattern, " \t\r\n") {
		return false
	}
	tokens := strings.Split(pattern, ".")
	for i, t := range tokens {
		if t == "" || t == ">" && i < len(tokens)-1 {
			return false
		}
	}
	return true
}

// subjectMatches reports whether a subject matches a pattern.
func subjectMatches(pattern, subject string) bool {
	for {
		p, restP, moreP := strings.Cut(pattern, ".")
		s, restS, moreS := strings.Cut(subject, ".")
		switch {
		case p == ">":
			return subject != ""
		case p != "*" && p != s:
			return false
		case !moreP || !moreS:
			return moreP == moreS
		}
		pattern, subject = restP, restS
	}
}
