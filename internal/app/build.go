package app

import (
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/alert"
	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/pipeline"
	"github.com/jetsidecar/jetsidecar/jetstream"
	"github.com/jetsidecar/jetsidecar/policy"
)

// pipelineConfig is the part of a consumer's configuration that decides over its messages.
func pipelineConfig(c config.Consumer, shutdown time.Duration) (pipeline.Config, error) {
	status, err := policy.NewStatusTable(c.Status)
	if err != nil {
		return pipeline.Config{}, err
	}
	return pipeline.Config{
		Stream: c.Stream, Durable: c.Durable, Concurrency: c.InFlight(), Adaptive: c.Adaptive, Prefetch: c.Prefetch, Rate: c.Rate,
		Policy:          policy.Policy{MaxDeliver: c.MaxDeliver, MaxAge: c.MaxAge, Retry: c.Retry, Status: status},
		ShutdownTimeout: shutdown, DLQ: c.DLQ.Enabled, AlertDepth: c.DLQ.AlertDepth, Dedupe: c.Dedupe, Breaker: c.Breaker, Order: c.Order, Batch: c.Batch,
	}, nil
}

// SourceConfig is the part of a consumer's configuration that is about its durable.
func SourceConfig(c config.Consumer) jetstream.ConsumerConfig {
	cfg := jetstream.ConsumerConfig{
		Stream: c.Stream, Durable: c.Durable, FilterSubjects: c.FilterSubjects, Manage: jetstream.Manage(c.Manage),
		Start: start(c.Deliver()), AckWait: c.AckWait, MaxAckPending: c.MaxAckPending, Replicas: c.Replicas,
		Concurrency: c.Leases() - c.Prefetch, Batched: c.Batch.MaxMessages > 1, Prefetch: c.Prefetch, MaxBytes: c.MaxBytes, AckAsync: c.Ack == "async",
		RetryStream: c.RetryStream, Ordered: c.Order != pipeline.OrderNone,
	}
	if cfg.Ordered {
		cfg.RetryStream.Enabled = false // what waits there is overtaken
	}
	return cfg
}

// BucketConfig is the part of a consumer's configuration that is about its dedupe bucket.
func BucketConfig(c config.Consumer) jetstream.BucketConfig {
	return jetstream.BucketConfig{Name: c.Dedupe.Bucket, TTL: c.Dedupe.TTL, Source: c.Stream, Manage: jetstream.Manage(c.Manage)}
}

// alertConfig is the part of a consumer's configuration that is about alerts on its DLQ stream.
func alertConfig(c config.Consumer, version string) alert.Config {
	return alert.Config{
		Stream: c.Stream, Consumer: c.Durable, DLQStream: jetstream.DeadLetterStream(c.DLQ, c.Stream, c.Durable),
		Threshold: c.DLQ.AlertDepth, URL: c.DLQ.AlertURL, Format: alert.Format(c.DLQ.AlertFormat), UserAgent: "jetsidecar/" + version,
	}
}

func start(d config.DeliverPolicy) jetstream.Start {
	s := jetstream.Start{Seq: d.Seq, Time: d.Time}
	switch d.Kind {
	case config.DeliverNew:
		s.Policy = natsjs.DeliverNewPolicy
	case config.DeliverLast:
		s.Policy = natsjs.DeliverLastPolicy
	case config.DeliverLastPerSubject:
		s.Policy = natsjs.DeliverLastPerSubjectPolicy
	case config.DeliverFromTime:
		s.Policy = natsjs.DeliverByStartTimePolicy
	case config.DeliverFromSequence:
		s.Policy = natsjs.DeliverByStartSequencePolicy
	default:
		s.Policy = natsjs.DeliverAllPolicy
	}
	return s
}
