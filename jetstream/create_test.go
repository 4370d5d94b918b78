package jetstream

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A server with a limit on duplicate windows gets streams with that window, and a check tells of it.
func TestWindowsWithinTheServersLimit(t *testing.T) {
	const limit = 90 * time.Second
	b := newBench(t, natsjs.StreamConfig{Duplicates: time.Second})
	b.server.Shutdown()
	b.server.WaitForShutdown()
	b.opts.JetStreamLimits.Duplicates = limit
	b.server = startServer(t, b.opts)
	b.eventually("the server is back", func() bool {
		_, err := b.conn.streamInfo(b.ctx, "S")
		_, own := b.js.Stream(b.ctx, "S")
		return err == nil && own == nil
	})

	cfg := DeadLetterConfig{Enabled: true, Create: true, Stream: "{stream}_DLQ", Subject: "dlq.{stream}.{consumer}.{subject}"}
	warned := func() bool {
		for _, f := range b.conn.Check(b.ctx, b.config(), cfg) {
			if f.What == "dlq stream S_DLQ" && f.Level == Warning && strings.Contains(f.Detail, "limits duplicate windows to 1m30s") {
				return true
			}
		}
		return false
	}
	if !warned() {
		t.Error("a check does not tell of the limit")
	}
	if _, err := b.js.Stream(b.ctx, "S_DLQ"); !errors.Is(err, natsjs.ErrStreamNotFound) {
		t.Fatalf("the check made a stream: %v", err)
	}

	b.must(nil, NewDeadLetters(b.conn, cfg, "S", "d", quiet()).Ensure(b.ctx))
	b.must(NewSource(b.conn, b.retryConfig(), quiet()).retries.create(b.ctx))
	b.must(b.conn.makeStateBucket(b.ctx, "S"))
	b.must(nil, NewBucket(b.conn, BucketConfig{Name: "answered", TTL: time.Hour, Source: "S"}, quiet()).Put(b.ctx, "key"))
	for _, name := range []string{"S_DLQ", RetryStream, "KV_" + StateBucket, "KV_answered"} {
		info, err := b.conn.streamInfo(b.ctx, name)
		b.must(nil, err)
		if info.Config.Duplicates != limit {
			t.Errorf("stream %s has a duplicate window of %s", name, info.Config.Duplicates)
		}
	}
	if warned() {
		t.Error("a check tells of the limit where the stream is there")
	}
}

// What the window is after a refusal.
func TestWindowWithin(t *testing.T) {
	refusal := func(text string) error {
		return fmt.Errorf("creating: %w", &natsjs.APIError{ErrorCode: errInvalidConfig, Description: text})
	}
	for name, c := range map[string]struct {
		err     error
		window  time.Duration
		want    time.Duration
		limited bool
	}{
		"the limit is named":       {refusal("duplicates window can not be larger then server limit of 2m0s"), time.Hour, 2 * time.Minute, true},
		"it is not named":          {refusal("duplicates window is over the server limit"), time.Hour, 30 * time.Minute, true},
		"it is named and no less":  {refusal("duplicates window can not be larger then server limit of 2m0s"), time.Minute, 30 * time.Second, true},
		"there is no window below": {refusal("duplicates window is over the server limit"), leastWindow, leastWindow / 2, false},
		"another fault":            {refusal("duplicates window can not be larger then max age"), time.Hour, 0, false},
		"no refusal":               {errors.New("duplicates window, server limit of 2m0s"), time.Hour, 0, false},
		"no error":                 {nil, time.Hour, 0, false},
	} {
		if got, limited := windowWithin(c.err, c.window); got != c.want || limited != c.limited {
			t.Errorf("%s: %s, %v", name, got, limited)
		}
	}
}

// An account that asks for max_bytes on streams refuses them, and the error says what helps.
func TestExplained(t *testing.T) {
	refusal := &natsjs.APIError{ErrorCode: errMaxBytesRequired, Description: "account requires a stream config to have max bytes set"}
	for stream, want := range map[string]string{
		"S_DLQ": "set dlq.max_bytes", "KV_answered": "make stream KV_answered by hand, with max_bytes", RetryStream: "could drop what waits there",
	} {
		if err := explained(refusal, stream); !errors.Is(err, refusal) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", stream, err)
		}
	}
	if other := errors.New("x"); !errors.Is(explained(other, "S_DLQ"), other) || explained(nil, "S_DLQ") != nil {
		t.Error("another error is not left as it is")
	}
}
