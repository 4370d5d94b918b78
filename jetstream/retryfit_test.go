package jetstream

import (
	"slices"
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
			if why := unfitRetries(c.have, c.source); (why == "") != c.fit {
				t.Errorf("unfit: %q", why)
			}
		})
	}
}

// poorRetryStream is a retry stream as the sidecar makes it for a stream of one replica.
func (b *bench) poorRetryStream(storage natsjs.StorageType) {
	b.t.Helper()
	b.must(b.js.CreateStream(b.ctx, natsjs.StreamConfig{
		Name: RetryStream, Subjects: []string{retrySubject + ">"}, Retention: natsjs.WorkQueuePolicy, Storage: storage, Replicas: 1,
		AllowMsgSchedules: true, AllowMsgTTL: true,
	}))
}

// A stream of three replicas moves nothing into a retry stream of one, unless it may be given as many.
func TestRetryStreamOfFewerReplicas(t *testing.T) {
	b, _ := newClusterBench(t)
	b.poorRetryStream(natsjs.FileStorage)
	b.runCrowded()
	b.eventually("it is noticed", b.source.retries.isUnfit)
	b.next().Retry(time.Hour)
	b.eventually("the message waits at the durable", func() bool { return b.source.Flush(b.ctx) == 0 && b.info().NumAckPending == crowd+1 })
	if n := len(b.stored("at")); n != 0 {
		t.Errorf("%d were moved", n)
	}
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
