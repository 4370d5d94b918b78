package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/dlq"
	"github.com/jetsidecar/jetsidecar/internal/terminal"
)

// dlqFlags are the flags of the dlq commands.
type dlqFlags struct {
	*flag.FlagSet
	config string
	filter dlq.Filter
	json   bool
	seq    uint64 // the argument; 0: none

	admin, token, tokenFile string
}

// dlqFlagsOf are the flags that every dlq command has, and the filters if it takes some.
func dlqFlagsOf(c command, filters bool) *dlqFlags {
	d := &dlqFlags{FlagSet: flag.NewFlagSet(c.name, flag.ContinueOnError)}
	d.StringVar(&d.config, "c", "", "")
	d.StringVar(&d.filter.Stream, "stream", "", "")
	d.BoolVar(&d.json, "json", false, "")
	d.StringVar(&d.admin, "admin", "", "")
	d.StringVar(&d.token, "token", "", "")
	d.StringVar(&d.tokenFile, "token-file", "", "")
	if !filters {
		return d
	}
	d.StringVar(&d.filter.Consumer, "consumer", "", "")
	d.StringVar(&d.filter.Subject, "subject", "", "")
	d.Func("reason", "", d.reason)
	d.Func("status", "", d.status)
	d.Func("since", "", func(v string) (err error) { d.filter.Since, err = dlq.ParseMoment(v, time.Now()); return err })
	d.Func("until", "", func(v string) (err error) { d.filter.Until, err = dlq.ParseMoment(v, time.Now()); return err })
	d.Func("seq", "", func(v string) (err error) { d.filter.First, d.filter.Last, err = dlq.ParseSpan(v); return err })
	d.Func("limit", "", d.limit)
	return d
}

// parse parses the command line; an argument SEQ may stand anywhere if the command takes one. With ok false the error is written.
func (d *dlqFlags) parse(c command, args []string, s streams, takesSeq bool) (ok bool) {
	d.SetOutput(io.Discard)
	err := d.Parse(args)
	for err == nil && takesSeq && d.seq == 0 && d.NArg() > 0 {
		rest := d.Args()[1:]
		if d.seq, err = strconv.ParseUint(d.Arg(0), 10, 63); err != nil || d.seq == 0 {
			err = fmt.Errorf("%q is not the sequence of an entry", d.Arg(0))
			break
		}
		err = d.Parse(rest)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		err = errors.New("help is a flag of its own")
	case err == nil && d.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", d.Arg(0))
	case err == nil:
		err = d.check()
	}
	if err == nil {
		return true
	}
	fmt.Fprintf(s.err, "sidecar dlq %s: %s\nUsage: sidecar dlq %s %s\n", c.name, terminal.CleanLines(err.Error()), c.name, c.args)
	return false
}

// check finds what is wrong although each flag for itself is right.
func (d *dlqFlags) check() error {
	var faults []error
	d.Visit(func(f *flag.Flag) {
		if f.Value.String() == "" && (f.Name == "c" || f.Name == "stream" || f.Name == "consumer" || f.Name == "subject" || f.Name == "admin") {
			faults = append(faults, fmt.Errorf("flag --%s is empty", f.Name))
		}
		if d.admin == "" && (f.Name == "token" || f.Name == "token-file") {
			faults = append(faults, fmt.Errorf("flag --%s goes with --admin only", f.Name))
		}
	})
	if d.token != "" && d.tokenFile != "" {
		faults = append(faults, errors.New("flags --token and --token-file do not go together"))
	}
	if d.seq != 0 {
		if d.filter.First != 0 || d.filter.Last != 0 {
			faults = append(faults, errors.New("flag --seq does not go with the sequence of one entry"))
		}
		d.filter.First, d.filter.Last = d.seq, d.seq
	}
	if err := d.filter.Validate(); err != nil {
		for _, line := range strings.Split(err.Error(), "\n") {
			faults = append(faults, errors.New("flag --"+line))
		}
	}
	return errors.Join(faults...)
}

var errNoDLQ = errors.New("no consumer of this configuration has a DLQ")

// unknownStream is what is wrong with a --stream that is none of all.
func (d *dlqFlags) unknownStream(all []string) error {
	if len(all) == 0 {
		return errNoDLQ
	}
	return fmt.Errorf("flag --stream: %q is no DLQ stream of this configuration, which has %s", d.filter.Stream, strings.Join(all, ", "))
}

// named finds the DLQ stream that the argument SEQ is a sequence of.
func (d *dlqFlags) named(se *session) error {
	all := se.Streams()
	switch {
	case d.seq == 0 || d.filter.Stream != "":
	case len(all) == 0:
		return errNoDLQ
	case len(all) == 1:
		d.filter.Stream = all[0]
	default:
		return fmt.Errorf("flag --stream is needed with SEQ: there are %d DLQ streams: %s", len(all), strings.Join(all, ", "))
	}
	return nil
}

func (d *dlqFlags) reason(v string) error {
	if slices.Contains(dlq.Reasons(), v) {
		d.filter.Reason = v
		return nil
	}
	if near := config.Near(v, dlq.Reasons()); near != "" {
		return fmt.Errorf("there is no such reason; did you mean %q?", near)
	}
	return fmt.Errorf("there is no such reason; there are %s", strings.Join(dlq.Reasons(), ", "))
}

func (d *dlqFlags) status(v string) error {
	n, err := dlq.ParseStatus(v)
	if err != nil {
		return err
	}
	d.filter.Status = &n
	return nil
}

func (d *dlqFlags) limit(v string) error {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		return errors.New("it is not a number of entries, 1 or more")
	}
	d.filter.Limit = n
	return nil
}
