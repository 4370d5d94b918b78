package config

import (
	"time"

	"github.com/jetsidecar/jetsidecar/dedupe"
	"github.com/jetsidecar/jetsidecar/forward"
	"github.com/jetsidecar/jetsidecar/jetstream"
	"github.com/jetsidecar/jetsidecar/policy"
)

// Default returns the configuration before any file or environment. It has no consumers.
func Default() Config {
	return Config{
		NATS: jetstream.Config{
			URLs: []string{"nats://127.0.0.1:4222"},
			Name: "sidecar",
		},
		App: forward.Config{
			URL:      "http://127.0.0.1:8080",
			Protocol: "http1",
			Timeout:  30 * time.Second,
			Ready:    forward.ReadyConfig{Interval: time.Second},
		},
		Defaults:        DefaultConsumer(),
		Admin:           Admin{Listen: "127.0.0.1:9090"},
		Log:             Log{Level: "info", Format: "auto"},
		ShutdownTimeout: 25 * time.Second,
	}
}

// DefaultConsumer returns a consumer before any file or environment; stream and durable are empty. Its status lists
// are nil, which stands for policy's own.
func DefaultConsumer() Consumer {
	return Consumer{
		Manage:        "create",
		DeliverPolicy: "all",
		AckWait:       30 * time.Second,
		MaxAckPending: 10000,
		Path:          "/",
		Method:        "POST",
		Format:        "raw",
		Concurrency:   16,
		Prefetch:      16,
		MaxBytes:      16 << 20,
		Order:         "none",
		MaxDeliver:    10,
		Ack:           "confirmed",
		Retry: policy.RetryConfig{
			Initial:       time.Second,
			Multiplier:    2,
			Max:           time.Minute,
			Jitter:        0.5,
			RetryAfterMax: 10 * time.Minute,
		},
		RetryStream: jetstream.RetryStreamConfig{Enabled: true, MaxBytes: 1 << 30},
		Breaker:     policy.BreakerConfig{Failures: 5, ProbeInterval: time.Second, ProbeMax: 30 * time.Second, Hold: time.Hour},
		DLQ: jetstream.DeadLetterConfig{
			Enabled: true,
			Stream:  "{stream}_DLQ",
			Subject: "dlq.{stream}.{consumer}.{subject}",
			Create:  true,

			AlertDepth:  100,
			AlertFormat: "json",
		},
		Dedupe: dedupe.Config{
			Store:      "memory",
			TTL:        time.Hour,
			MaxEntries: 100000,
			Bucket:     "sidecar-dedupe",
			Header:     "Nats-Msg-Id",
		},
		Batch: jetstream.BatchConfig{MaxMessages: 1, MaxBytes: 1 << 20, MaxWait: 20 * time.Millisecond},
	}
}
