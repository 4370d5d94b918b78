package config

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzTemplates holds that what is accepted as names and templates makes a stream name, a subject pattern and subjects that NATS
// takes, each subject within the pattern, and none that the consumer's own filter would get back.
func FuzzTemplates(f *testing.F) {
	f.Add("ORDERS", "worker", "orders.>", "{stream}_DLQ", "dlq.{stream}.{consumer}.{subject}", "orders.a.b")
	f.Add("A", "b", "a.*", "dead", "x.{subject}", "a.b")
	f.Add("A", "{subject}", ">", "{consumer}", "{consumer}.{subject}", "{stream}")
	f.Add("{stream}", "{consumer}", "dlq.>", "{", "a.}{subject}", "dlq.{subject}")
	f.Fuzz(func(t *testing.T, stream, durable, filter, dlqStream, dlqSubject, subject string) {
		text, err := json.Marshal(map[string]any{"consumers": []any{map[string]any{
			"stream": stream, "durable": durable, "filter_subjects": []string{filter},
			"dlq": map[string]any{"stream": dlqStream, "subject": dlqSubject},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		n, err := parse(".json", text)
		if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		b := &builder{loaded: &Loaded{Config: Default(), origins: make(map[string]Origin)}, wrong: make(map[string]bool)}
		b.layers(n, Options{File: "f"})
		b.build()
		if faults := append(b.faults, b.validate()...); len(faults) > 0 {
			_ = Faults(faults).Error()
			return
		}
		c := b.loaded.Consumers[0]
		if why := nameFault(c.DLQStream()); why != "" {
			t.Errorf("the DLQ stream %q %s", c.DLQStream(), why)
		}
		pattern := c.DLQSubjects()
		if why := subjectFault(pattern); why != "" {
			t.Errorf("the DLQ's pattern %q %s", pattern, why)
		}
		if overlap(pattern, filter) {
			t.Errorf("the filter %q gets the dead letters of %q", filter, pattern)
		}
		if subjectFault(subject) != "" || strings.ContainsAny(subject, "*>") {
			return
		}
		if dead := c.DLQSubject(subject); subjectFault(dead) != "" || !overlap(pattern, dead) {
			t.Errorf("the dead letter's subject %q is not in %q", dead, pattern)
		}
	})
}

// What is advised where DLQ streams overlap keeps them apart.
func TestOverlapAdvice(t *testing.T) {
	for name, c := range map[string]struct{ other, subject, otherSubject string }{
		"{stream} added":       {"B", "dlq.{stream}.{subject}", "dlq.{stream}.{subject}"},
		"a word of their own":  {"B", "dlq-orders.{stream}.{subject}", "dlq-billing.{stream}.{subject}"},
		"two of one stream":    {"ORDERS", "dlq-orders.{stream}.{subject}", "dlq-billing.{stream}.{subject}"},
		"one of them, another": {"ORDERS", "dlq.{stream}.{consumer}.{subject}", "dlq-billing.{stream}.{subject}"},
	} {
		_, err := Load(Options{Environ: []string{
			"SIDECAR_DEFAULTS_DLQ_STREAM={stream}_{consumer}_DLQ",
			"SIDECAR_CONSUMERS_0_STREAM=ORDERS", "SIDECAR_CONSUMERS_0_DURABLE=w", "SIDECAR_CONSUMERS_0_DLQ_SUBJECT=" + c.subject,
			"SIDECAR_CONSUMERS_1_STREAM=" + c.other, "SIDECAR_CONSUMERS_1_DURABLE=v", "SIDECAR_CONSUMERS_1_DLQ_SUBJECT=" + c.otherSubject,
		}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
