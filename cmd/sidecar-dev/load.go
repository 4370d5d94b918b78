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
	longestWindow  = time.Second // of a stream that is waited for before a message is repeated
)

// load publishes the sample messages.
type load struct {
	nc     *nats.Conn
	js     natsjs.JetStream
	source source
	ledger *ledger
	warn   func(string)

	stored map[string]stored // the newest of each id that may be repeated
}

// stored is where and when a message was stored.
type stored struct {
	sequence uint64
	at       time.Time
}

// newLoad connects and opens the stream.
func newLoad(ctx context.Context, url, stream string) (*load, error) {
	nc, err := nats.Connect(url, nats.Name("sidecar-dev sample messages"), nats.MaxReconnects(-1))
	if err != nil {
		return nil, fmt.Errorf("connect the sample messages to %s: %w", url, err)
	}
	l := &load{nc: nc, stored: make(map[string]stored)}
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
	plan := newPlan(l.source.last + 1)
	for i := 0; n == 0 || i < n; i++ {
		m := plan.message()
		if limiter.Wait(ctx) != nil || !l.outliveWindow(ctx, m) || !l.publish(ctx, m) {
			return
		}
		l.forget(plan)
	}
}

// outliveWindow waits until the stream takes a repeated message. It returns false if ctx ended.
func (l *load) outliveWindow(ctx context.Context, m sample) bool {
	if !m.again {
		return true
	}
	window := min(l.source.window, longestWindow)
	return pause(ctx, time.Until(l.stored[m.id].at.Add(window+window/4)))
}

// publish stores one message, however often that takes. It returns false if ctx ended.
func (l *load) publish(ctx context.Context, m sample) bool {
	for {
		within, cancel := context.WithTimeout(ctx, publishTimeout)
		ack, err := l.js.PublishMsg(within, l.message(m))
		cancel()
		switch {
		case err == nil:
			l.ledger.published(ack.Sequence, ack.Duplicate, l.repeats(m))
			if !ack.Duplicate {
				l.stored[m.id] = stored{ack.Sequence, time.Now()}
			}
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

// repeats is the sequence of the message that m repeats, 0 if it is a new one.
func (l *load) repeats(m sample) uint64 {
	if !m.again {
		return 0
	}
	return l.stored[m.id].sequence
}

func (l *load) message(m sample) *nats.Msg {
	msg := nats.NewMsg(l.source.subject(m.event))
	msg.Header.Set(natsjs.MsgIDHeader, m.id)
	msg.Header.Set("Content-Type", "application/json")
	msg.Data = m.body
	return msg
}

// forget drops what will not be repeated.
func (l *load) forget(p *plan) {
	keep := make(map[string]stored, len(p.recent))
	for _, m := range p.recent {
		if s, ok := l.stored[m.id]; ok {
			keep[m.id] = s
		}
	}
	l.stored = keep
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
