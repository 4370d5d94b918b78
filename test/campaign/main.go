//go:build unix

// Command campaign looks for lost and doubled messages: it runs whole sidecars on a JetStream cluster, injects faults that
// a seed decides, and at the end proves the promises of delivery from what was published, what the app saw and what is in
// the DLQ. Everything listens on loopback only.
//
//	go run ./test/campaign -duration 60s -seed 7
//	go run ./test/campaign -duration 60s -seed 1 -seeds 10
//	go run ./test/campaign -soak -duration 30m -seed 1
//	go run ./test/campaign -mutants
//
// The exit code is 0 if every promise held, 1 if one was broken, 2 if the campaign could not be run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	exitHeld   = 0
	exitBroken = 1
	exitFailed = 2
)

// options are what the command line says.
type options struct {
	duration time.Duration // of the faults; settling comes on top
	seed     uint64
	seeds    int // how many, from seed on
	sidecar  string
	rate     int // messages a second
	keep     bool
	planOnly bool
	soak     bool
	mutants  bool
	only     string
	verbose  bool
}

func main() {
	if hidden(os.Args) {
		return
	}
	os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
}

// hidden runs the roles that the campaign starts itself in: a node of the cluster, or the warden.
func hidden(args []string) bool {
	switch {
	case len(args) == 3 && args[1] == "-node":
		runNode(args[2])
	case len(args) == 2 && args[1] == "-warden":
		runWarden(os.Stdin)
	default:
		return false
	}
	return true
}

func command(args []string, out, errs io.Writer) int {
	var o options
	fs := flag.NewFlagSet("campaign", flag.ContinueOnError)
	fs.SetOutput(errs)
	fs.DurationVar(&o.duration, "duration", time.Minute, "how long faults are injected; settling comes on top")
	fs.Uint64Var(&o.seed, "seed", 0, "decides the faults and the messages; 0 takes one from the clock")
	fs.IntVar(&o.seeds, "seeds", 1, "how many seeds, from -seed on")
	fs.StringVar(&o.sidecar, "sidecar", "", "the sidecar's binary; empty builds it")
	fs.IntVar(&o.rate, "rate", 40, "messages published a second")
	fs.BoolVar(&o.keep, "keep", false, "keep the directory with logs and stores")
	fs.BoolVar(&o.verbose, "v", false, "tell what happened when, also where nothing is broken")
	fs.BoolVar(&o.planOnly, "plan", false, "only print the plan of a seed")
	fs.BoolVar(&o.soak, "soak", false, "inject faults at a gentle rate with quiet times between, and look whether the sidecars grow")
	fs.BoolVar(&o.mutants, "mutants", false, "run against sidecars with one safety line broken, and tell which are found")
	fs.StringVar(&o.only, "only", "", "only the mutants whose name has this in it")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitHeld
		}
		return exitFailed
	}
	if fs.NArg() > 0 || o.duration < time.Second || o.duration > time.Hour || o.seeds < 1 || o.seeds > 1000 || o.rate < 1 || o.rate > 1000 {
		fmt.Fprintln(errs, "campaign: no arguments besides flags; -duration is 1s to 1h, -seeds 1 to 1000, -rate 1 to 1000")
		return exitFailed
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	if o.planOnly {
		printPlan(out, newPlan(o.seed, o.duration))
		return exitHeld
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	code, err := campaigns(ctx, o, out)
	if err != nil {
		fmt.Fprintf(errs, "campaign: %v\n", err)
		return exitFailed
	}
	return code
}

// campaigns runs one campaign for each seed, or the mutants.
func campaigns(ctx context.Context, o options, out io.Writer) (code int, err error) {
	h, err := newHouse(o.keep)
	if err != nil {
		return exitFailed, err
	}
	defer h.close()
	if o.mutants {
		return runMutants(ctx, h, o, out)
	}
	if o.sidecar == "" {
		if o.sidecar, err = buildSidecar(ctx, h.dir); err != nil {
			return exitFailed, err
		}
	}
	if o.soak {
		return runSoak(ctx, h, o, out)
	}
	for seed := o.seed; seed < o.seed+uint64(o.seeds); seed++ {
		r, err := runCampaign(ctx, h, newPlan(seed, o.duration), o.sidecar, o.rate)
		if err != nil {
			return exitFailed, fmt.Errorf("seed %d: %w", seed, err)
		}
		if o.verbose && len(r.breaches) == 0 {
			r.stories = append(r.stories, r.timeline)
		}
		printReport(out, r)
		if len(r.breaches) > 0 {
			code = exitBroken
		}
	}
	return code, nil
}
