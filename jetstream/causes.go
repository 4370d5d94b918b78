package jetstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

const (
	// sampled is how many of the newest entries tell the causes, and sampleSpan of how many sequences they are looked for in.
	sampled, sampleSpan = 100, 1000
	sampleWait          = 2 * time.Second
)

// Causes counts the newest entries of the DLQ stream, 100 at most, by reason. If they cannot be read, it counts what this
// process stored.
func (d *DeadLetters) Causes(ctx context.Context) map[string]int {
	if causes, err := d.sample(ctx); err == nil {
		return causes
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.causes)
}

// sample reads the headers of the newest entries through a short-lived consumer, oldest first.
func (d *DeadLetters) sample(ctx context.Context) (map[string]int, error) {
	if !d.conn.Connected() {
		return nil, ErrNotConnected
	}
	info, err := d.conn.streamInfo(ctx, d.name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := d.conn.bounded(ctx, apiTimeout)
	defer cancel()
	first := uint64(1)
	if last := info.State.LastSeq; last > sampleSpan {
		first = last - sampleSpan + 1
	}
	c, err := d.conn.js().CreateConsumer(ctx, d.name, natsjs.ConsumerConfig{
		DeliverPolicy: natsjs.DeliverByStartSequencePolicy, OptStartSeq: first, AckPolicy: natsjs.AckNonePolicy,
		HeadersOnly: true, MemoryStorage: true, Replicas: 1, InactiveThreshold: 10 * sampleWait,
	})
	if err != nil {
		return nil, fmt.Errorf("reading DLQ stream %s: %w", d.name, err)
	}
	defer func() { _ = d.conn.js().DeleteConsumer(ctx, d.name, c.CachedInfo().Name) }() // else it ends by itself
	return newest(c)
}

var errNoSample = errors.New("no entry of the DLQ stream came in time")

// newest counts the last entries that a consumer has, by reason.
func newest(c natsjs.Consumer) (map[string]int, error) {
	pending := min(int(c.CachedInfo().NumPending), sampleSpan)
	if pending == 0 {
		return map[string]int{}, nil
	}
	batch, err := c.Fetch(pending, natsjs.FetchMaxWait(sampleWait))
	if err != nil {
		return nil, err
	}
	causes, nth := map[string]int{}, 0
	for m := range batch.Messages() {
		if nth++; nth <= pending-sampled {
			continue
		}
		if reason := m.Headers().Get(HeaderReason); reason != "" {
			causes[oneLine(reason, sampled)]++
		}
	}
	if nth == 0 {
		return nil, errors.Join(errNoSample, batch.Error())
	}
	return causes, nil
}
