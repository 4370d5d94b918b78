package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// lookEvery is how often a run is looked at.
	lookEvery = 20 * time.Millisecond
	// runLimit bounds a run beyond the time it is meant to take.
	runLimit = 2 * time.Minute
	// settle is how long a forwarder is left alone before it is measured idle.
	settle = time.Second
)

// measurement is one run.
type measurement struct {
	Rate        float64         `json:"rate,omitempty"` // messages a second, from the first request to the last answer
	Forwarder   time.Duration   `json:"cpu_forwarder"`  // CPU a message; of an idle run, a minute
	NATS        time.Duration   `json:"cpu_nats"`
	App         time.Duration   `json:"cpu_app"`
	Memory      int64           `json:"memory"`      // bytes resident, at most; of an idle run, now
	Connections int             `json:"connections"` // to the app
	Requests    int             `json:"requests"`
	Latency     []time.Duration `json:"latency,omitempty"` // quantiles
	Pulls       float64         `json:"pulls,omitempty"`   // a minute
}

// quantiles are those of a latency run.
var quantiles = []float64{0.5, 0.99, 0.999}

// measure runs a forwarder once.
func (w *world) measure(ctx context.Context, f forwarder, c benchCase) (m measurement, err error) {
	most := runLimit + c.Time
	if c.Rate > 0 {
		most += time.Duration(c.Messages) * time.Second / time.Duration(c.Rate)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("not done in %s", most))
	defer cancel()
	t := target{nats: w.url(), stream: streamName, durable: durableName, app: w.app.address, benchCase: c}
	if c.RoundTrip > 0 {
		proxy, err := startRole("proxy", "to="+w.server.address, "delay="+(c.RoundTrip/2).String())
		if err != nil {
			return m, err
		}
		defer proxy.stop()
		t.nats = "nats://" + proxy.address
	}
	if err := w.resetApp(ctx, c); err != nil {
		return m, err
	}
	if f.does != posts {
		filled := 0
		if c.Kind == throughput {
			filled = c.Messages - 1 // the last one begins the run
		}
		if err := w.stream(ctx, filled, c); err != nil {
			return m, fmt.Errorf("making the stream: %w", err)
		}
	}
	p, err := f.start(t)
	if err != nil {
		return m, err
	}
	defer p.stop()
	if f.does != posts {
		if err := w.serving(ctx, p); err != nil {
			return m, err
		}
	}
	switch c.Kind {
	case latency:
		return w.latency(ctx, p, c)
	case idle:
		return w.idle(ctx, p, c)
	}
	return w.drain(ctx, f, p, c)
}

// serving waits until a forwarder has asked for messages.
func (w *world) serving(ctx context.Context, p *process) error {
	return w.until(ctx, p, "asking for messages", func() (bool, error) {
		info, err := w.consumer(ctx)
		return err == nil && (info.NumWaiting > 0 || info.PushBound), err
	})
}

// drain measures how a full stream is emptied.
func (w *world) drain(ctx context.Context, f forwarder, p *process, c benchCase) (m measurement, err error) {
	before, err := w.spent(p)
	if err != nil {
		return m, err
	}
	began := time.Now()
	if f.does == posts {
		err = p.begin()
	} else {
		err = w.resume(ctx, c.Size)
	}
	if err != nil {
		return m, err
	}
	if err := w.done(ctx, f, p, c); err != nil {
		return m, err
	}
	took := time.Since(began)
	after, err := w.spent(p)
	if err != nil {
		return m, err
	}
	m = after.since(before, c.Messages)
	s, err := w.stats(ctx, false)
	if err != nil {
		return m, err
	}
	if f.does != acks {
		took = time.Duration(s.Last - s.First)
	}
	m.Rate, m.Requests, m.Connections = float64(c.Messages)/took.Seconds(), s.Requests, s.Connections
	m.Memory, err = p.memory("VmHWM")
	return m, err
}

