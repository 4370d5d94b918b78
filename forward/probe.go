package forward

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

// Run probes the app until ctx ends: at once, and then at the ready interval, which varies by a tenth.
func (c *Client) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if c.probeDue() {
			_ = c.Probe(ctx) // kept by the client
		}
		timer.Reset(probeInterval(c.ready.Interval, rand.Float64()))
	}
}

func probeInterval(interval time.Duration, random float64) time.Duration {
	return max(interval+time.Duration((random-0.5)*float64(interval)/5), 1)
}

// probeDue reports whether there is anything to find out: where a connection is enough, an answer since the last look shows
// as much.
func (c *Client) probeDue() bool {
	exchanged := c.app.exchanged.Swap(false)
	return c.app.gated || !c.app.up.Load() || !exchanged
}

// Probe looks at the app once: it gets the ready path, which must answer 2xx, or without one makes a connection. What it finds
// is from then on what Up and LastError say, unless ctx ended.
func (c *Client) Probe(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, min(c.timeout, 5*time.Second))
	defer cancel()
	err := c.probe(within)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c.app.set(err)
	return err
}

func (c *Client) probe(ctx context.Context) error {
	if !c.app.gated {
		return c.dialer.touch(ctx, hostPort(c.base))
	}
	t, err := c.Target(http.MethodGet, c.ready.Path)
	if err != nil {
		return err
	}
	header := http.Header{"User-Agent": {c.agent}}
	for _, f := range c.fixed {
		header[f.name] = []string{f.value}
	}
	resp, err := c.probing.RoundTrip(c.request(t, header).WithContext(ctx))
	if err != nil {
		return fmt.Errorf("get %s: %w", c.ready.Path, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("get %s: answered %d", c.ready.Path, resp.StatusCode)
	}
	return nil
}

// touch makes a connection and closes it.
func (d *dialer) touch(ctx context.Context, address string) error {
	nc, err := d.dialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return nc.Close()
}
