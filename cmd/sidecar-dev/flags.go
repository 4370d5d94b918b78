package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

const (
	defaultPort  = 4222
	defaultAdmin = "127.0.0.1:9090"
	maxRate      = 100_000
)

const helpText = `sidecar-dev shows the sidecar at work with nothing else installed: a JetStream
server, a sample app, sample messages and the sidecar itself in one process.

Usage: sidecar-dev [flags]

  --app URL       send to your own app at this URL instead of the sample app
  --port N        port of the NATS server (default 4222; 0 takes any free one)
  --store DIR     keep the streams in DIR, and go on with what is there
                  (default: a temporary directory, removed at the end); one
                  sidecar-dev at a time
  --stream NAME   source stream, made if it is missing (default ORDERS)
  --rate R        sample messages a second (default 2; 0 publishes none)
  --messages N    publish N sample messages, stop when all are settled
                  (default 0: go on until Ctrl-C)
  --admin ADDR    address of the admin listener (default 127.0.0.1:9090; if it
                  is taken, any free port)

Ctrl-C stops cleanly, a second one at once. Colour is used on a terminal only,
and not with NO_COLOR set. SIDECAR_* variables are not read.
Exit codes: 0 clean stop, 1 failure at run time, 2 usage error.
`

// options are the flags.
type options struct {
	app      string // URL of the user's app; empty means the sample app
	port     int    // of the NATS server; 0 means any
	store    string // directory; empty means a temporary one
	stream   string
	rate     float64 // sample messages a second; 0 means none
	messages int     // to publish; 0 means no end
	admin    string
}

// usageError is a fault of the command line.
type usageError string

// Error is the fault.
func (e usageError) Error() string { return string(e) }

// parse reads the command line. With ok false the process ends with code, and what there is to say was said.
func parse(args []string, s streams) (o options, code int, ok bool) {
	if slices.ContainsFunc(args, func(a string) bool { return a == "-h" || a == "-help" || a == "--help" }) {
		io.WriteString(s.out, helpText)
		return o, exitOK, false
	}
	o, err := parseFlags(args)
	if err == nil {
		err = o.check()
	}
	return o, report(err, s), err == nil
}

func parseFlags(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("sidecar-dev", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&o.app, "app", "", "")
	fs.IntVar(&o.port, "port", defaultPort, "")
	fs.StringVar(&o.store, "store", "", "")
	fs.StringVar(&o.stream, "stream", "ORDERS", "")
	fs.Float64Var(&o.rate, "rate", 2, "")
	fs.IntVar(&o.messages, "messages", 0, "")
	fs.StringVar(&o.admin, "admin", defaultAdmin, "")

	err := fs.Parse(args)
	if err != nil {
		if name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); unknown {
			return o, usageError(fmt.Sprintf("unknown flag --%s; the nearest is --%s", clean(name), nearestFlag(fs, name)))
		}
		return o, usageError(strings.NewReplacer("flag -", "flag --", "argument: -", "argument: --").Replace(clean(err.Error())))
	}
	if fs.NArg() > 0 {
		return o, usageError(fmt.Sprintf("unexpected argument %q", fs.Arg(0)))
	}
	return o, nil
}

func nearestFlag(fs *flag.FlagSet, name string) string {
	var known []string
	fs.VisitAll(func(f *flag.Flag) { known = append(known, f.Name) })
	best, _ := config.Nearest(name, known)
	return best
}

// check finds values that cannot be.
func (o options) check() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, usageError(fmt.Sprintf(format, args...))) }
	if o.port < 0 || o.port > math.MaxUint16 {
		fault("--port %d: must be 0 to 65535", o.port)
	}
	if !(o.rate >= 0 && o.rate <= maxRate) {
		fault("--rate %v: must be 0 to %d messages a second", o.rate, maxRate)
	}
	if o.messages < 0 {
		fault("--messages %d: must not be negative", o.messages)
	}
	if o.messages > 0 && o.rate == 0 {
		fault("--messages %d: nothing is published with --rate 0", o.messages)
	}
	_, err := o.config("nats://127.0.0.1:4222", o.app)
	return errors.Join(append(faults, err)...)
}
