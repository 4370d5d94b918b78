package main

import (
	"fmt"
	"time"
)

// kind is what is measured.
type kind string

// The kinds.
const (
	throughput kind = "throughput" // a full stream is drained
	latency    kind = "latency"    // messages come at a fixed rate
	idle       kind = "idle"       // nothing comes
)

// benchCase is one set of conditions.
type benchCase struct {
	Name        string        `json:"name"`
	Kind        kind          `json:"kind"`
	Size        int           `json:"size"` // bytes of a message
	Concurrency int           `json:"concurrency"`
	Delay       time.Duration `json:"delay"` // of the app
	Fail        float64       `json:"fail"`  // per cent of requests answered 503
	Ack         string        `json:"ack,omitempty"`
	Dedupe      string        `json:"dedupe,omitempty"`
	Order       string        `json:"order,omitempty"`
	Keys        int           `json:"keys,omitempty"`  // subjects of the messages, one after the other; 0 is one
	Batch       int           `json:"batch,omitempty"` // messages in a request at most
	RoundTrip   time.Duration `json:"round_trip"`      // to NATS, in addition
	Prefetch    int           `json:"prefetch,omitempty"`
	Rate        int           `json:"rate,omitempty"`
	Messages    int           `json:"messages"`
	Time        time.Duration `json:"time,omitempty"` // of an idle run
	// Of the sidecar: Concurrency is the most.
	Adaptive bool `json:"adaptive,omitempty"`
	// Only the sidecar, for what the others do not have.
	Own bool `json:"own,omitempty"`
}

// base is what the other cases differ from in one thing.
func base() benchCase {
	return benchCase{Kind: throughput, Size: 1 << 10, Concurrency: 64}
}

const (
	mostBytes = 512 << 20 // of a stream, so that it fits into the page cache of a small machine
	fastest   = 40000     // messages a second that nobody is expected to exceed much, for the length of a run
	// serial is the rate expected with one request at a time.
	serial = 6000
)

// plan lists the cases in the order in which they are run.
func plan(o *options) []benchCase {
	var all []benchCase
	add := func(c benchCase) {
		if c.Name == "" {
			c.Name = c.title()
		}
		if c.Kind == throughput {
			c.Messages = o.messagesOf(c)
		}
		if o.cases.MatchString(c.Name) {
			all = append(all, c)
		}
	}
	if o.chosen() {
		for _, c := range o.combinations() {
			add(c)
		}
		return all
	}
	add(base())
	if o.full {
		o.sizes, o.concurrencies, o.delays = []int{256, 1 << 10, 64 << 10}, []int{1, 16, 64}, []time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond}
		for _, c := range o.combinations() {
			if c != base() {
				add(c)
			}
		}
	} else {
		for _, change := range oneByOne {
			c := base()
			change(&c)
			add(c)
		}
	}
	for _, change := range always {
		c := base()
		change(&c)
		add(c)
	}
	for _, rate := range o.rates {
		c := base()
		c.Kind, c.Rate, c.Messages = latency, rate, max(1, int(o.seconds.Seconds()*float64(rate)))
		c.Name = fmt.Sprintf("latency at %d/s", rate)
		add(c)
	}
	c := base()
	c.Kind, c.Name, c.Time = idle, "idle", 3*o.seconds // pulls are seldom, and CPU time comes in steps of 10 ms
	add(c)
	return all
}

// roundsOf is how often a case is run: once for idleness, which takes long and varies little.
func (o *options) roundsOf(c benchCase) int {
	if c.Kind == idle {
		return 1
	}
	return o.rounds
}

// oneByOne are the cases that differ from the base in size, concurrency or delay.
var oneByOne = []func(*benchCase){
	func(c *benchCase) { c.Size = 256 },
	func(c *benchCase) { c.Size = 64 << 10 },
	func(c *benchCase) { c.Concurrency = 1 },
	func(c *benchCase) { c.Concurrency = 16 },
	func(c *benchCase) { c.Delay = 5 * time.Millisecond },
	func(c *benchCase) { c.Delay = 50 * time.Millisecond },
}

