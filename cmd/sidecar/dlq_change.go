package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/jetsidecar/jetsidecar/internal/dlq"
	"github.com/jetsidecar/jetsidecar/internal/terminal"
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
		return se.Remove(se.ctx, d.filter, dlq.RemoveOptions{DryRun: d.dryRun, Confirm: confirm, OnProgress: told})
	})
}

// dlqReplay is sidecar dlq replay.
func dlqReplay(c command, args []string, s streams) int {
	d := changeFlagsOf(c)
	o := dlq.ReplayOptions{To: dlq.ToApp, Rate: dlq.DefaultRate, Concurrency: 1, MaxReplays: dlq.DefaultMaxReplays}
	d.Func("to", "", func(v string) error {
		if o.To = dlq.Destination(v); o.To != dlq.ToApp && o.To != dlq.ToStream {
			return errors.New("there are app and stream")
		}
		return nil
	})
	d.Func("rate", "", func(v string) (err error) {
		if o.Rate, err = strconv.ParseFloat(v, 64); err != nil || !(o.Rate >= 0 && o.Rate <= dlq.MaxRate) {
			return errors.New("it is not a number of entries a second; 0 is no limit")
		}
		return nil
	})
	d.Func("concurrency", "", func(v string) (err error) {
		if o.Concurrency, err = strconv.Atoi(v); err != nil || o.Concurrency < 1 || o.Concurrency > dlq.MaxConcurrency {
			return fmt.Errorf("it is not 1 to %d", dlq.MaxConcurrency)
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
		o.DryRun, o.Confirm, o.OnProgress = d.dryRun, confirm, told
		return se.Replay(se.ctx, d.filter, o)
	})
}

// doing changes what is selected; a dry run is asked and told nothing.
type doing func(se *session, confirm func(int) error, told func(dlq.Progress)) (*dlq.Report, error)

// change does something with what is selected, after asking, and says what came of it.
func (d *changeFlags) change(c command, s streams, toApp int, verb, where, done string, do doing) int {
	se, code := d.open(c, s, toApp)
	if se == nil {
		return code
	}
	defer se.end()
	if err := d.named(se); err != nil {
		fmt.Fprintf(s.err, "%s: %v\nUsage: %s %s\n", se.name, err, se.name, c.args)
		return exitUsage
	}
	if err := d.there(se); err != nil {
		return se.failed(s, err)
	}
	if d.dryRun {
		return d.dry(se, s, done+where, do)
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

// there finds the entry that SEQ names, by either part of two, or reports that it, or the stream of --stream, is not there.
func (d *changeFlags) there(se *session) error {
	if d.seq == 0 {
		return d.streamThere(se)
	}
	l, err := se.Get(se.ctx, d.filter.Stream, d.seq)
	if err != nil {
		return err
	}
	d.filter.First, d.filter.Last = l.Seq, l.Seq
	if err := l.Unnamed(d.filter.Consumer); err != nil {
		return fmt.Errorf("%w, with --consumer %s", err, l.Consumer)
	}
	switch {
	case l.Stream == "":
		return fmt.Errorf("message %d of %s is no dead letter: it is left", d.seq, d.filter.Stream)
	case !d.filter.Matches(&l.Entry):
		return fmt.Errorf("entry %d does not match the filters", d.seq)
	}
	return nil
}

func (d *changeFlags) streamThere(se *session) error {
	if d.filter.Stream == "" {
		return nil
	}
	missing, err := se.Missing(se.ctx, d.filter)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("stream %s does not exist", d.filter.Stream)
	}
	return err
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
	switch {
	case err != nil || report.Selected > 0 || report.Interrupted:
	case d.seq != 0:
		err = fmt.Errorf("entry %d is not there any more", d.seq)
	default:
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

// writeReport says what came of it, and what is still there and why.
func writeReport(w io.Writer, style terminal.Style, r *dlq.Report, done string) {
	if r.Missed > 0 {
		fmt.Fprintf(w, "gone or changed since they were selected: %d of %s; look with `sidecar dlq stats`\n", r.Missed, entries(r.Selected+r.Missed))
	}
	switch {
	case r.Selected == 0 && r.Missed > 0:
		return
	case r.Selected == 0 && r.Interrupted:
		fmt.Fprintln(w, "it was interrupted before anything was done")
		return
	case r.Selected == 0:
		fmt.Fprintln(w, "no entry is selected")
		return
	case r.Partial && r.Done+r.Failed+r.Kept == 0:
		fmt.Fprintf(w, "the sidecar did not say what it did with the %s that are selected: look with `sidecar dlq stats`\n", entries(r.Selected))
		return
	}
	line := fmt.Sprintf("%d of %s %s", r.Done-r.Gone, entries(r.Selected), done)
	more := func(n int, text string) {
		if n > 0 {
			line += fmt.Sprintf(", %d %s", n, text)
		}
	}
	more(r.Gone, "gone already")
	more(r.Unsettled, "of them perhaps failed again in another replay: it took too long to look")
	more(r.Failed, "failed again")
	more(r.Kept, "left as they were")
	rest := r.Selected - r.Done - r.Failed - r.Kept
	if !r.Partial {
		more(rest, "not tried")
	} else if line = "at least " + line; rest > 0 {
		line += fmt.Sprintf("; what came of the other %d the sidecar did not say: look with `sidecar dlq stats`", rest)
	}
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
