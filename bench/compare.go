package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"
)

// compare runs all that the options ask for: case by case, round by round, and in each round one forwarder after the other,
// each round beginning with another one.
func compare(ctx context.Context, o *options, progress io.Writer) (*results, error) {
	cases := plan(o)
	if len(cases) == 0 {
		return nil, fmt.Errorf("no case is named so")
	}
	fmt.Fprintln(progress, "building the sidecar")
	w, err := newWorld(ctx)
	if err != nil {
		return nil, err
	}
	defer w.close()
	forwarders := slices.DeleteFunc(slices.Concat(builtIn(w.sidecar), o.with), func(f forwarder) bool {
		return len(o.only) > 0 && !slices.Contains(o.only, f.name)
	})
	r := &results{Began: time.Now().UTC(), Machine: machine(ctx), Rounds: o.rounds}
	for i, c := range cases {
		part := slices.DeleteFunc(slices.Clone(forwarders), func(f forwarder) bool { return !f.runs(c) })
		for round := range o.roundsOf(c) {
			for k := range part {
				f := part[(k+round)%len(part)]
				fmt.Fprintf(progress, "case %d of %d, round %d of %d: %s: %s\n", i+1, len(cases), round+1, o.roundsOf(c), c.Name, f.name)
				m, err := w.measure(ctx, f, c)
				if ctx.Err() != nil {
					r.sort(c, part)
					return r, ctx.Err() // with what there is
				}
				if err != nil {
					fmt.Fprintf(progress, "  failed: %v\n", err)
				}
				r.add(c, f, m, err)
			}
		}
		r.sort(c, part)
	}
	return r, nil
}
