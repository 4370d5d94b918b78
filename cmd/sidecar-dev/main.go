// Command sidecar-dev shows the sidecar at work with nothing else installed: a JetStream server, a sample app, sample
// messages and the sidecar itself in one process. With --app it drives your own app instead.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/jetsidecar/jetsidecar/internal/app"
	"github.com/jetsidecar/jetsidecar/internal/signals"
)

// Exit codes.
const (
	exitOK     = 0 // a clean stop
	exitFailed = 1 // a failure at run time
	exitUsage  = 2 // a usage error
)

func main() {
	os.Exit(Main())
}

// Main runs the command line of the process and returns its exit code.
func Main() int {
	s := streams{out: os.Stdout, err: os.Stderr, getenv: os.Getenv}
	o, code, ok := parse(os.Args[1:], s)
	if !ok {
		return code
	}
	place, err := openStore(o.store)
	if err != nil {
		return report(err, s)
	}
	defer place.close()
	ctx, stop := signalled(place.close)
	defer stop()
	return report(run(ctx, o, place, s), s)
}

// streams is what the command reads and writes.
type streams struct {
	out, err io.Writer
	getenv   func(string) string
}

// report writes what went wrong, if anything, and returns the exit code.
func report(err error, s streams) int {
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		for line := range strings.Lines(err.Error()) {
			fmt.Fprintf(s.err, "sidecar-dev: %s\n", strings.TrimSuffix(line, "\n"))
		}
		fmt.Fprintln(s.err, "Run 'sidecar-dev --help' for the flags.")
		return exitUsage
	case errors.Is(err, app.ErrUnconfirmed):
		fmt.Fprintf(s.err, "sidecar-dev: stopped, but not cleanly: %v\n", err)
	default:
		fmt.Fprintf(s.err, "sidecar-dev: %v\n", err)
	}
	return exitFailed
}

// signalled is a context that ends with the first signal to stop; a second one calls abandon and ends the process at
// once, with 1. A broken pipe is left to whoever writes to it, so that the store is still put away.
func signalled(abandon func()) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	came := make(chan os.Signal, 2)
	signal.Notify(came, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	signal.Ignore(syscall.SIGPIPE)
	done := make(chan struct{})
	go func() {
		signals.Watch(came, done, func(os.Signal) { cancel() }, func(os.Signal) { abandon(); os.Exit(exitFailed) })
	}()
	return ctx, func() {
		signal.Stop(came)
		close(done)
		cancel()
	}
}
