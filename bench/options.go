package main

import (
	"flag"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// options are what the command line asks for.
type options struct {
	rounds, messages     int
	sizes, concurrencies []int
	delays               []time.Duration
	fails                []float64 // per cent
	only                 []string  // forwarders; empty means all
	cases                *regexp.Regexp
	seconds              time.Duration // of a latency or idle run, and about the most of a throughput run
	rates                []int
	with                 []forwarder
	json, from           string
	markdown             bool
	quick, full          bool
	overload             bool
}

func parse(arguments []string, progress io.Writer) (*options, error) {
	o := &options{cases: regexp.MustCompile("")}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(progress)
	f.IntVar(&o.rounds, "rounds", 0, "rounds of each case (5; 1 with -quick)")
	f.IntVar(&o.messages, "messages", 0, "messages of a throughput run at most (100000; 3000 with -quick)")
	f.Func("size", "message sizes in bytes, a list; like the next three, one that is given makes the cases the combinations of them", list(&o.sizes, strconv.Atoi))
	f.Func("concurrency", "requests in flight, a list", list(&o.concurrencies, strconv.Atoi))
	f.Func("delay", "how long the app takes, a list of durations", list(&o.delays, time.ParseDuration))
	f.Func("fail", "per cent of requests that the app answers 503, a list", list(&o.fails, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }))
	f.Func("only", "forwarders to run, a list of names", list(&o.only, func(s string) (string, error) { return s, nil }))
	f.Func("cases", "run only the cases whose name matches this regular expression", func(s string) (err error) {
		o.cases, err = regexp.Compile(s)
		return err
	})
	f.Func("rate", "messages a second of the latency runs, a list (100,1000; 0 = none)", list(&o.rates, strconv.Atoi))
	f.DurationVar(&o.seconds, "time", 0, "length of a latency run, a third of an idle run, and about the longest of a throughput run (20s; 2s with -quick)")
	f.Func("with", "one more forwarder: 'name=command with {nats} {stream} {durable} {app} {concurrency}'; can be repeated", func(s string) error {
		one, err := ofCommandLine(s)
		o.with = append(o.with, one)
		return err
	})
	f.StringVar(&o.json, "json", "", "write all results to this file")
	f.StringVar(&o.from, "from", "", "run nothing, and print the results in this file")
	f.BoolVar(&o.markdown, "markdown", false, "print the tables as Markdown")
	f.BoolVar(&o.quick, "quick", false, "a look at whether all works; its numbers mean little")
	f.BoolVar(&o.overload, "overload", false, "only this: fixed numbers of requests at a time and an adaptive one, with apps that break above 20; -time is of one run")
	f.BoolVar(&o.full, "full", false, "all combinations of size, concurrency and delay")
	if err := f.Parse(arguments); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	o.fill()
	return o, o.check()
}

// list reads values between commas.
func list[T any](into *[]T, read func(string) (T, error)) func(string) error {
	return func(text string) error {
		for s := range strings.SplitSeq(text, ",") {
			v, err := read(strings.TrimSpace(s))
			if err != nil {
				return err
			}
			*into = append(*into, v)
		}
		return nil
	}
}

// fill puts in what was not given.
func (o *options) fill() {
	rounds, messages, seconds, rates := 5, 100000, 20*time.Second, []int{100, 1000}
	if o.quick {
		rounds, messages, seconds, rates = 1, 3000, 2*time.Second, []int{100}
	}
	if o.rounds == 0 {
		o.rounds = rounds
	}
	if o.messages == 0 {
		o.messages = messages
	}
	if o.seconds == 0 {
		o.seconds = seconds
	}
	if o.rates == nil {
		o.rates = rates
	}
	o.rates = slices.DeleteFunc(o.rates, func(r int) bool { return r == 0 })
}

func (o *options) check() error {
	for _, n := range slices.Concat([]int{o.rounds, o.messages}, o.concurrencies, o.rates) {
		if n < 1 {
			return fmt.Errorf("%d: numbers must be above 0", n)
		}
	}
	for _, n := range o.sizes {
		if n < stampSize || n > 512<<10 {
			return fmt.Errorf("-size %d: must be %d to %d", n, stampSize, 512<<10)
		}
	}
	for _, p := range o.fails {
		if p < 0 || p > 50 {
			return fmt.Errorf("-fail %g: must be 0 to 50", p)
		}
	}
	known := slices.Concat(builtIn(""), o.with)
	for _, name := range o.only {
		if !slices.ContainsFunc(known, func(f forwarder) bool { return f.name == name }) {
			return fmt.Errorf("-only %s: no such forwarder", name)
		}
	}
	return nil
}
