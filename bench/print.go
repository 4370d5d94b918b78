package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// table is what is printed of one case.
type table struct {
	title string
	head  []string
	rows  [][]string
	notes []string
}

// print prints the machine and a table for each case.
func (r *results) print(out io.Writer, markdown bool) error {
	write := func(t table) error { return t.text(out) }
	if markdown {
		write = func(t table) error { return t.markdown(out) }
	}
	about := table{title: "Machine", head: []string{"", ""}}
	for _, key := range slices.Sorted(maps.Keys(r.Machine)) {
		about.rows = append(about.rows, []string{key, r.Machine[key]})
	}
	about.rows = append(about.rows, []string{"when", r.Began.Format(time.RFC3339)}, []string{"rounds", fmt.Sprint(r.Rounds)})
	if err := write(about); err != nil {
		return err
	}
	for _, c := range r.cases() {
		if err := write(r.table(c)); err != nil {
			return err
		}
	}
	return nil
}

func (r *results) table(c benchCase) table {
	t := table{title: c.Name}
	switch c.Kind {
	case latency:
		t.title += fmt.Sprintf(" (%d messages)", c.Messages)
		t.head = []string{"forwarder", "p50", "p99", "p99.9", "CPU µs", "peak MiB"}
	case idle:
		t.head = []string{"forwarder", "resident MiB", "CPU ms/min", "NATS ms/min", "pulls/min"}
	default:
		t.title += fmt.Sprintf(" (%d messages)", c.Messages)
		t.head = []string{"forwarder", "msg/s", "spread", "of " + reference, "CPU µs", "of " + reference, "NATS µs", "app µs", "peak MiB", "requests/conn"}
	}
	for _, one := range r.Results {
		if one.Case != c {
			continue
		}
		for _, f := range one.Failures {
			t.notes = append(t.notes, one.Forwarder+" failed: "+strings.Join(strings.Fields(f), " "))
		}
		if len(one.Runs) > 0 {
			t.rows = append(t.rows, one.row(r.of(c, reference)))
		}
	}
	return t
}

// row is a result in the columns of its table; loop is what it is compared with, or nil.
func (one *result) row(loop *result) []string {
	micro := func(of func(measurement) time.Duration) func(measurement) float64 {
		return func(m measurement) float64 { return float64(of(m)) / float64(time.Microsecond) }
	}
	cpu := micro(func(m measurement) time.Duration { return m.Forwarder })
	nats := micro(func(m measurement) time.Duration { return m.NATS })
	app := micro(func(m measurement) time.Duration { return m.App })
	memory := func(m measurement) float64 { return float64(m.Memory) / (1 << 20) }
	number := func(format string, of func(measurement) float64) string {
		return fmt.Sprintf(format, one.spread(of).median)
	}
	switch one.Case.Kind {
	case latency:
		row := []string{one.Forwarder}
		for i := range quantiles {
			at := one.spread(func(m measurement) float64 { return float64(m.Latency[i]) })
			row = append(row, time.Duration(at.median).Round(10*time.Microsecond).String())
		}
		return append(row, number("%.0f", cpu), number("%.0f", memory))
	case idle:
		milli := func(of func(measurement) float64) func(measurement) float64 {
			return func(m measurement) float64 { return of(m) / 1000 }
		}
		return []string{one.Forwarder, number("%.1f", memory), number("%.0f", milli(cpu)), number("%.0f", milli(nats)),
			number("%.1f", func(m measurement) float64 { return m.Pulls })}
	}
	rate := func(m measurement) float64 { return m.Rate }
	s := one.spread(rate)
	return []string{
		one.Forwarder, fmt.Sprintf("%.0f", s.median), fmt.Sprintf("%.0f to %.0f", s.least, s.most), one.ratio(loop, rate),
		number("%.1f", cpu), one.ratio(loop, cpu), number("%.1f", nats), number("%.1f", app), number("%.0f", memory),
		number("%.0f", func(m measurement) float64 { return float64(m.Requests) / float64(max(m.Connections, 1)) }),
	}
}

// ratio compares medians.
func (one *result) ratio(loop *result, of func(measurement) float64) string {
	if loop == nil || loop.spread(of).median == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", one.spread(of).median/loop.spread(of).median)
}

func (t table) text(out io.Writer) error {
	fmt.Fprintf(out, "\n%s\n\n", t.title)
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{t.head}, t.rows...) {
		fmt.Fprintln(tw, "  "+strings.Join(row, "\t"))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, note := range t.notes {
		fmt.Fprintf(out, "  %s\n", note)
	}
	return nil
}

func (t table) markdown(out io.Writer) error {
	fmt.Fprintf(out, "\n### %s\n\n| %s |\n|%s\n", t.title, strings.Join(t.head, " | "), strings.Repeat("---|", len(t.head)))
	for _, row := range t.rows {
		for i, cell := range row {
			row[i] = strings.ReplaceAll(cell, "|", `\|`)
		}
		fmt.Fprintf(out, "| %s |\n", strings.Join(row, " | "))
	}
	for _, note := range t.notes {
		fmt.Fprintf(out, "\n%s\n", note)
	}
	return nil
}
