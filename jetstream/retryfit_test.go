package jetstream

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

func TestUnfitRetries(t *testing.T) {
	one, three := kept{1, natsjs.FileStorage}, kept{3, natsjs.FileStorage}
	for name, c := range map[string]struct {
		have   natsjs.StreamConfig
		source kept
		fit    bool
	}{
		"same":                     {natsjs.StreamConfig{Replicas: 3}, three, true},
		"more replicas":            {natsjs.StreamConfig{Replicas: 3}, one, true},
		"fewer replicas":           {natsjs.StreamConfig{Replicas: 1}, three, false},
		"in memory, and the other": {natsjs.StreamConfig{Replicas: 1, Storage: natsjs.MemoryStorage}, one, false},
		"both in memory":           {natsjs.StreamConfig{Replicas: 1, Storage: natsjs.MemoryStorage}, kept{1, natsjs.MemoryStorage}, true},
		"only the other in memory": {natsjs.StreamConfig{Replicas: 1}, kept{1, natsjs.MemoryStorage}, true},
		"bounded bytes":            {natsjs.StreamConfig{Replicas: 1, MaxBytes: 1}, one, false},
		"bounded age":              {natsjs.StreamConfig{Replicas: 1, MaxAge: time.Hour}, one, false},
		"bounded messages":         {natsjs.StreamConfig{Replicas: 1, MaxMsgs: 1}, one, false},
		"one of a subject":         {natsjs.StreamConfig{Replicas: 1, MaxMsgsPerSubject: 1}, one, false},
		"interest":                 {natsjs.StreamConfig{Replicas: 1, Retention: natsjs.InterestPolicy}, one, false},
	} {
		t.Run(name, func(t *testing.T) {
			if c.have.Retention == natsjs.LimitsPolicy {
				c.have.Retention = natsjs.WorkQueuePolicy
			}
			c.have.AllowMsgSchedules, c.have.AllowMsgTTL, c.have.Subjects = true, true, []string{RetrySubjects}
			if why := unfitRetries(c.have, c.source); (why == "") != c.fit {
				t.Errorf("unfit: %q", why)
			}
		})
	}
}

// What a retry stream that was made by hand may lack.
func TestUnfitHandMadeRetries(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*natsjs.StreamConfig)
		fit    bool
	}{
		"nothing": {func(*natsjs.StreamConfig) {}, true},
		"each subject": {func(c *natsjs.StreamConfig) {
			c.Subjects = []string{"sidecar.*.at.>", "sidecar.retry.due.>", "sidecar.retry.done.>"}
		}, true},
		"schedules":        {func(c *natsjs.StreamConfig) { c.AllowMsgSchedules = false }, false},
		"TTLs":             {func(c *natsjs.StreamConfig) { c.AllowMsgTTL = false }, false},
		"confirmations":    {func(c *natsjs.StreamConfig) { c.NoAck = true }, false},
		"writing":          {func(c *natsjs.StreamConfig) { c.Sealed = true }, false},
		"its own subjects": {func(c *natsjs.StreamConfig) { c.SubjectTransform = &natsjs.SubjectTransformConfig{} }, false},
		"its retention":    {func(c *natsjs.StreamConfig) { c.Retention = natsjs.LimitsPolicy }, false},
		"a subject":        {func(c *natsjs.StreamConfig) { c.Subjects = []string{"sidecar.retry.at.>", "sidecar.retry.due.>"} }, false},
	} {
		have := natsjs.StreamConfig{Subjects: []string{RetrySubjects}, Retention: natsjs.WorkQueuePolicy, AllowMsgSchedules: true, AllowMsgTTL: true}
		c.change(&have)
		if why := unfitRetries(have, kept{1, natsjs.FileStorage}); (why == "") != c.fit {
			t.Errorf("it lacks %s: unfit: %q", name, why)
		}
	}
}

