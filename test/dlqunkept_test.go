package test

import (
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A stream that confirms dead letters and does not keep them, or feeds them to the source stream, gets none: their messages are held back until it is a better one.
func TestDLQStreamThatKeepsNoEntries(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*natsjs.StreamConfig)
		told string
	}{
		"interest":  {func(c *natsjs.StreamConfig) { c.Retention = natsjs.InterestPolicy }, "retention is interest"},
		"workqueue": {func(c *natsjs.StreamConfig) { c.Retention = natsjs.WorkQueuePolicy }, "retention is workqueue"},
		"no ack":    {func(c *natsjs.StreamConfig) { c.NoAck = true }, "no_ack"},
		"a loop": {func(c *natsjs.StreamConfig) {
			c.RePublish = &natsjs.RePublish{Source: ">", Destination: "orders.dead.>"}
		}, "it republishes dead letters to orders.dead.>"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.dlqOf(c.edit)
			w.app.on(badAndGood)
			s := w.sidecar()
			held := w.publish("orders.bad", "x")
			w.heldBack(s, held)
			s.waitTold("dlq", false, c.told)
			if last := w.streamInfo(dlq).State.LastSeq; last != 0 {
				t.Errorf("%d entries were published", last)
			}
			w.must(w.js.DeleteStream(t.Context(), dlq))
			w.recovered(s, held)
		})
	}
}
