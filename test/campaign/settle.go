//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// entry is one message of the DLQ stream.
type entry struct {
	index    int
	seq      uint64 // in the source stream, as it says
	reason   string
	status   string
	failedAt time.Time
	stored   time.Time
}

// known is a delivery that a sidecar acked without a call, because it knew the answer.
type known struct {
	Sequence uint64
	Time     time.Time
}

// history is everything that is known of a campaign in the end.
type history struct {
	plan      plan
	published []message
	epoch     int
	source    map[int]uint64 // what is in the source stream, by message; nil of a work queue
	calls     []call
	dead      []entry
	lives     []incarnation
	events    []event
	known     []known
	retried   uint64 // stored in the retry stream: copies, those that came due, and their ends

	settled    bool
	unsettled  string        // what there is still to wait for
	settleTime time.Duration // from when all was healed
}

func errorIs(err error, some ...error) bool {
	for _, e := range some {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// settle waits until everything is settled, stops the sidecars, and gathers what there is to know.
func (c *campaign) settle(ctx context.Context) (history, error) {
	h := history{plan: c.plan, epoch: c.pub.epoch}
	var err error
	if h.unsettled, h.settleTime, err = c.calm(ctx); err != nil {
		return history{}, err
	}
	if h.unsettled == "" {
		rest(ctx, ackWait+500*ms) // whatever was still leased comes again now
		h.unsettled = c.unsettled(ctx)
	}
	h.settled = h.unsettled == ""
	c.stopAll()
	h.published, h.calls = c.pub.published(), c.app.history()
	for _, s := range c.sidecars {
		h.lives = append(h.lives, s.incarnations()...)
	}
	c.mu.Lock()
	h.events = c.events
	c.mu.Unlock()
	for _, s := range c.sidecars {
		some, err := knownOf(s.log)
		if err != nil {
			return h, err
		}
		h.known = append(h.known, some...)
	}
	if stream, err := c.js.Stream(ctx, retryStream); err == nil {
		h.retried = stream.CachedInfo().State.LastSeq
	}
	return h, c.gather(ctx, &h)
}

// calm waits with all sidecars until everything is settled. It returns how long that took, or what there is still to wait for.
func (c *campaign) calm(ctx context.Context) (unsettled string, took time.Duration, err error) {
	begin := time.Now()
	for _, s := range c.sidecars {
		if err := s.start(); err != nil {
			return "", 0, err
		}
	}
	for calm := 0; calm < 3 && time.Since(begin) < settleLimit; calm++ {
		if unsettled = c.unsettled(ctx); unsettled != "" {
			calm = -1
		} else if calm == 0 {
			took = time.Since(begin)
		}
		if !rest(ctx, 250*ms) {
			return "", 0, ctx.Err()
		}
	}
	return unsettled, took, nil
}

func (c *campaign) stopAll() {
	var wg sync.WaitGroup
	for _, s := range c.sidecars {
		wg.Go(func() { s.await(s.ask()) })
	}
	wg.Wait()
	rest(context.Background(), 50*ms) // until their ends are noted
}

// unsettled says what there is still to wait for, or nothing.
func (c *campaign) unsettled(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	stream, err := c.js.Stream(ctx, sourceStream)
	if err != nil {
		return err.Error()
	}
	consumer, err := c.js.Consumer(ctx, sourceStream, durable)
	if err != nil {
		return err.Error()
	}
	info, st := consumer.CachedInfo(), stream.CachedInfo().State
	switch {
	case info.NumPending != 0 || info.NumAckPending != 0:
		return fmt.Sprintf("%d pending, %d ack pending", info.NumPending, info.NumAckPending)
	case info.Delivered.Stream < st.LastSeq && !c.plan.WorkQueue:
		return fmt.Sprintf("delivered up to %d of %d", info.Delivered.Stream, st.LastSeq)
	case c.plan.WorkQueue && st.Msgs != 0:
		return fmt.Sprintf("%d messages left in the work queue", st.Msgs)
	}
	return c.retrying(ctx)
}

// retrying says what waits in the retry stream, or nothing.
func (c *campaign) retrying(ctx context.Context) string {
	stream, err := c.js.Stream(ctx, retryStream)
	if errors.Is(err, natsjs.ErrStreamNotFound) {
		return ""
	}
	if err != nil {
		return err.Error()
	}
	for _, state := range []string{"at", "due"} {
		info, err := stream.Info(ctx, natsjs.WithSubjectFilter("sidecar.retry."+state+".>"))
		if err != nil {
			return err.Error()
		}
		if n := len(info.State.Subjects); n > 0 {
			return fmt.Sprintf("%d messages %s in the retry stream", n, state)
		}
	}
	return ""
}

// gather reads the streams.
func (c *campaign) gather(ctx context.Context, h *history) error {
	err := c.insist(ctx, "read the dlq", func(context.Context) error {
		h.dead = nil
		return c.read(ctx, dlqStream, func(m natsjs.Msg, meta *natsjs.MsgMetadata) {
			e := entry{index: indexOf(m.Data()), reason: m.Headers().Get("Dlq-Reason"), status: m.Headers().Get("Dlq-Status"), stored: meta.Timestamp}
			e.seq, _ = strconv.ParseUint(m.Headers().Get("Dlq-Sequence"), 10, 64)
			e.failedAt, _ = time.Parse(time.RFC3339Nano, m.Headers().Get("Dlq-Failed-At"))
			h.dead = append(h.dead, e)
		})
	})
	if err != nil || c.plan.WorkQueue {
		return err
	}
	return c.insist(ctx, "read the source", func(context.Context) error {
		h.source = map[int]uint64{}
		return c.read(ctx, sourceStream, func(m natsjs.Msg, meta *natsjs.MsgMetadata) { h.source[indexOf(m.Data())] = meta.Sequence.Stream })
	})
}

// read hands out a whole stream.
func (c *campaign) read(ctx context.Context, stream string, f func(natsjs.Msg, *natsjs.MsgMetadata)) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	s, err := c.js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	left := s.CachedInfo().State.Msgs
	if left == 0 {
		return nil
	}
	cons, err := c.js.OrderedConsumer(ctx, stream, natsjs.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	for left > 0 {
		batch, err := cons.Fetch(int(min(left, 500)), natsjs.FetchMaxWait(5*time.Second))
		if err != nil {
			return err
		}
		got := uint64(0)
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if err != nil {
				return err
			}
			f(m, meta)
			got++
		}
		if got == 0 {
			return fmt.Errorf("stream %s: %d messages do not come: %w", stream, left, batch.Error())
		}
		left -= min(got, left)
	}
	return nil
}

// knownOf reads what a sidecar's log says of deliveries whose answer it knew.
func knownOf(path string) (all []known, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var k known
		if strings.Contains(lines.Text(), `"verdict":"duplicate"`) && json.Unmarshal(lines.Bytes(), &k) == nil {
			all = append(all, k)
		}
	}
	return all, lines.Err()
}