// Nothing is moved to a retry stream that takes no TTL, and what waits there all the same comes to its end.
func TestRetryStreamWithoutTTL(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.must(b.js.CreateStream(b.ctx, natsjs.StreamConfig{
		Name: RetryStream, Subjects: []string{RetrySubjects}, Retention: natsjs.WorkQueuePolicy, AllowMsgSchedules: true,
	}))
	b.movesNothing()
	if !slices.ContainsFunc(b.conn.Check(b.ctx, b.retryConfig(), DeadLetterConfig{}), func(f Finding) bool {
		return f.Level == Warning && f.What == "stream "+RetryStream && strings.Contains(f.Detail, "allow_msg_ttl")
	}) {
		t.Error("a check does not warn of it")
	}

	b.publish(1)
	m := b.next()
	b.must(nil, b.source.retries.publish(b.ctx, b.source.retries.waiting(m, time.Now())))
	m.Ack()
	moved := b.next()
	if moved.Sequence != m.Sequence {
		t.Fatalf("message %d comes, not %d from the retry stream", moved.Sequence, m.Sequence)
	}
	moved.Ack()
	b.eventually("its end is stored", func() bool { return len(b.stored("done")) == 1 && len(b.stored("due")) == 0 })
}

// movesNothing runs the source and has a message wait for long: at the durable, since the retry stream is unfit.
func (b *bench) movesNothing() {
	b.t.Helper()
	b.runCrowded()
	b.eventually("it is noticed", b.source.retries.isUnfit)
	b.next().Retry(time.Hour)
	b.eventually("the message waits at the durable", func() bool { return b.source.Flush(b.ctx) == 0 && b.info().NumAckPending == crowd+1 })
	if n := len(b.stored("at")); n != 0 {
		b.t.Errorf("%d were moved", n)
	}
}

// poorRetryStream is a retry stream as the sidecar makes it for a stream of one replica.
func (b *bench) poorRetryStream(storage natsjs.StorageType) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	b.must(b.js.CreateStream(ctx, natsjs.StreamConfig{
		Name: RetryStream, Subjects: []string{retrySubject + ">"}, Retention: natsjs.WorkQueuePolicy, Storage: storage, Replicas: 1,
		AllowMsgSchedules: true, AllowMsgTTL: true,
	}))
}

// A stream of three replicas moves nothing into a retry stream of one, unless it may be given as many.
func TestRetryStreamOfFewerReplicas(t *testing.T) {
	b, _ := newClusterBench(t)
	b.poorRetryStream(natsjs.FileStorage)
	b.movesNothing()
	b.stop()

	cfg := b.retryConfig()
	cfg.Manage = ManageUpdate
	b.runRetrying(cfg)
	b.eventually("it has as many replicas, and they are in step", func() bool {
		stream, err := b.js.Stream(b.ctx, RetryStream)
		if err != nil || stream.CachedInfo().Cluster == nil {
			return false
		}
		peers := stream.CachedInfo().Cluster
		return peers.Leader != "" && len(peers.Replicas) == 2 && !slices.ContainsFunc(peers.Replicas, func(p *natsjs.PeerInfo) bool { return !p.Current })
	})
	b.eventually("that is noticed", func() bool { return !b.source.retries.isUnfit() })
	b.publish(1)
	b.next().Retry(time.Hour)
	b.eventually("the message is moved", func() bool { return len(b.stored("at")) == 1 })
}

// A stream in files moves nothing into a retry stream in memory.
func TestRetryStreamInMemory(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.poorRetryStream(natsjs.MemoryStorage)
	b.runCrowded()
	b.eventually("it is noticed", b.source.retries.isUnfit)
	b.next().Retry(time.Hour)
	b.eventually("the message waits at the durable", func() bool { return b.source.Flush(b.ctx) == 0 && b.info().NumAckPending == crowd+1 })
	if !slices.ContainsFunc(b.conn.Check(b.ctx, b.retryConfig(), DeadLetterConfig{}), func(f Finding) bool {
		return f.Level == Warning && f.What == "stream "+RetryStream && f.Detail == "it is kept in memory and the stream in files"
	}) {
		t.Error("a check does not warn of it")
	}
}
