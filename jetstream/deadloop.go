package jetstream

import (
	"context"
	"fmt"
	"slices"
	"strings"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// feeds says how dead letters of a DLQ stream come into the source stream, where the durable would deliver each as a message, which becomes a dead
// letter again, and so on; or nothing, as far as the two streams show it.
func (d *DeadLetters) feeds(ctx context.Context, dlq, source natsjs.StreamConfig) string {
	why, as := fed(dlq, source, d.pattern)
	if why == "" || source.SubjectTransform != nil {
		return why
	}
	// One that cannot be looked up may take it.
	if info, err := d.conn.consumerInfo(ctx, d.source, d.consumer); err == nil {
		if takes := filters(info.Config); len(takes) > 0 && !slices.ContainsFunc(takes, func(f string) bool { return overlap(f, as) }) {
			return ""
		}
	}
	return why
}

// fed says how dead letters on a pattern come from one stream into another, and on what subjects, or nothing.
func fed(dlq, source natsjs.StreamConfig, pattern string) (why, as string) {
	if r := dlq.RePublish; r != nil && (r.Source == "" || overlap(r.Source, pattern)) {
		to := targets(r.Destination)
		if s := capturing(source.Subjects, to); s != "" {
			return fmt.Sprintf("it republishes dead letters to %s, which the subject %s of the source stream captures", r.Destination, s), to
		}
	}
	for _, s := range source.Sources {
		if s.Name != dlq.Name || s.External != nil {
			continue
		}
		if len(s.SubjectTransforms) > 0 {
			return "it is a source of the source stream", ">"
		}
		if s.FilterSubject == "" || overlap(s.FilterSubject, pattern) {
			return "it is a source of the source stream", pattern
		}
	}
	return "", ""
}

// targets is the pattern of the subjects that a destination gives.
func targets(destination string) string {
	tokens := strings.Split(destination, ".")
	for i, t := range tokens {
		if strings.HasPrefix(t, "$") || strings.Contains(t, "{{") {
			tokens[i] = "*"
		}
	}
	return strings.Join(tokens, ".")
}
