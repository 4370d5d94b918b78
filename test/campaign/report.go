//go:build unix

package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report is what a campaign came to.
type report struct {
	plan     plan
	tally    tally
	breaches []breach
	injected map[kind]int
	settle   time.Duration
	settled  bool
	timeline string
	stories  []string // of the messages that breaches concern
}

// The most that is told of a breach.
const (
	mostMessagesTold = 4
	mostLinesTold    = 30
)

// newReport checks a history. The logs in dir are told from where something is broken.
func newReport(h history, dir string) report {
	r := report{plan: h.plan, injected: map[kind]int{}, settle: h.settleTime, settled: h.settled, timeline: timeline(h)}
	r.breaches, r.tally = check(h)
	for _, e := range h.events {
		r.injected[e.Kind]++
	}
	told := map[int]bool{}
	for _, b := range r.breaches {
		for _, i := range b.messages[:min(len(b.messages), mostMessagesTold)] {
			if !told[i] {
				told[i] = true
				r.stories = append(r.stories, story(h, i, dir))
			}
		}
	}
	if len(r.breaches) > 0 {
		r.stories = append(r.stories, r.timeline)
	}
	return r
}

func printPlan(out io.Writer, p plan) {
	fmt.Fprintf(out, "%s, %d faults\n", p, len(p.Faults))
	for _, f := range p.Faults {
		fmt.Fprintln(out, f)
	}
}

func printReport(out io.Writer, r report) {
	fmt.Fprintf(out, "\n%s\n", r.plan)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(what string, format string, args ...any) {
		fmt.Fprintf(w, "  %s\t"+format+"\n", append([]any{what}, args...)...)
	}
	total := 0
	for _, s := range shapes {
		if n := r.injected[s.kind]; n > 0 {
			row(string(s.kind), "%d", n)
			total += n
		}
	}
	t := r.tally
	row("faults", "%d", total)
	row("messages", "%d stored, %d unknown, %d refused", t.stored, t.unknown, t.refused)
	row("calls", "%d, at most %d at a time from one sidecar", t.calls, t.peak)
	row("duplicates", "%d, at most %d excused; %d with nothing to explain them", t.duplicates, t.bound, t.unexplained)
	if r.plan.Crowded {
		row("retry stream", "%d stored in it", t.retried)
	}
	row("dead letters", "%d; %d also accepted, by a disturbance between; %d good ones in an outage", t.dead, t.window, t.unlucky)
	if t.streamLost > 0 {
		row("lost by the stream", "%d confirmed messages", t.streamLost)
	}
	if r.settled {
		row("settled after", "%s", r.settle.Round(10*ms))
	}
	w.Flush()
	if len(r.breaches) == 0 {
		fmt.Fprintf(out, "  every promise held (seed %d)\n", r.plan.Seed)
	}
	for _, b := range r.breaches {
		fmt.Fprintf(out, "  BROKEN: %s: %s", b.rule, b.text)
		if len(b.messages) > 0 {
			fmt.Fprintf(out, " (%d messages: %v)", len(b.messages), b.messages[:min(len(b.messages), 20)])
		}
		fmt.Fprintln(out)
	}
	for _, s := range r.stories {
		fmt.Fprintf(out, "\n%s", s)
	}
}

// line is something that happened.
type line struct {
	at   time.Time
	text string
}

// tell puts lines in order, with their times since the first message.
func tell(h history, title string, lines []line) string {
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	begin := time.Time{}
	if len(h.published) > 0 {
		begin = slices.MinFunc(h.published, func(a, b message) int { return cmp.Compare(a.index, b.index) }).at
	}
	var b strings.Builder
	fmt.Fprintln(&b, title)
	for _, l := range lines {
		fmt.Fprintf(&b, "  %9.3f  %s\n", l.at.Sub(begin).Seconds(), l.text)
	}
	return b.String()
}

// story is all that is known of one message.
func story(h history, index int, dir string) string {
	var lines []line
	seqs := map[uint64]bool{}
	for _, m := range h.published {
		if m.index == index {
			lines = append(lines, line{m.at, fmt.Sprintf("published: %s, sequence %d, stream %d", m.outcome, m.seq, m.epoch)})
		}
	}
	if seq, ok := h.source[index]; ok {
		seqs[seq] = true
	}
	for _, c := range h.calls {
		if c.index != index {
			continue
		}
		seqs[c.seq] = true
		text := fmt.Sprintf("called by sidecar %s, sequence %d, delivery %d: %s, answered %v", c.by, c.seq, c.delivered, c.reply, c.given)
		if c.size > 0 {
			text += fmt.Sprintf(", in request %d of %d", c.request, c.size)
		}
		if c.outage {
			text += ", in an outage"
		}
		if !c.ended.IsZero() {
			text += fmt.Sprintf(", after %s", c.ended.Sub(c.begun).Round(ms))
		}
		lines = append(lines, line{c.begun, text})
	}
	for _, e := range h.dead {
		if e.index == index {
			lines = append(lines, line{e.failedAt, fmt.Sprintf("failed: %s %s", e.reason, e.status)}, line{e.stored, fmt.Sprintf("in the dlq, sequence %d", e.seq)})
		}
	}
	lines = append(lines, logged(dir, seqs)...)
	return tell(h, fmt.Sprintf("message %d (%s)", index, natureOf(h.plan.Seed, index)), lines[:min(len(lines), mostLinesTold)])
}

// logged is what the sidecars' logs say of sequences.
func logged(dir string, seqs map[uint64]bool) []line {
	var lines []line
	logs, _ := filepath.Glob(filepath.Join(dir, "sidecar*.log")) // the pattern is right
	for _, name := range logs {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		for s := bufio.NewScanner(f); s.Scan(); {
			for seq := range seqs {
				if !strings.Contains(s.Text(), fmt.Sprintf(`"sequence":%d,`, seq)) {
					continue
				}
				rest, _ := strings.CutPrefix(s.Text(), `{"time":"`)
				if at, text, ok := strings.Cut(rest, `",`); ok {
					when, _ := time.Parse(time.RFC3339Nano, at) // the zero time sorts first
					lines = append(lines, line{when, strings.TrimSuffix(filepath.Base(name), ".log") + " logs " + text})
				}
			}
		}
		f.Close()
	}
	return lines
}

// timeline is the faults as they took place, and the lives of the sidecars.
func timeline(h history) string {
	var lines []line
	for _, e := range h.events {
		lines = append(lines, line{e.begin, fmt.Sprintf("%s for %s: node %d, sidecar %d, soft %v", e.Kind, e.end.Sub(e.begin).Round(ms), e.Node, e.Sidecar, e.Soft)})
	}
	for _, l := range h.lives {
		lines = append(lines, line{l.started, fmt.Sprintf("sidecar %s started, breaker %v", l.id, l.breaker)})
		if !l.ended.IsZero() {
			lines = append(lines, line{l.ended, fmt.Sprintf("sidecar %s ended: killed %v, exit %d", l.id, l.killed, l.exit)})
		}
	}
	return tell(h, "what happened", lines)
}
