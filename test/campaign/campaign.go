//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

const (
	// insistLimit bounds how long a request is repeated that a cluster in trouble refuses.
	insistLimit = 2 * time.Minute
	// settleLimit bounds the wait for everything to be settled once all faults are healed: leaders must be elected, and the
	// longest-lived leases, delays and breakers must run out.
	settleLimit = 90 * time.Second
	apiTimeout  = 3 * time.Second
)

// campaign is one that runs.
type campaign struct {
	h        *house
	plan     plan
	dir      string
	cluster  *cluster
	app      *app
	sidecars []*sidecar
	nc       *nats.Conn
	js       natsjs.JetStream
	pub      *publisher

	mu     sync.Mutex
	events []event
	faults []error // in injecting
}

// event is a fault that took place.
type event struct {
	fault
	begin, end time.Time
	affected   int // messages that a deleted durable may bring again
}

// runCampaign carries a plan out, waits until everything is settled, and checks.
func runCampaign(ctx context.Context, h *house, p plan, sidecar string, rate int) (report, error) {
	c, err := newCampaign(h, p)
	if err != nil {
		return report{}, err
	}
	defer c.close()
	if err := c.open(ctx, sidecar); err != nil {
		return report{}, err
	}
	if err := c.rage(ctx, p.Faults, p.Duration, rate); err != nil {
		return report{}, err
	}
	hist, err := c.settle(ctx)
	if err != nil {
		return report{}, err
	}
	r := newReport(hist, c.dir)
	return r, c.clean(len(r.breaches) == 0)
}

// newCampaign makes room for one.
func newCampaign(h *house, p plan) (*campaign, error) {
	c := &campaign{h: h, plan: p, dir: filepath.Join(h.dir, fmt.Sprintf("seed%d", p.Seed))}
	if err := os.RemoveAll(c.dir); err != nil {
		return nil, err
	}
	return c, os.MkdirAll(c.dir, 0o700)
}

// clean ends everything, and removes the files of what held.
func (c *campaign) clean(held bool) error {
	if c.h.keep || !held {
		return nil
	}
	c.close()
	return os.RemoveAll(c.dir)
}

// open starts the cluster, the streams, the app and the sidecars' ways to both.
func (c *campaign) open(ctx context.Context, sidecar string) error {
	var err error
	if c.cluster, err = newCluster(c.h, c.dir); err != nil {
		return err
	}
	c.nc, err = nats.Connect(c.cluster.urls(), nats.UserInfo("campaign", "campaign"), nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1), nats.ReconnectWait(100*ms), nats.ReconnectBufSize(-1), nats.PingInterval(2*time.Second),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		return err
	}
	if c.js, err = natsjs.New(c.nc); err != nil {
		return err
	}
	for _, cfg := range []natsjs.StreamConfig{c.source(), c.dead(-1)} {
		if err := c.insist(ctx, "create stream "+cfg.Name, func(ctx context.Context) error {
			_, err := c.js.CreateOrUpdateStream(ctx, cfg)
			return err
		}); err != nil {
			return err
		}
	}
	if c.app, err = newApp(c.plan.Seed, c.plan.Sidecars); err != nil {
		return err
	}
	for i := range c.plan.Sidecars {
		s, err := newSidecar(c.h, c.plan, i, sidecar, c.dir, c.app.slots[i], c.cluster)
		if err != nil {
			return err
		}
		c.sidecars = append(c.sidecars, s)
	}
	c.pub = &publisher{seed: c.plan.Seed, ordered: c.plan.Ordered, js: c.js}
	return nil
}

func (c *campaign) source() natsjs.StreamConfig {
	cfg := natsjs.StreamConfig{Name: sourceStream, Subjects: []string{"orders.>"}, Storage: natsjs.FileStorage, Replicas: nodes}
	if c.plan.WorkQueue {
		cfg.Retention = natsjs.WorkQueuePolicy
	}
	return cfg
}

// dead is the DLQ stream with room for so many entries, -1 for any number.
func (c *campaign) dead(room int64) natsjs.StreamConfig {
	return natsjs.StreamConfig{
		Name: dlqStream, Subjects: []string{"dlq.ORDERS.*.>"}, Storage: natsjs.FileStorage, Replicas: nodes,
		Discard: natsjs.DiscardNew, AllowDirect: true, Duplicates: time.Hour, MaxMsgs: room,
	}
}

// insist repeats a request that a cluster in trouble may refuse.
func (c *campaign) insist(ctx context.Context, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, insistLimit)
	defer cancel()
	for {
		once, done := context.WithTimeout(ctx, apiTimeout)
		err := f(once)
		done()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, errors.Join(context.Cause(ctx), err))
		case <-time.After(100 * ms):
		}
	}
}

// rage publishes and injects faults for a time, and returns with everything healed.
func (c *campaign) rage(ctx context.Context, faults []fault, length time.Duration, rate int) error {
	raging, stop := context.WithTimeout(ctx, length)
	defer stop()
	var wg sync.WaitGroup
	begin := time.Now()
	for _, s := range c.sidecars {
		wg.Go(func() {
			rest(raging, time.Duration(hash(c.plan.Seed, uint64(s.slot), 5)%uint64(quietStart)))
			c.failed(s.start())
		})
	}
	wg.Go(func() { c.pub.run(raging, c.plan.rate(rate)) })
	for _, f := range faults {
		wg.Go(func() {
			if rest(raging, time.Until(begin.Add(f.At))) {
				c.failed(c.inject(raging, f))
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.faults...)
}

func (c *campaign) failed(err error) {
	if err != nil {
		c.mu.Lock()
		c.faults = append(c.faults, err)
		c.mu.Unlock()
	}
}

// rest waits, and reports whether it could to the end.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *campaign) close() {
	for _, s := range c.sidecars {
		s.close()
	}
	if c.app != nil {
		c.app.close()
	}
	if c.nc != nil {
		c.nc.Close()
	}
	if c.cluster != nil {
		c.cluster.close()
	}
}
