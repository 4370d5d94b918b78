package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"golang.org/x/time/rate"
)

const (
	publishTimeout = 5 * time.Second
	publishPause   = time.Second // after a failure
	heldPause      = 100 * time.Millisecond
	heldTries      = 20
)

// load publishes the sample messages.
type load struct {
	nc     *nats.Conn
	js     natsjs.JetStream
	source source
	ledger *ledger
	warn   func(string)
}

// newLoad connects and opens the stream.
func newLoad(ctx context.Context, url, stream string) (*load, error) {
	nc, err := nats.Connect(url, nats.Name("sidecar-dev sample messages"), nats.MaxReconnects(-1))
	if err != nil {
		return nil, fmt.Errorf("connect the sample messages to %s: %w", url, err)
	}
	l := &load{nc: nc}
	if l.js, err = natsjs.New(nc); err == nil {
		l.source, err = openStream(ctx, l.js, stream)
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return l, nil
}

func (l *load) close() { l.nc.Close() }

// run publishes perSecond messages a second until there were n, or without end if n is 0, or until ctx ends.
func (l *load) run(ctx context.Context, perSecond float64, n int) {
	defer l.ledger.publishedAll()
	if perSecond == 0 {
		return
	}
	limiter := rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond/50)))
	plan := newPlan(l.source.last+1, int(perSecond*l.source.outlived().Seconds()))
	for i := 0; n == 0 || i < n; i++ {
		m := plan.message()
		if limiter.Wait(ctx) != nil || !l.outlive(ctx, m.of) || !l.publish(ctx, m) {
			return
		}
	}
}

// outlive waits until the stream takes another message with the id of m, if there is an m. It returns false if ctx ended.
func (l *load) outlive(ctx context.Context, m *sample) bool {
	return m == nil || pause(ctx, time.Until(m.stored.Add(l.source.outlived())))
}

// publish stores one message, however often that takes. It returns false if ctx ended.
func (l *load) publish(ctx context.Context, m *sample) bool {
	for tries := 1; ; tries++ {
		l.ledger.publishing(m.repeats())
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout) // what is sent is counted
		ack, err := l.js.PublishMsg(within, l.message(m))
		cancel()
		switch {
		case err == nil && ack.Duplicate && ack.Sequence == m.repeats() && tries < heldTries && pause(ctx, heldPause):
			continue // the stream forgets an id a little late
		case err == nil:
			m.sequence, m.stored = ack.Sequence, time.Now()
			l.ledger.published(ack.Sequence, ack.Duplicate)
			return true
		case ctx.Err() != nil:
			return false
		}
		l.warn(fmt.Sprintf("a sample message was not stored, trying again: %v", err))
		if !pause(ctx, publishPause) {
			return false
		}
	}
}

func (l *load) message(m *sample) *nats.Msg {
	msg := nats.NewMsg(l.source.subject(m.event))
	msg.Header.Set(natsjs.MsgIDHeader, m.id)
	msg.Header.Set("Content-Type", "application/json")
	msg.Data = m.body
	return msg
}

// pause waits. It returns false if ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
