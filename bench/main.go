// Command bench compares the sidecar with other ways to bring messages of a JetStream stream to an HTTP app, on one machine,
// in alternating rounds, each in a process of its own:
//
//	cd bench && go run .
//
// docs/performance.md says how to read what it prints.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == roleArgument {
		if err := playRole(os.Args[2], os.Args[3:]); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", os.Args[2], err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		stop()
		os.Exit(1)
	}
}

// run is the whole command. What is under way is said on progress.
func run(ctx context.Context, arguments []string, out, progress io.Writer) error {
	o, err := parse(arguments, progress)
	if err != nil {
		return err
	}
	if o.overload {
		return overload(ctx, o, out, progress)
	}
	var r *results
	if o.from != "" {
		r, err = readResults(o.from)
	} else {
		r, err = compare(ctx, o, progress)
	}
	if r == nil {
		return err
	}
	if o.json != "" {
		err = errors.Join(err, r.write(o.json))
	}
	return errors.Join(err, r.print(out, o.markdown))
}
