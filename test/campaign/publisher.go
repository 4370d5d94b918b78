//go:build unix

package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// outcome is what is known of a publish.
type outcome string

const (
	stored  outcome = "stored"  // confirmed
	unknown outcome = "unknown" // no answer: it may be stored
	refused outcome = "refused" // not stored
)

// message is one that was published.
type message struct {
	index   int
	outcome outcome
	epoch   int    // how often the stream had been made anew
	seq     uint64 // if it is stored
	at      time.Time
}

// publisher publishes messages, each once.
type publisher struct {
	seed    uint64
	ordered bool
	js      natsjs.JetStream

	quiet sync.RWMutex // held for writing while the stream is made anew

	mu    sync.Mutex
	epoch int
	next  int
	sent  []message
}

const (
	publishers     = 6
	publishTimeout = 2 * time.Second
	// mostMessages bounds a campaign, whatever its rate and duration.
	mostMessages = 200_000
)

// run publishes at a rate until ctx ends.
func (p *publisher) run(ctx context.Context, rate int) {
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	var workers sync.WaitGroup
	defer workers.Wait()
	room := make(chan struct{}, publishers)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		select {
		case room <- struct{}{}:
			workers.Go(func() { p.publish(anyOf); <-room })
		default: // nats is slow
		}
	}
}

// burst publishes many of a choice at once.
func (p *publisher) burst(n int, choice func(seed uint64, index int) bool) {
	var workers sync.WaitGroup
	defer workers.Wait()
	room := make(chan struct{}, 32)
	for range n {
		room <- struct{}{}
		workers.Go(func() { p.publish(choice); <-room })
	}
}

// publish publishes the next message of a choice.
func (p *publisher) publish(choice func(seed uint64, index int) bool) {
	p.quiet.RLock()
	defer p.quiet.RUnlock()
	p.mu.Lock()
	for !choice(p.seed, p.next) {
		p.next++
	}
	m := message{index: p.next, epoch: p.epoch, at: time.Now()}
	p.next++
	p.mu.Unlock()
	if m.index >= mostMessages {
		return
	}
	subject := "orders." + string(natureOf(p.seed, m.index))
	if p.ordered {
		subject = "orders." + keyOf(p.seed, m.index)
	}
	msg := &nats.Msg{Subject: subject, Data: bodyOf(p.seed, m.index), Header: nats.Header{}}
	if id := idOf(p.seed, m.index); id != "" {
		msg.Header.Set(natsjs.MsgIDHeader, id)
	}
	ctx, cancel := context.WithTimeout(context.Background(), publishTimeout)
	defer cancel()
	ack, err := p.js.PublishMsg(ctx, msg, natsjs.WithRetryAttempts(0))
	var api *natsjs.APIError
	switch {
	case err == nil:
		m.outcome, m.seq = stored, ack.Sequence
	case errors.Is(err, natsjs.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders), errors.As(err, &api):
		m.outcome = refused
	default:
		m.outcome = unknown
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent = append(p.sent, m)
}

// published are all messages so far.
func (p *publisher) published() []message {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]message(nil), p.sent...)
}

// storedNow is how many are stored in the stream as it is now.
func (p *publisher) storedNow() int {
	n := 0
	for _, m := range p.published() {
		if m.epoch == p.epoch && m.outcome != refused {
			n++
		}
	}
	return n
}
