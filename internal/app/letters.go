package app

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jetsidecar/jetsidecar/dedupe"
	"github.com/jetsidecar/jetsidecar/forward"
	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/dlq"
	"github.com/jetsidecar/jetsidecar/jetstream"
)

// DeadLetters builds the service on dead letters for a process that runs no sidecar. client may be nil: then nothing can be
// replayed to the app.
func DeadLetters(cfg *config.Config, conn *jetstream.Conn, client *forward.Client, log *slog.Logger) (*dlq.Service, error) {
	o := dlq.Options{Conn: conn, Log: log}
	if client != nil {
		o.App = client
	}
	for _, c := range cfg.Consumers {
		letters, err := letters(c, client)
		if err != nil {
			return nil, fmt.Errorf("consumer %s of stream %s: %w", c.Durable, c.Stream, err)
		}
		if c.Dedupe.Store == "kv" {
			letters.Remember = rememberIn(jetstream.NewBucket(conn, BucketConfig(c), log), c)
		}
		o.Consumers = append(o.Consumers, letters)
	}
	return dlq.New(o), nil
}

// letters is what the service must know of a consumer.
func letters(c config.Consumer, client *forward.Client) (dlq.Consumer, error) {
	cfg, err := pipelineConfig(c, 0)
	if err != nil {
		return dlq.Consumer{}, err
	}
	l := dlq.Consumer{Stream: c.Stream, Durable: c.Durable, DLQ: c.DLQ, Policy: cfg.Policy, Manage: jetstream.Manage(c.Manage)}
	if client != nil {
		l.Target, err = target(client, c)
	}
	return l, err
}

// target is where a consumer's messages go.
func target(client *forward.Client, c config.Consumer) (*forward.Target, error) {
	t, err := client.Target(c.Method, c.Path)
	if err != nil {
		return nil, err
	}
	t = t.In(forward.Format(c.Format))
	if c.Batch.MaxMessages > 1 {
		t = t.Batched()
	}
	return t, nil
}

// rememberIn stores the key of a message in the bucket that the sidecars of the consumer share.
func rememberIn(bucket *jetstream.Bucket, c config.Consumer) func(*jetstream.Message) {
	return func(m *jetstream.Message) {
		scope := dedupe.NewScope(c.Stream, m.StreamCreated, c.Durable)
		key := scope.Message(m.Sequence, m.Stored)
		if ids := m.Header[c.Dedupe.Header]; len(ids) > 0 && ids[0] != "" {
			key = scope.ID(ids[0])
		}
		ctx, cancel := context.WithTimeout(context.Background(), dedupe.BucketTimeout)
		defer cancel()
		_ = bucket.Put(ctx, key.String()) // a duplicate is delivered then, as without the bucket
	}
}
