package telemetry

import (
	"context"
	"log/slog"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/pipeline"
)

// Batched logs the line of a request with a batch. Messages of it that are not acked have lines of their own; those that are have one
// at level debug.
func (c *Consumer) Batched(b *pipeline.Batch) {
	ctx := context.Background()
	if !c.log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	r := slog.NewRecord(time.Now(), slog.LevelInfo, "batch", 0)
	r.AddAttrs(
		slog.Int("messages", b.Messages), slog.Int("bytes", b.Bytes), slog.Uint64("first", b.First), slog.Uint64("last", b.Last),
		slog.Int("ack", b.Ack), slog.Int("retry", b.Retry), slog.Int("dlq", b.DLQ), slog.Int("drop", b.Drop), slog.Int("again", b.Again),
		slog.Int("status", b.Status), slog.String("duration", b.Duration.String()),
	)
	if b.Error != "" {
		r.AddAttrs(slog.String("error", b.Error[:min(len(b.Error), maxLogged)]))
	}
	_ = c.log.Handle(ctx, r) // the sink never fails
}
