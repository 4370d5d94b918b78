package forward

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"time"
)

// lostInterval is the longest time between two looks at an app that could not be connected to, a tenth less than 2 s.
const lostInterval = 1800 * time.Millisecond

// Run probes the app until ctx ends: at once, and then at the ready interval, which varies by a tenth. While the app cannot be connected to
// it does so at least every 2 s.
func (c *Client) Run(ctx context.Context) {
	next := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.app.fell:
			if soon := time.Now().Add(c.untilNext()); soon.Before(next) {
				next = soon
			}
		case <-timer.C:
			if c.probeDue() {
				_ = c.Probe(ctx) // kept by the client
			}
			next = time.Now().Add(c.untilNext())
		}
		timer.Reset(time.Until(next))
	}
}

// untilNext is the time until the next look.
func (c *Client) untilNext() time.Duration {
	interval := c.ready.Interval
	if c.app.lost.Load() {
		interval = min(interval, lostInterval)
	}
	return probeInterval(interval, rand.Float64())
}

// probeInterval is an interval, a tenth of it more or less by chance.
func probeInterval(interval time.Duration, random float64) time.Duration {
	interval = min(interval, math.MaxInt64/2) // it must not wrap around
	return max(interval+time.Duration((random-0.5)*float64(interval)/5), 1)
}

// probeDue reports whether there is anything to find out: where a connection is enough, an answer since the last look shows
// as much.
func (c *Client) probeDue() bool {
	exchanged := c.app.exchanged.Swap(false)
	return c.app.gated || !c.app.up.Load() || !exchanged
}

// Probe looks at the app once: it gets the ready path, which must answer 2xx, or without one makes a connection. What it finds
// is from then on what Up and LastError say, unless ctx ended, or no connection could be made to an app that has just answered.
func (c *Client) Probe(ctx context.Context) error {
	connected, err := c.probe(ctx)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && !connected:
		c.app.unreachable(err)
	default:
		c.app.set(err)
	}
	return err
}

func (c *Client) probe(ctx context.Context) (connected bool, err error) {
	if !c.app.gated {
		err := c.dialer.touch(ctx, c.base)
		return err == nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, min(c.timeout, 5*time.Second))
	defer cancel()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }})
	t, err := c.Target(http.MethodGet, c.ready.Path)
	if err != nil {
		return false, err
	}
	header := http.Header{"User-Agent": {c.agent}}
	for _, f := range c.fixed {
		header[f.name] = []string{f.value}
	}
	resp, err := c.probing.RoundTrip(c.request(t, header).WithContext(ctx))
	if err != nil {
		return connected, fmt.Errorf("get %s: %w", c.ready.Path, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return true, fmt.Errorf("get %s: answered %d", c.ready.Path, resp.StatusCode)
	}
	return true, nil
}

// touch makes a connection as a request would, with the handshake of TLS if there is one, and closes it.
func (d *dialer) touch(ctx context.Context, app *url.URL) error {
	dial := d.dialContext
	if app.Scheme == "https" {
		dial = d.dialTLSContext
	}
	nc, err := dial(ctx, "tcp", hostPort(app))
	if err != nil {
		return err
	}
	_ = nc.Close()
	return nil
}
