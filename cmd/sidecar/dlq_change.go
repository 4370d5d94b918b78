package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/term"

	"github.com/jetsidecar/jetsidecar/internal/dlq"
	"github.com/jetsidecar/jetsidecar/internal/terminal"
)

const (
	defaultRate       = 50
	defaultMaxReplays = 100
	maxConcurrency    = 1000
)

// changeFlags are the flags of the commands that change something.
type changeFlags struct {
	*dlqFlags
	dryRun, yes bool
}

func changeFlagsOf(c command) *changeFlags {
	d := &changeFlags{dlqFlags: dlqFlagsOf(c, true)}
	d.BoolVar(&d.dryRun, "dry-run", false, "")
	d.BoolVar(&d.yes, "yes", false, "")
	return d
}

// dlqRemove is sidecar dlq rm.
func dlqRemove(c command, args []string, s streams) int {
	d := changeFlagsOf(c)
	if !d.parse(c, args, s, true) {
		return exitUsage
	}
	return d.change(c, s, 0, "Remove", "", "removed", func(se *session, confirm func(int) error, told func(dlq.Progress)) (*dlq.Report, error) {
		return se.Remove(se.ctx, d.filter, dlq.RemoveOptions{Confirm: confirm, OnProgress: told})
	})
}

// dlqReplay is sidecar dlq replay.
func dlqReplay(c command, args []string, s streams) int {
	d := changeFlagsOf(c)
	o := dlq.ReplayOptions{To: dlq.ToApp, Rate: defaultRate, Concurrency: 1, MaxReplays: defaultMaxReplays}
	d.Func("to", "", func(v string) error {
		if o.To = dlq.Destination(v); o.To != dlq.ToApp && o.To != dlq.ToStream {
			return errors.New("there are app and stream")
		}
		return nil
	})
	d.Func("rate", "", func(v string) (err error) {
		if o.Rate, err = strconv.ParseFloat(v, 64); err != nil || !(o.Rate >= 0 && o.Rate <= 1e6) {
			return errors.New("it is not a number of entries a second; 0 is no limit")
		}
		return nil
	})
	d.Func("concurrency", "", func(v string) (err error) {
		if o.Concurrency, err = strconv.Atoi(v); err != nil || o.Concurrency < 1 || o.Concurrency > maxConcurrency {
			return fmt.Errorf("it is not 1 to %d", maxConcurrency)
		}
		return nil
	})
	d.Func("max-replays", "", func(v string) (err error) {
		if o.MaxReplays, err = strconv.Atoi(v); err != nil || o.MaxReplays < 0 {
			return errors.New("it is not a number of replays; 0 is no limit")
		}
		return nil
	})
	if !d.parse(c, args, s, true) {
		return exitUsage
	}
	toApp, where := 0, " to where they came from"
	if o.To == dlq.ToApp {
		toApp, where = o.Concurrency, " to the app"
	}
	if d.dryRun {
		toApp = 0
	}
	return d.change(c, s, toApp, "Replay", where, "replayed", func(se *session, confirm func(int) error, told func(dlq.Progress)) (*dlq.Report, error) {
		o.Confirm, o.OnProgress = confirm, told
		return se.Replay(se.ctx, d.filter, o)
	})
}

// change does something with what is selected, after asking, and says what came of it.
func (d *changeFlags) change(c command, s streams, toApp int, verb, where, done string, do func(*session, func(int) error, func(dlq.Progress)) (*dlq.Report, error)) int {
	se, code := d.open(c, s, toApp)
	if se == nil {
		return code
	}
	defer se.end()
	if err := d.named(se); err != nil {
		fmt.Fprintf(s.err, "%s: %v\nUsage: %s %s\n", se.name, err, se.name, c.args)
		return exitUsage
	}
	if d.dryRun {
		fmt.Fprintf(s.err, "these would be %s%s:\n", done, where)
		return se.list(d.filter, d.json, s)
	}
	bar := newProgress(s, done)
	report, err := do(se, func(n int) error {
		if n > 1 && !d.yes {
			if err := confirm(se.ctx, s, fmt.Sprintf("%s %s%s?", verb, entries(n), where)); err != nil {
				return err
			}
		}
		bar.begin(n)
		return nil
	}, bar.told)
	bar.end()
	var unasked *unaskedError
	switch {
	case errors.As(err, &unasked):
		fmt.Fprintf(s.err, "%s: %v\n", se.name, err)
		return exitUsage
	case errors.Is(err, errDeclined):
		return se.failed(s, err)
	}
	return d.told(se, s, report, done, err)
}

