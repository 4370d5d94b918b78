package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

const (
	// overloadMost is how many requests at a time the app can take, and overloadDelay how long each takes.
	overloadMost, overloadDelay = 20, 50 * time.Millisecond
	overloadSize                = 256
)

// overloadFixed are the fixed numbers that an adaptive one, up to the last of them, is compared with.
var overloadFixed = []int{8, 16, 20, 24, 64}

// overload measures what is done in some time at fixed numbers of requests and an adaptive one, with apps that cannot take more than some.
func overload(ctx context.Context, o *options, out, progress io.Writer) error {
	fmt.Fprintln(progress, "building the sidecar")
	w, err := newWorld(ctx)
	if err != nil {
		return err
	}
	defer w.close()
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(cells ...string) { fmt.Fprintln(t, "| "+strings.Join(cells, "\t| ")+"\t|") }
	head := []string{"above " + strconv.Itoa(overloadMost) + " at a time the app"}
	for _, n := range overloadFixed {
		head = append(head, strconv.Itoa(n))
	}
	line(append(head, "adaptive", "of the best")...)
	for _, beyond := range []string{refuses, slows, waits, dies} {
		cells, best := []string{beyond}, 0.0
		for i := range len(overloadFixed) + 1 {
			c := benchCase{Size: overloadSize, Adaptive: i == len(overloadFixed), Concurrency: overloadFixed[min(i, len(overloadFixed)-1)]}
			fmt.Fprintf(progress, "an app that %s: %d at a time, adaptive %t\n", beyond, c.Concurrency, c.Adaptive)
			rate, err := w.overloaded(ctx, o, c, beyond)
			if err != nil {
				return err
			}
			cells = append(cells, fmt.Sprintf("%.0f", rate))
			if c.Adaptive {
				cells = append(cells, fmt.Sprintf("%.0f %%", 100*rate/best))
			}
			best = max(best, rate)
		}
		line(cells...)
	}
	return t.Flush()
}

// overloaded is how many messages a second are done in one run.
func (w *world) overloaded(ctx context.Context, o *options, c benchCase, beyond string) (float64, error) {
	query := url.Values{"delay": {overloadDelay.String()}, "every": {"0"}, "most": {strconv.Itoa(overloadMost)}, "beyond": {beyond}}
	if err := w.ask(ctx, http.MethodPost, "/reset?"+query.Encode(), nil); err != nil {
		return 0, err
	}
	messages := int(1.5 * o.seconds.Seconds() * overloadMost / overloadDelay.Seconds())
	if err := w.stream(ctx, messages, c); err != nil {
		return 0, fmt.Errorf("making the stream: %w", err)
	}
	p, err := startSidecar(w.sidecar, target{nats: w.url(), stream: streamName, durable: durableName, app: w.app.address, benchCase: c})
	if err != nil {
		return 0, err
	}
	defer p.stop()
	if err := w.until(ctx, p, "begin", func() (bool, error) {
		s, err := w.stats(ctx, false)
		return s.Requests > 0, err
	}); err != nil {
		return 0, err
	}
	if err := pause(ctx, o.seconds); err != nil {
		return 0, err
	}
	s, err := w.stats(ctx, false)
	return float64(s.Done) / o.seconds.Seconds(), err
}
