package dlq

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

func TestSubjectMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, subject string
		want             bool
	}{
		{"a.b", "a.b", true}, {"a.b", "a.c", false}, {"a.b", "a", false}, {"a", "a.b", false}, {"a.*", "a.b", true}, {"a.*", "a.b.c", false},
		{"*", "a", true}, {"a.>", "a.b.c", true}, {"a.>", "a", false}, {">", "a", true}, {">", "", false}, {"*.b", "a.b", true}, {"a.*.c", "a.b.c", true},
	} {
		if got := subjectMatches(c.pattern, c.subject); got != c.want {
			t.Errorf("%s on %s: %v", c.pattern, c.subject, got)
		}
	}
}

func TestFilterMatches(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	e := &Entry{Seq: 5, Time: at, Consumer: "w", Subject: "a.b", Reason: "rejected", Status: 422}
	status := func(n int) *int { return &n }
	for name, c := range map[string]struct {
		f    Filter
		want bool
	}{
		"nothing": {Filter{}, true}, "consumer": {Filter{Consumer: "w"}, true}, "other consumer": {Filter{Consumer: "x"}, false},
		"subject": {Filter{Subject: "a.*"}, true}, "other subject": {Filter{Subject: "b.>"}, false},
		"reason": {Filter{Reason: "rejected"}, true}, "other reason": {Filter{Reason: "max_age"}, false},
		"status": {Filter{Status: status(422)}, true}, "no status": {Filter{Status: status(0)}, false},
		"since then": {Filter{Since: at}, true}, "since later": {Filter{Since: at.Add(1)}, false},
		"until then": {Filter{Until: at}, false}, "until later": {Filter{Until: at.Add(1)}, true},
		"first": {Filter{First: 5}, true}, "first later": {Filter{First: 6}, false}, "last": {Filter{Last: 5}, true}, "last earlier": {Filter{Last: 4}, false},
	} {
		if got := c.f.Matches(e); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestFilterValidate(t *testing.T) {
	status := 1000
	now := time.Now()
	bad := Filter{Consumer: "a b", Subject: "a..b", Status: &status, Since: now, Until: now, First: 9, Last: 3, Limit: -1}
	err := bad.Validate()
	if err == nil {
		t.Fatal("no fault")
	}
	for _, name := range []string{"consumer: ", "subject: ", "status: ", "until: ", "seq: ", "limit: "} {
		if !strings.Contains("\n"+err.Error(), "\n"+name) {
			t.Errorf("%s is not named in\n%v", name, err)
		}
	}
	if err := (&Filter{}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestCursor(t *testing.T) {
	for _, c := range []Cursor{{}, {Stream: "ORDERS_DLQ", Seq: 12}, {Stream: "a:b", Seq: 1}, {Stream: "a:1@2", Seq: 1, Made: 3}} {
		text, err := json.Marshal(c)
		var back Cursor
		if err != nil || json.Unmarshal(text, &back) != nil || back != c {
			t.Errorf("%+v became %s and %+v", c, text, back)
		}
	}
	for _, bad := range []string{"x", ":1", "x:", "x:-1", "x:1.5", "x:1@", "x:1@y"} {
		if _, err := ParseCursor(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// The server looks at no more than it must, and never at less.
func TestSubjects(t *testing.T) {
	dlqOf := func(stream, subject string) jetstream.DeadLetterConfig {
		return jetstream.DeadLetterConfig{Enabled: true, Stream: stream, Subject: subject}
	}
	own := New(Options{Consumers: []Consumer{
		{Stream: "O", Durable: "w", DLQ: dlqOf("{stream}_DLQ", "dlq.{stream}.{consumer}.{subject}")},
		{Stream: "P", Durable: "w", DLQ: dlqOf("{stream}_DLQ", "dlq.{stream}.{consumer}.{subject}")},
	}})
	shared := New(Options{Consumers: []Consumer{
		{Stream: "O", Durable: "w", DLQ: dlqOf("DEAD", "dlq.{stream}.{consumer}.{subject}")},
		{Stream: "P", Durable: "v", DLQ: dlqOf("DEAD", "dead.{subject}")},
	}})
	for name, c := range map[string]struct {
		s        *Service
		f        Filter
		dlq      string
		subjects []string
		want     []string
	}{
		"no filter":          {own, Filter{Reason: "rejected"}, "O_DLQ", []string{"dlq.O.*.>"}, nil},
		"subject":            {own, Filter{Subject: "a.b"}, "O_DLQ", []string{"dlq.O.*.>"}, []string{"dlq.O.*._long.*", "dlq.O.*.a.b"}},
		"consumer":           {own, Filter{Consumer: "w"}, "O_DLQ", []string{"dlq.O.*.>"}, []string{"dlq.O.w.>"}},
		"both":               {own, Filter{Consumer: "w", Subject: "a.>"}, "O_DLQ", []string{"dlq.O.*.>"}, []string{"dlq.O.w._long.*", "dlq.O.w.a.>"}},
		"any subject":        {own, Filter{Consumer: "w", Subject: ">"}, "O_DLQ", []string{"dlq.O.*.>"}, []string{"dlq.O.w.>"}},
		"overlapping":        {own, Filter{Subject: "*.b"}, "O_DLQ", []string{"dlq.O.*.>"}, nil},
		"including":          {own, Filter{Subject: "*.*"}, "O_DLQ", []string{"dlq.O.*.>"}, []string{"dlq.O.*.*.*"}},
		"more of the stream": {own, Filter{Consumer: "w"}, "O_DLQ", []string{"dlq.O.*.>", "old.>"}, []string{"dlq.O.w.>", "old.>"}},
		"shared":             {shared, Filter{Consumer: "v"}, "DEAD", []string{"dlq.O.*.>", "dead.>"}, []string{"dead.>", "dlq.O.v.>"}},
		"not listened to":    {own, Filter{Consumer: "w"}, "O_DLQ", []string{"old.>"}, []string{"old.>"}},
	} {
		if got := c.s.subjects(&c.f, c.dlq, c.subjects); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
