//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

// How a soak goes: storms of some faults, and quiet times between them in which the sidecars are looked at.
const (
	soakPause  = 3 * time.Second // between faults, about
	shortStorm = 5 * time.Second
	longStorm  = 20 * time.Second
	// restTime is how long all is settled before a look: the sidecars close idle connections to the app meanwhile.
	restTime = 3 * time.Second
	// eyeCatch is how often a long soak tells that it goes on, in looks.
	eyeCatch = 10
)

// soakPlan is the plan of a soak. Its faults are drawn storm by storm.
func soakPlan(seed uint64, duration time.Duration) plan {
	return plan{Seed: seed, Duration: duration, Sidecars: 3, Shared: true, MaxDeliver: 4, Steady: true}
}

// storm is how long one lasts.
func (p plan) storm() time.Duration { return min(max(p.Duration/12, shortStorm), longStorm) }

// stormFaults are the faults of storm n.
func (p plan) stormFaults(n int) []fault {
	return p.spread(rand.New(rand.NewPCG(p.Seed, uint64(n))), p.storm(), soakPause)
}

// runSoak injects faults for a long time, and looks whether the sidecars grow. Every promise must hold too.
func runSoak(ctx context.Context, h *house, o options, out io.Writer) (code int, err error) {
	c, err := newCampaign(h, soakPlan(o.seed, o.duration))
	if err != nil {
		return exitFailed, err
	}
	defer c.close()
	if err := c.open(ctx, o.sidecar); err != nil {
		return exitFailed, err
	}
	looks, err := c.soak(ctx, o.rate, out)
	if err != nil {
		return exitFailed, err
	}
	hist, err := c.settle(ctx)
	if err != nil {
		return exitFailed, err
	}
	r := newReport(hist, c.dir)
	f := judge(looks, steadySlot)
	printReport(out, r)
	printFlatness(out, f, looks)
	if held := f.flat() && len(r.breaches) == 0; !held {
		return exitBroken, nil
	}
	return exitHeld, c.clean(true)
}

// soak goes through storms and quiet times for as long as the plan says, and until there are enough looks.
func (c *campaign) soak(ctx context.Context, rate int, out io.Writer) (looks []look, err error) {
	for begin, n := time.Now(), 0; time.Since(begin) < c.plan.Duration || n < fewestLooks; n++ {
		if err := c.rage(ctx, c.plan.stormFaults(n), c.plan.storm(), rate); err != nil {
			return nil, err
		}
		unsettled, _, err := c.calm(ctx)
		if err != nil || unsettled != "" {
			return looks, err // the checker says so
		}
		if !rest(ctx, restTime) {
			return nil, ctx.Err()
		}
		for _, s := range c.sidecars {
			l, err := s.look(ctx)
			if err != nil {
				return nil, fmt.Errorf("look at sidecar %d: %w", s.slot, err)
			}
			l.storm = n
			looks = append(looks, l)
		}
		if n%eyeCatch == eyeCatch-1 {
			fmt.Fprintf(out, "%s: %d storms, sidecar %s\n", time.Since(begin).Round(time.Second), n+1, looks[len(looks)-len(c.sidecars)])
		}
	}
	return looks, nil
}
