package jetstream

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

func TestDLQStreamThatDropsEntries(t *testing.T) {
	for name, c := range map[string]struct {
		stream natsjs.StreamConfig
		maxAge time.Duration // configured
		want   string
	}{
		"none":                        {stream: natsjs.StreamConfig{}},
		"full, not dropping":          {stream: natsjs.StreamConfig{MaxMsgs: 5, MaxBytes: 5, Discard: natsjs.DiscardNew}},
		"no limit":                    {stream: natsjs.StreamConfig{MaxMsgs: -1, MaxBytes: -1, MaxMsgsPerSubject: -1}},
		"messages":                    {stream: natsjs.StreamConfig{MaxMsgs: 5}, want: "max_msgs: 5 with discard: old"},
		"bytes":                       {stream: natsjs.StreamConfig{MaxBytes: 6}, want: "max_bytes: 6 with discard: old"},
		"both":                        {stream: natsjs.StreamConfig{MaxMsgs: 5, MaxBytes: 6}, want: "max_msgs: 5 with discard: old, max_bytes: 6 with discard: old"},
		"per subject":                 {stream: natsjs.StreamConfig{MaxMsgsPerSubject: 1, Discard: natsjs.DiscardNew}, want: "max_msgs_per_subject: 1"},
		"per subject, refused":        {stream: natsjs.StreamConfig{MaxMsgsPerSubject: 1, Discard: natsjs.DiscardNew, DiscardNewPerSubject: true}},
		"age":                         {stream: natsjs.StreamConfig{MaxAge: time.Hour}, want: "max_age: 1h0m0s, which is not dlq.max_age"},
		"age as configured":           {stream: natsjs.StreamConfig{MaxAge: time.Hour}, maxAge: time.Hour},
		"age shorter than configured": {stream: natsjs.StreamConfig{MaxAge: time.Minute}, maxAge: time.Hour, want: "max_age: 1m0s, which is not dlq.max_age"},
	} {
		if got := dropping(c.stream, DeadLetterConfig{MaxAge: c.maxAge}); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The check fails for a DLQ stream that keeps nothing, and warns of one that drops entries.
func TestCheckOfTheDLQStream(t *testing.T) {
	for name, c := range map[string]struct {
		stream natsjs.StreamConfig
		level  Level
		told   string
	}{
		"interest":  {natsjs.StreamConfig{Retention: natsjs.InterestPolicy}, Failed, "retention is interest"},
		"workqueue": {natsjs.StreamConfig{Retention: natsjs.WorkQueuePolicy}, Failed, "retention is workqueue"},
		"no ack":    {natsjs.StreamConfig{NoAck: true}, Failed, "no_ack"},
		"dropping":  {natsjs.StreamConfig{MaxMsgs: 5}, Warning, "max_msgs: 5"},
		"sealed":    {natsjs.StreamConfig{Sealed: true}, Failed, "it is sealed"},
		"a window":  {natsjs.StreamConfig{Duplicates: 100 * time.Millisecond}, Warning, "its duplicate window is 100ms"},
		"fine":      {natsjs.StreamConfig{}, OK, "0 entries"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{})
			c.stream.Name, c.stream.Subjects = "S_DLQ", []string{"dlq.S.*.>"}
			sealed := c.stream.Sealed
			c.stream.Sealed = false // a stream is sealed once it is there
			b.must(b.js.CreateStream(b.ctx, c.stream))
			if c.stream.Sealed = sealed; sealed {
				b.must(b.js.UpdateStream(b.ctx, c.stream))
			}
			cfg := DeadLetterConfig{Enabled: true, Create: true, Stream: "{stream}_DLQ", Subject: "dlq.{stream}.{consumer}.{subject}"}
			for _, f := range b.conn.Check(b.ctx, ConsumerConfig{Stream: "S", Durable: "d"}, cfg) {
				if f.What == "dlq stream S_DLQ" {
					if f.Level != c.level || !strings.Contains(f.Detail, c.told) {
						t.Errorf("found %+v", f)
					}
					return
				}
			}
			t.Error("nothing was found of the DLQ stream")
		})
	}
}

// A duplicate window is long enough if it is as long as the server's own, or as it can be.
func TestShortWindow(t *testing.T) {
	for name, c := range map[string]struct {
		stream natsjs.StreamConfig
		short  bool
	}{
		"as the server's": {natsjs.StreamConfig{Duplicates: 2 * time.Minute}, false},
		"shorter":         {natsjs.StreamConfig{Duplicates: time.Minute}, true},
		"none":            {natsjs.StreamConfig{}, true},
		"as the age":      {natsjs.StreamConfig{Duplicates: time.Minute, MaxAge: time.Minute}, false},
	} {
		if got := shortWindow(c.stream); (got != "") != c.short {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// The log has a warning of a short window, once.
func TestShortWindowIsLoggedOnce(t *testing.T) {
	var log strings.Builder
	d := NewDeadLetters(nil, DeadLetterConfig{Stream: "D"}, "S", "d", slog.New(slog.NewTextHandler(&log, nil)))
	for _, window := range []time.Duration{time.Second, time.Second, time.Hour} {
		d.warnShortWindow(natsjs.StreamConfig{Duplicates: window})
	}
	if n := strings.Count(log.String(), "may store an entry twice"); n != 1 {
		t.Errorf("%d warnings: %s", n, log.String())
	}
}
