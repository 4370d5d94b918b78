package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/policy"
)

// mostRows bounds a retry schedule; what is left out is said.
const mostRows = 50

// policyMain is sidecar policy.
func policyMain(c command, args []string, s streams) int {
	fs, file := configFlags(c.name)
	if !parseFlags(c, fs, args, s) {
		return exitUsage
	}
	cfg, ok := load(*file, s)
	if !ok {
		return exitUsage
	}
	warnings(s.err, cfg.Warnings)
	for i, one := range cfg.Consumers {
		if i > 0 {
			fmt.Fprintln(s.out)
		}
		if err := writePolicy(s.out, one); err != nil {
			return written(err, s)
		}
	}
	return exitOK
}

func writePolicy(w io.Writer, c config.Consumer) error {
	table, err := policy.NewStatusTable(c.Status)
	if err != nil {
		return fmt.Errorf("build the status table: %w", err)
	}
	fmt.Fprintf(w, "consumer %s on stream %s\n\n", c.Durable, c.Stream)
	writeSchedule(w, c)
	fmt.Fprintln(w)
	writeStatus(w, table)
	if !c.DLQ.Enabled {
		fmt.Fprintln(w, "dlq discards the message, which is logged as an error (dlq.enabled: false)")
	}
	return nil
}

// writeSchedule writes when each attempt comes after the one before, and since the first.
func writeSchedule(w io.Writer, c config.Consumer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "attempt\tshortest delay\tlongest delay\tcumulative\t")
	fmt.Fprintln(t, "1\t-\t-\t-\t")
	var least, most, before time.Duration
	steady := false
	n := 2
	for ; c.MaxDeliver == 0 || n <= c.MaxDeliver; n++ {
		shortest, longest := c.Retry.Bounds(uint64(n - 1))
		if steady = longest == before; n > mostRows || c.MaxDeliver == 0 && steady {
			break
		}
		least, most, before = add(least, shortest), add(most, longest), longest
		fmt.Fprintf(t, "%d\t%s\t%s\t%s to %s\t\n", n, show(shortest), show(longest), show(least), show(most))
	}
	t.Flush()
	switch {
	case c.MaxDeliver == 0 && steady:
		fmt.Fprintf(w, "every later attempt waits as long as attempt %d; %s\n", n-1, noLimit(c))
	case c.MaxDeliver == 0:
		fmt.Fprintf(w, "and so on up to %s; %s\n", show(c.Retry.Max), noLimit(c))
	default:
		if n <= c.MaxDeliver {
			fmt.Fprintf(w, "and so on to attempt %d\n", c.MaxDeliver)
		}
		fmt.Fprintf(w, "a retry on attempt %d %s\n", c.MaxDeliver, end(c))
	}
	if c.MaxAge > 0 {
		fmt.Fprintf(w, "a retry of a message older than %s %s (max_age)\n", show(c.MaxAge), end(c))
	}
	if c.Retry.RetryAfterMax > 0 {
		fmt.Fprintf(w, "the app's Retry-After can raise a delay up to %s (retry.retry_after_max)\n", show(c.Retry.RetryAfterMax))
	} else {
		fmt.Fprintln(w, "the app's Retry-After raises no delay (retry.retry_after_max: 0s)")
	}
}

// end says what becomes of a message that is not tried again.
func end(c config.Consumer) string {
	if c.DLQ.Enabled {
		return "goes to the dead letter queue"
	}
	return "is discarded, which is logged as an error"
}

// noLimit says what ends the retries of a consumer with max_deliver: 0.
func noLimit(c config.Consumer) string {
	if c.MaxAge > 0 {
		return "attempts are not limited (max_deliver: 0), age is"
	}
	return "there is no limit (max_deliver: 0)"
}

// add adds durations and stays at the longest there is.
func add(a, b time.Duration) time.Duration {
	if sum := a + b; sum >= a {
		return sum
	}
	return 1<<63 - 1
}

// show rounds a duration to what a reader needs.
func show(d time.Duration) string {
	if d > time.Second {
		d = d.Round(time.Millisecond)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	return strings.TrimSuffix(s, "h0m") + map[bool]string{true: "h"}[strings.HasSuffix(s, "h0m")]
}

// writeStatus writes the verdicts of all statuses, runs of one verdict together.
func writeStatus(w io.Writer, table *policy.StatusTable) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "status\tverdict")
	for _, v := range []policy.Verdict{policy.Ack, policy.Retry, policy.DLQ, policy.Drop} {
		fmt.Fprintf(t, "%s\t%s\n", strings.Join(statuses(table, v), " "), v)
	}
	t.Flush()
	fmt.Fprintln(w, "a single status beats its class")
}

// statuses lists where the table gives the verdict: a whole class as 5xx, the usual verdict of a class with its
// exceptions left to the others, and single statuses.
func statuses(table *policy.StatusTable, v policy.Verdict) []string {
	var out []string
	for class := 1; class <= 5; class++ {
		usual := usualVerdict(table, class)
		if usual == v {
			out = append(out, strconv.Itoa(class)+"xx")
		}
		for code := class * 100; code < class*100+100; code++ {
			if got := table.Lookup(code); got == v && usual != v {
				out = append(out, strconv.Itoa(code))
			}
		}
	}
	if out == nil {
		return []string{"-"}
	}
	return out
}

// usualVerdict is the verdict of most statuses of a class.
func usualVerdict(table *policy.StatusTable, class int) policy.Verdict {
	counts := make(map[policy.Verdict]int)
	usual := policy.Retry
	for code := class * 100; code < class*100+100; code++ {
		v := table.Lookup(code)
		if counts[v]++; counts[v] > counts[usual] {
			usual = v
		}
	}
	return usual
}
