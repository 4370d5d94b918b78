package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/dlq"
)

// remoteSilence is how long a change may say nothing: it says every 5 s that it lives.
const remoteSilence = 30 * time.Second

// Remove removes entries.
func (r *remote) Remove(ctx context.Context, f dlq.Filter, o dlq.RemoveOptions) (*dlq.Report, error) {
	return r.change(ctx, "rm", selectionBody(f), o.DryRun, o.Confirm, o.OnProgress)
}

// Replay replays entries.
func (r *remote) Replay(ctx context.Context, f dlq.Filter, o dlq.ReplayOptions) (*dlq.Report, error) {
	body := selectionBody(f)
	body["to"], body["rate"], body["concurrency"], body["max_replays"] = o.To, o.Rate, o.Concurrency, o.MaxReplays
	return r.change(ctx, "replay", body, o.DryRun, o.Confirm, o.OnProgress)
}

// change asks how much is selected, which is all of a dry run, has that confirmed, and then has it done with no more than that.
func (r *remote) change(ctx context.Context, what string, body map[string]any, dryRun bool, confirm func(int) error, told func(dlq.Progress)) (*dlq.Report, error) {
	nothing := &dlq.Report{Failures: []dlq.Failure{}}
	body["dry_run"] = true
	dry, err := r.post(ctx, what, body, nil)
	switch {
	case err != nil:
		return nothing, err
	case dry.Interrupted:
		nothing.Interrupted = true
		return nothing, nil
	case dry.UpTo == nil:
		return nothing, errors.New("the sidecar does not say what it selected: it is of another version")
	}
	if dryRun {
		return dry, nil
	}
	if confirm != nil {
		if err := confirm(dry.Selected); err != nil {
			return nothing, err
		}
	}
	body["dry_run"], body["up_to"] = false, dry.UpTo
	return r.post(ctx, what, body, told)
}

// remoteLine is one line of the answer to a change.
type remoteLine struct {
	Progress *dlq.Progress `json:"progress"`
	Failures []dlq.Failure `json:"failures"` // of the progress: all so far; absent if it is as before
	Report   *dlq.Report   `json:"report"`
	Error    string        `json:"error"`
}

// post has something changed. When ctx ends the sidecar stops after what is in work; then, and if the sidecar goes away, the report is
// what it said last.
func (r *remote) post(ctx context.Context, what string, body map[string]any, told func(dlq.Progress)) (*dlq.Report, error) {
	report := &dlq.Report{Failures: []dlq.Failure{}}
	text, err := json.Marshal(body)
	if err != nil {
		return report, err
	}
	asked, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	resp, err := r.send(asked, http.MethodPost, nil, bytes.NewReader(text), "api", "dlq", what)
	if err != nil {
		return interrupted(ctx, report, err)
	}
	defer resp.Body.Close()
	silence := time.AfterFunc(remoteSilence, func() { cancel(errors.New("the sidecar fell silent")) })
	defer silence.Stop()
	for lines := json.NewDecoder(resp.Body); ; {
		var l remoteLine
		if err := lines.Decode(&l); err != nil {
			if cause := context.Cause(asked); cause != nil {
				err = cause
			} else if errors.Is(err, io.EOF) {
				err = errors.New("the sidecar ended its answer without a report")
			} else if !badJSON(err) {
				err = fmt.Errorf("the sidecar at %s went away: run it again, it continues (%w)", r.base.Redacted(), err)
			}
			return interrupted(ctx, report, err)
		}
		silence.Reset(remoteSilence)
		switch {
		case l.Report != nil && l.Error != "":
			return l.Report, errors.New(l.Error)
		case l.Report != nil:
			return l.Report, nil
		case l.Error != "":
			return report, errors.New(l.Error)
		case l.Progress != nil && l.Progress.Selected > 0:
			report.Progress = *l.Progress
			if l.Failures != nil {
				report.Failures = l.Failures
			}
			if told != nil {
				told(*l.Progress)
			}
		}
	}
}

// interrupted is the report of a change that was stopped here, and else the error.
func interrupted(ctx context.Context, report *dlq.Report, err error) (*dlq.Report, error) {
	if ctx.Err() == nil {
		return report, err
	}
	report.Interrupted = true
	return report, nil
}

func selectionBody(f dlq.Filter) map[string]any {
	body := map[string]any{}
	for name, values := range parameters(f) {
		body[name] = values[0]
	}
	return body
}
