package dlq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/forward"
	"github.com/jetsidecar/jetsidecar/jetstream"
	"github.com/jetsidecar/jetsidecar/policy"
)

const (
	// awayFor is how long a replay waits for a connection while the app is away, before it ends.
	awayFor = 5 * time.Second
	// awayLook is between two looks at that.
	awayLook = 50 * time.Millisecond
	// maxWhy is how much of an answer stands for a reason that the app did not give, in bytes.
	maxWhy = 200
)

// appThere looks whether the app can be connected to.
func (s *Service) appThere(ctx context.Context) error {
	if s.app == nil {
		return fmt.Errorf("%w: none is configured", ErrAppAway)
	}
	if err := s.app.Probe(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", ErrAppAway, err)
	}
	return nil
}

// prepare looks how large an entry may be. What is wrong with a DLQ stream shows when something must be stored.
func (r *replay) prepare(ctx context.Context) {
	for i := range r.s.consumers {
		c := &r.s.consumers[i]
		if r.dead[c] != nil {
			continue
		}
		cfg := c.DLQ
		cfg.Create = false
		r.dead[c] = jetstream.NewDeadLetters(r.s.conn, cfg, c.Stream, c.Durable, r.s.log)
		_ = r.dead[c].Ensure(ctx)
	}
}

func (s *Service) consumer(stream, durable string) *Consumer {
	for i := range s.consumers {
		if c := &s.consumers[i]; c.Stream == stream && c.Durable == durable {
			return c
		}
	}
	return nil
}

// toApp sends an entry to the app, once. If that fails again it returns when the new entry is stored. It returns no outcome if
// the run stops before the app was reached.
func (r *replay) toApp(ctx context.Context, l *Letter) (*Outcome, error) {
	c := r.s.consumer(l.Stream, l.Consumer) // there is one, else the entry is unfit
	m := replayed(l)
	result := r.call(ctx, c, m)
	if result.Kind == policy.HandedBack {
		return nil, unlessStopped(ctx, fmt.Errorf("%w: %w", ErrAppAway, r.s.app.LastError()))
	}
	verdict, reason := decide(&c.Policy, result.Outcome, m)
	if verdict == policy.Ack || verdict == policy.Drop {
		r.remember(ctx, c, m)
		o := &Outcome{Result: Acked, Status: result.Status}
		if verdict == policy.Drop {
			o.Result = Dropped
		}
		return o, nil
	}
	return r.again(context.WithoutCancel(ctx), c, l, m, result, reason)
}

// again stores an entry with the new cause, in the DLQ stream that its consumer has now: that need not be the one it was read from. It returns an
// error beside the outcome if no other could be stored either.
func (r *replay) again(ctx context.Context, c *Consumer, l *Letter, m *jetstream.Message, result forward.Result, reason policy.Reason) (*Outcome, error) {
	text := result.Error
	if text == "" {
		text = result.Reason
	}
	dead := r.dead[c]
	seq, _, err := dead.PutAt(ctx, jetstream.DeadLetter{
		Message: m, Deliveries: m.Delivered, Reason: string(reason), Status: result.Status, Error: text,
		Response: result.Response, FailedAt: time.Now(),
	})
	if err != nil {
		err = fmt.Errorf("the app failed it again, and the new cause could not be stored: %w", err)
		o := left(result.Status, err)
		if !denied(err) {
			err = nil
		}
		return o, err
	}
	if dead.Stream() == l.DLQStream && slices.ContainsFunc(l.parts, func(p part) bool { return p.seq == seq }) {
		return left(result.Status, errors.New("the app failed it again, and the new entry cannot be told from this one")), nil
	}
	o := &Outcome{Result: Failed, NewStream: dead.Stream(), NewSeq: seq, Reason: string(reason), Status: result.Status, Why: text}
	if text == "" {
		o.Why, o.answer = startOf(result.Response), true
	}
	return o, nil
}

// startOf is the start of an answer, on one line.
func startOf(body []byte) string {
	text := strings.ToValidUTF8(string(body[:min(len(body), maxWhy)]), "")
	return strings.Join(strings.Fields(text), " ")
}

// remember tells that the app accepted a message, unless it is of a stream that is gone.
func (r *replay) remember(ctx context.Context, c *Consumer, m *jetstream.Message) {
	if c.Remember == nil {
		return
	}
	state, err := r.s.conn.StreamState(context.WithoutCancel(ctx), c.Stream)
	if err != nil || m.Stored.Before(state.Created) {
		return
	}
	m.StreamCreated = state.Created
	c.Remember(m)
}

// replayed is the message that an entry was made of, delivered once more: it counts as a delivery.
func replayed(l *Letter) *jetstream.Message {
	header := jetstream.OriginalHeader(l.Headers)
	if l.MsgID != "" {
		header[natsjs.MsgIDHeader] = []string{l.MsgID}
	}
	header[jetstream.HeaderReplays] = []string{strconv.Itoa(l.Replays + 1)}
	return &jetstream.Message{
		Subject: l.Subject, Header: header, Body: l.Body, Sequence: l.Sequence, Delivered: l.Deliveries + 1, Stored: original(l.Headers),
	}
}

// decide is the verdict over a replay. It has one attempt, so what would be tried again has failed.
func decide(p *policy.Policy, o policy.Outcome, m *jetstream.Message) (policy.Verdict, policy.Reason) {
	d := p.Decide(o, policy.Attempt{Number: max(m.Delivered, uint64(max(p.MaxDeliver, 1))), Age: time.Since(m.Stored)})
	if d.Verdict == policy.Retry {
		return policy.DLQ, policy.ReasonMaxDeliver
	}
	return d.Verdict, d.Reason
}

// The states of a call.
const (
	waiting = iota // for a connection
	sending        // the app may see the request
	givenUp        // no new request
)

// call sends the message once. While the app cannot be connected to it waits, but not for long, and not once ctx has ended; then the
// message is handed back. A request that the app may have seen is waited for.
func (r *replay) call(ctx context.Context, c *Consumer, m *jetstream.Message) forward.Result {
	work, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	var state atomic.Int32
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		look := time.NewTicker(awayLook)
		defer look.Stop()
		there := time.Now()
		for {
			select {
			case <-ended:
				return
			case <-look.C:
			}
			if r.s.app.Up() || state.Load() == sending {
				there = time.Now()
			}
			if (ctx.Err() != nil || time.Since(there) > awayFor) && state.CompareAndSwap(waiting, givenUp) {
				giveUp()
				return
			}
		}
	})
	result := r.s.app.Forward(work, c.Target, &forward.Message{
		Stream: c.Stream, Consumer: c.Durable, Subject: m.Subject, Sequence: m.Sequence, Delivered: m.Delivered,
		MaxDeliver: uint64(c.Policy.MaxDeliver), Stored: m.Stored, Header: m.Header, Body: m.Body,
		Sending: func(now bool) {
			if now {
				state.CompareAndSwap(waiting, sending)
			} else {
				state.CompareAndSwap(sending, waiting)
			}
		},
	})
	close(ended)
	watching.Wait()
	return result
}
