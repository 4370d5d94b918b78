package test

import (
	"strings"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// While another stream would take what is published for the DLQ, nothing is: the source stream would deliver a dead letter as a message,
// which becomes a dead letter again, and so on.
func TestDLQSubjectThatAnotherStreamCaptures(t *testing.T) {
	for name, c := range map[string]struct {
		subject string // of the DLQ
		other   string // what another stream listens on
		create  bool
		told    string
	}{
		"source":                    {"orders.dlq.{subject}", "", true, "orders.> of the source stream captures"},
		"source, dlq not made here": {"orders.dlq.{subject}", "", false, "orders.> of the source stream captures"},
		"another":                   {"dlq.{stream}.{consumer}.{subject}", "dlq.>", true, "overlap"},
		"another, not made here":    {"dlq.{stream}.{consumer}.{subject}", "dlq.>", false, "does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if c.other != "" {
				w.streamOf(natsjs.StreamConfig{Name: "OTHER", Subjects: []string{c.other}})
			}
			w.app.on(badAndGood)
			s := w.sidecar(func(cfg *config.Config) {
				d := &cfg.Consumers[0].DLQ
				d.Subject, d.Create = c.subject, c.create
			})
			held := w.publish("orders.bad", "x")
			w.heldBack(s, held)
			s.waitTold("dlq", false, c.told)
			if n := w.streamInfo(stream).State.Msgs; n != 21 { // heldBack's own and this one
				t.Errorf("the source stream has %d messages", n)
			}
			if c.other == "" {
				w.makeStream(func(cfg *natsjs.StreamConfig) { cfg.Subjects = []string{"orders.bad", "orders.good"} })
			} else {
				if n := w.streamInfo("OTHER").State.Msgs; n != 0 {
					t.Errorf("the other stream took %d messages", n)
				}
				w.streamOf(natsjs.StreamConfig{Name: "OTHER", Subjects: []string{"other.>"}})
			}
			if !c.create {
				w.dlqOf(func(cfg *natsjs.StreamConfig) {
					cfg.Subjects = []string{strings.NewReplacer("{stream}", stream, "{consumer}", "*", "{subject}", ">").Replace(c.subject)}
				})
			}
			w.recovered(s, held)
		})
	}
}