// told writes what came of a change, and returns the exit code.
func (d *changeFlags) told(se *session, s streams, report *dlq.Report, done string, err error) int {
	var werr error
	switch {
	case d.json:
		werr = writeJSON(s.out, report)
	case err != nil && report.Selected == 0: // it did not come to a selection
	default:
		out := bufio.NewWriter(s.out)
		writeReport(out, terminal.StyleOf(s.out, s.getenv), report, done)
		werr = out.Flush()
	}
	if err == nil && report.Selected == 0 {
		se.missing(s, d.filter)
	}
	if err = errors.Join(err, werr); err != nil {
		return se.failed(s, err)
	}
	if !report.Handled() {
		return exitFailed
	}
	return exitOK
}

var errDeclined = errors.New("nothing was done")

// unaskedError means that nobody could be asked.
type unaskedError struct{ question string }

func (e *unaskedError) Error() string {
	return fmt.Sprintf("%s There is no terminal to ask on: say so with --yes, or look first with --dry-run", e.question)
}

// confirm asks on the terminal.
func confirm(ctx context.Context, s streams, question string) error {
	in, ok := s.in.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) || !terminal.StyleOf(s.err, s.getenv).Terminal {
		return &unaskedError{question}
	}
	fmt.Fprintf(s.err, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { answer <- readLine(in) }() // ends with the process if it is not answered
	select {
	case <-ctx.Done():
		return errDeclined
	case line := <-answer:
		if line = strings.ToLower(strings.TrimSpace(line)); line != "y" && line != "yes" {
			return errDeclined
		}
		return nil
	}
}

func readLine(r io.Reader) string {
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		return ""
	}
	return line
}

// writeReport says what came of it, and what is still there and why.
func writeReport(w io.Writer, style terminal.Style, r *dlq.Report, done string) {
	switch {
	case r.Selected == 0 && r.Interrupted:
		fmt.Fprintln(w, "it was interrupted before anything was done")
		return
	case r.Selected == 0:
		fmt.Fprintln(w, "no entry is selected")
		return
	}
	line := fmt.Sprintf("%d of %s %s", r.Done-r.Gone, entries(r.Selected), done)
	more := func(n int, text string) {
		if n > 0 {
			line += fmt.Sprintf(", %d %s", n, text)
		}
	}
	more(r.Gone, "gone already")
	more(r.Failed, "failed again")
	more(r.Kept, "left as they were")
	more(r.Selected-r.Done-r.Failed-r.Kept, "not tried")
	if r.Interrupted {
		line += "; it was interrupted, and a second run continues"
	}
	fmt.Fprintln(w, line)
	if len(r.Failures) == 0 {
		return
	}
	fmt.Fprintln(w, "\nstill in the DLQ:")
	t := &table{w: w, style: style, columns: []column{
		{name: "COUNT", right: true}, {name: "RESULT"}, {name: "CONSUMER", most: 24}, {name: "REASON"}, {name: "STATUS", right: true}, {name: "EXAMPLE"}, {name: "WHY"},
	}}
	for _, f := range r.Failures {
		t.row(strconv.Itoa(f.Count), string(f.Result), f.Consumer, f.Reason, statusText(f.Status), fmt.Sprintf("%s %d", f.Stream, f.Example), f.Why)
	}
	t.flush()
}