// done waits until the app answered each message and NATS knows it.
func (w *world) done(ctx context.Context, f forwarder, p *process, c benchCase) error {
	if f.does != acks {
		if err := w.until(ctx, p, "bringing messages to the app", func() (bool, error) {
			s, err := w.stats(ctx, false)
			return s.Done >= c.Messages, err
		}); err != nil {
			return err
		}
	}
	if f.does == posts {
		return nil
	}
	return w.until(ctx, p, "acking", func() (bool, error) {
		info, err := w.consumer(ctx)
		return err == nil && info.NumPending == 0 && info.NumAckPending == 0, err
	})
}

// latency measures how long messages take that come one by one.
func (w *world) latency(ctx context.Context, p *process, c benchCase) (m measurement, err error) {
	before, err := w.spent(p)
	if err != nil {
		return m, err
	}
	if err := w.publishAt(ctx, c.Messages, c.Size, c.Rate); err != nil {
		return m, err
	}
	if err := w.done(ctx, forwarder{}, p, c); err != nil {
		return m, err
	}
	after, err := w.spent(p)
	if err != nil {
		return m, err
	}
	m = after.since(before, c.Messages)
	s, err := w.stats(ctx, true)
	if err != nil || len(s.Latencies) == 0 {
		return m, fmt.Errorf("latencies of the app: %d, %w", len(s.Latencies), err)
	}
	for _, q := range quantiles {
		m.Latency = append(m.Latency, s.Latencies[int(q*float64(len(s.Latencies)-1)+0.5)])
	}
	m.Requests, m.Connections = s.Requests, s.Connections
	m.Memory, err = p.memory("VmHWM")
	return m, err
}

// idle measures what a forwarder costs that has nothing to do.
func (w *world) idle(ctx context.Context, p *process, c benchCase) (m measurement, err error) {
	var pulls atomic.Int64
	tap, err := w.nc.Subscribe("$JS.API.CONSUMER.MSG.NEXT."+streamName+"."+durableName, func(*nats.Msg) { pulls.Add(1) })
	if err != nil {
		return m, err
	}
	defer func() { _ = tap.Unsubscribe() }()
	if err := pause(ctx, settle); err != nil {
		return m, err
	}
	before, err := w.spent(p)
	if err != nil {
		return m, err
	}
	pulls.Store(0)
	if err := pause(ctx, c.Time); err != nil {
		return m, err
	}
	counted := pulls.Load()
	after, err := w.spent(p)
	if err != nil {
		return m, err
	}
	minutes := c.Time.Minutes()
	m = after.since(before, 1)
	for _, d := range []*time.Duration{&m.Forwarder, &m.NATS, &m.App} {
		*d = time.Duration(float64(*d) / minutes)
	}
	m.Pulls = float64(counted) / minutes
	m.Memory, err = p.memory("VmRSS")
	return m, err
}

// until looks until something is so, the process ends or the time is over.
func (w *world) until(ctx context.Context, p *process, what string, is func() (bool, error)) error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	var last error
	for {
		ok, err := is()
		if ok {
			return nil
		}
		last = err
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s, %s: %w (%s)", p.name, what, context.Cause(ctx), strings.TrimSpace(fmt.Sprintf("%v %s", orNothing(last), p.said)))
		case <-p.ended:
			return fmt.Errorf("%s, %s: it ended: %s (%s)", p.name, what, p.cmd.ProcessState, p.said)
		case <-look.C:
		}
	}
}

func orNothing(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// spent are the CPU times so far.
type spent struct{ forwarder, nats, app time.Duration }

func (w *world) spent(p *process) (s spent, err error) {
	for _, one := range []struct {
		p    *process
		into *time.Duration
	}{{p, &s.forwarder}, {w.server, &s.nats}, {w.app, &s.app}} {
		if *one.into, err = one.p.cpu(); err != nil {
			return s, err
		}
	}
	return s, nil
}

// since is what was spent since then, a message.
func (s spent) since(then spent, messages int) measurement {
	n := time.Duration(messages)
	return measurement{Forwarder: (s.forwarder - then.forwarder) / n, NATS: (s.nats - then.nats) / n, App: (s.app - then.app) / n}
}
