package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/pipeline"
	"github.com/jetsidecar/jetsidecar/policy"
)

// summary is what is left to say at the end.
type summary struct {
	counts
	took  time.Duration
	dlq   string
	store store
}

// print writes the table. What was published, less what the stream held back, is the sum of the ends and of what waits.
func (m summary) print(w io.Writer, s style) {
	var b strings.Builder
	row := func(colour, name string, n int, what string) {
		number := pad(fmt.Sprint(n), -7)
		if n > 0 {
			number = s.paint(colour, number)
		}
		line := fmt.Sprintf("  %s%s  %s", pad(name, 14), number, s.paint(dim, what))
		fmt.Fprintln(&b, strings.TrimRight(line, " "))
	}
	rule := func() { fmt.Fprintf(&b, "  %s\n", s.paint(dim, strings.Repeat(s.glyph("─", "-"), 21))) }

	fmt.Fprintf(&b, "\n%s after %s\n\n", s.paint(bold, "Summary"), short(m.took))
	row(bold, "published", m.published, m.repeats())
	if m.held > 0 {
		row(cyan, "held back", -m.held, "by the stream's own duplicate window")
	}
	if m.others > 0 {
		row(bold, "others", m.others, "published by hand, or left from before")
	}
	rule()
	row(green, "acked", m.results[pipeline.ResultAck], "")
	row(cyan, "duplicates", m.results[pipeline.ResultDuplicate], "acked without calling the app again")
	row(magenta, "dropped", m.results[pipeline.ResultDrop], "the app did not want them")
	row(red, "dead letters", m.results[pipeline.ResultDLQ], m.causes())
	row(yellow, "not settled", m.waiting, m.rest())
	rule()
	row(bold, "total", m.ended()+m.waiting, "")
	fmt.Fprintf(&b, "\n  %s\n\n", m.work())
	io.WriteString(w, b.String())
}

func (m summary) repeats() string {
	if m.repeated == 0 {
		return ""
	}
	return fmt.Sprintf("%d of them under an id used before", m.repeated)
}

// causes lists the reasons of the dead letters, and where they are.
func (m summary) causes() string {
	var all []string
	for _, r := range slices.SortedFunc(maps.Keys(m.reasons), func(a, b policy.Reason) int { return strings.Compare(string(a), string(b)) }) {
		all = append(all, fmt.Sprintf("%s %d", r, m.reasons[r]))
	}
	if len(all) == 0 || m.store.temporary {
		return strings.Join(all, ", ")
	}
	return strings.Join(all, ", ") + ", in stream " + m.dlq
}

func (m summary) rest() string {
	switch {
	case m.waiting == 0:
		return ""
	case m.store.temporary:
		return "gone with the temporary store; --store DIR keeps it"
	}
	return "the next run goes on with them"
}

func (m summary) work() string {
	text := fmt.Sprintf("%s, %s, %s to the app", number(m.deliveries, "delivery", "deliveries"),
		number(m.results[pipeline.ResultRetry], "retry", "retries"), number(m.requests, "request", "requests"))
	if m.requests > 0 {
		text += fmt.Sprintf(" (mean %s, slowest %s)", short(m.mean()), short(m.slowest))
	}
	return text
}

// number is a number of things.
func number(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

func (m summary) mean() time.Duration { return m.busy / time.Duration(m.requests) }