// always are the other cases.
var always = []func(*benchCase){
	func(c *benchCase) { c.Fail = 1 },
	func(c *benchCase) { c.RoundTrip = 5 * time.Millisecond },
	func(c *benchCase) { c.RoundTrip, c.Prefetch, c.Own = 5*time.Millisecond, 256, true },
	func(c *benchCase) { c.Delay, c.RoundTrip = 20*time.Millisecond, 5*time.Millisecond },
	func(c *benchCase) { c.Delay, c.RoundTrip = 50*time.Millisecond, 5*time.Millisecond },
	func(c *benchCase) { c.Ack, c.Own = "async", true },
	func(c *benchCase) { c.Dedupe, c.Own = "off", true },
	func(c *benchCase) { c.Dedupe, c.Own = "kv", true },
	func(c *benchCase) { c.Order, c.Keys, c.Own = "subject", 10000, true },
	func(c *benchCase) { c.Order, c.Keys, c.Own = "subject", 100, true },
	func(c *benchCase) { c.Order, c.Concurrency, c.Own = "stream", 1, true },
	func(c *benchCase) { c.Size, c.Concurrency, c.Batch, c.Own = 256, 8, 500, true },
	func(c *benchCase) { c.Size, c.Concurrency, c.Batch, c.Ack, c.Own = 256, 8, 500, "async", true },
}

// chosen is whether the command line says what the cases are.
func (o *options) chosen() bool {
	return len(o.sizes)+len(o.concurrencies)+len(o.delays)+len(o.fails) > 0
}

// combinations are all of the given sizes, concurrencies, delays and failures.
func (o *options) combinations() []benchCase {
	var all []benchCase
	for _, size := range or(o.sizes, base().Size) {
		for _, concurrency := range or(o.concurrencies, base().Concurrency) {
			for _, delay := range or(o.delays, 0) {
				for _, fail := range or(o.fails, 0) {
					c := base()
					c.Size, c.Concurrency, c.Delay, c.Fail = size, concurrency, delay, fail
					all = append(all, c)
				}
			}
		}
	}
	return all
}

func or[T any](given []T, usual T) []T {
	if len(given) == 0 {
		return []T{usual}
	}
	return given
}

// messagesOf keeps a run short where the app or one request at a time is what limits it.
func (o *options) messagesOf(c benchCase) int {
	rate := min(float64(fastest), serial*float64(c.Concurrency))
	if c.Delay > 0 {
		rate = min(rate, float64(c.Concurrency)/c.Delay.Seconds())
	}
	return max(1, min(o.messages, mostBytes/c.Size, int(rate*o.seconds.Seconds())))
}

// title says in what a case differs from a bare run.
func (c benchCase) title() string {
	name := fmt.Sprintf("%s, %d in flight", bytesText(c.Size), c.Concurrency)
	if c.Delay > 0 {
		name += fmt.Sprintf(", app takes %s", c.Delay)
	}
	if c.Fail > 0 {
		name += fmt.Sprintf(", %g %% fail", c.Fail)
	}
	if c.RoundTrip > 0 {
		name += fmt.Sprintf(", %s to NATS", c.RoundTrip)
	}
	if c.Prefetch > 0 {
		name += fmt.Sprintf(", prefetch %d", c.Prefetch)
	}
	if c.Ack != "" {
		name += ", ack " + c.Ack
	}
	if c.Dedupe != "" {
		name += ", dedupe " + c.Dedupe
	}
	if c.Order != "" {
		name += ", order " + c.Order
	}
	if c.Keys > 0 {
		name += fmt.Sprintf(", %d keys", c.Keys)
	}
	if c.Batch > 0 {
		name += fmt.Sprintf(", batches of %d", c.Batch)
	}
	return name
}

func bytesText(n int) string {
	if n >= 1<<10 && n%(1<<10) == 0 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}
