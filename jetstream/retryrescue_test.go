package jetstream

import (
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A copy that the server gave up on, since the durable of the retry stream was given a limit on deliveries, comes again.
func TestCopyThatTheServerGaveUpOn(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	m := b.dueCopy()
	b.editRetries(func(c *natsjs.ConsumerConfig) { c.MaxDeliver = 1 })
	m.HandBack()
	again := b.next()
	if again.Sequence != m.Sequence || again.lease == m.lease || string(again.Body) != string(m.Body) || again.Delivered != m.Delivered+1 {
		t.Fatalf("came as %+v, was %+v", again, m)
	}
	again.Ack()
	b.eventually("it is done", func() bool { return len(b.stored("at"))+len(b.stored("due")) == 0 && b.source.Flush(b.ctx) == 0 })
}

// What comes before its durable's filter was seen to be another one is left alone, and then nothing is pulled until it is as it was.
func TestRetryDurableWithAnotherFilter(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	filter := func(subject string) func() {
		return func() {
			b.editRetries(func(c *natsjs.ConsumerConfig) { c.FilterSubject, c.FilterSubjects = subject, nil })
		}
	}
	b.whileUnlooked(filter(RetrySubjects), func() { filter(b.source.retries.subject("due", ">"))() })
}

// A durable of the retry stream that would bring something else, or not to every sidecar, is not served.
func TestRetryDurableIsRefused(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.dueCopy().Ack()
	s := b.source.retries.source
	for name, edit := range map[string]func(*natsjs.ConsumerConfig){
		"filter": func(c *natsjs.ConsumerConfig) { c.FilterSubject = RetrySubjects },
		"pinned": func(c *natsjs.ConsumerConfig) {
			c.PriorityPolicy, c.PriorityGroups, c.PinnedTTL = natsjs.PriorityPolicyPinned, []string{pinGroup}, pinTTL
		},
	} {
		t.Run(name, func(t *testing.T) {
			var was natsjs.ConsumerConfig
			b.editRetries(func(c *natsjs.ConsumerConfig) { was = *c; edit(c) })
			b.eventually("it is refused", func() bool { return !s.Status().Bound })
			b.editRetries(func(c *natsjs.ConsumerConfig) { *c = was })
			b.eventually("it is served again", func() bool { return s.Status().Bound })
		})
	}
}
