package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/dlq"
)

// remoteSilence is how long a change may say nothing: it says every 5 s that it lives.
const remoteSilence = 30 * time.Second

// remoteLeave is how long a change that was stopped here is waited for: until the app answered what is in work.
const remoteLeave = 30 * time.Second

// remoteLate is how long it is waited for if the sidecar that was told to stop it knows of none.
const remoteLate = 2 * time.Second

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
	dry, err := r.post(ctx, what, body, 0, nil)
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
	report, err := r.post(ctx, what, body, dry.Selected, told)
	// It selects anew: what somebody else removed or replayed since is not in it, and what failed again has another sequence.
	if selected := report.Selected > 0 || err == nil && !report.Interrupted; selected {
		report.Missed = max(dry.Selected-report.Selected, 0)
	}
	return report, err
}

// remoteLine is one line of the answer to a change.
type remoteLine struct {
	Change   string        `json:"change"` // of the first line: the name of the change; empty from an older sidecar
	Progress *dlq.Progress `json:"progress"`
	Failures []dlq.Failure `json:"failures"` // of the progress: all so far; absent if it is as before
	Report   *dlq.Report   `json:"report"`
	Error    string        `json:"error"`
}

// post has something changed that n entries are selected for. When ctx ends the sidecar is told to stop, which it does after what is in work, and
// its report is waited for. If that does not come, or the sidecar goes away, the report is what it said last, and it may have done more: it is partial.
func (r *remote) post(ctx context.Context, what string, body map[string]any, n int, told func(dlq.Progress)) (*dlq.Report, error) {
	report := &dlq.Report{Failures: []dlq.Failure{}}
	text, err := json.Marshal(body)
	if err != nil {
		return report, err
	}
	if ctx.Err() != nil {
		return interrupted(ctx, report, nil)
	}
	asked, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	name := make(chan string, 1)
	defer r.stopWith(ctx, asked, name, cancel)()
	resp, err := r.send(asked, http.MethodPost, nil, bytes.NewReader(text), "api", "dlq", what)
	if err != nil {
		if ctx.Err() != nil {
			report.Selected, report.Partial = n, n > 0
		}
		return interrupted(ctx, report, err)
	}
	defer resp.Body.Close()
	silence := time.AfterFunc(remoteSilence, func() { cancel(errors.New("the sidecar fell silent")) })
	defer silence.Stop()
	report.Selected, report.Partial = n, n > 0
	lines := json.NewDecoder(resp.Body)
	for first := true; ; first = false {
		var l remoteLine
		if err := lines.Decode(&l); err != nil {
			if cause := context.Cause(asked); cause != nil {
				err = cause
			} else if errors.Is(err, io.EOF) {
				err = errors.New("the sidecar ended its answer without a report")
			} else if !badJSON(err) {
				err = fmt.Errorf("the sidecar at %s went away: run it again, it continues (%w)", r.base, err)
			}
			return interrupted(ctx, report, err)
		}
		silence.Reset(remoteSilence)
		if first {
			name <- l.Change
		}
		switch {
		case l.Report != nil && l.Error != "":
			return l.Report, errors.New(l.Error)
		case l.Report != nil:
			return l.Report, nil
		case l.Error != "":
			report.Partial = false // it is the last word
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

// stopWith tells the sidecar to stop a change when ctx ends, and leaves it if its answer does not end soon. The name of the change comes when
// it has begun. The returned func ends that, and is to be called when the answer has ended.
func (r *remote) stopWith(ctx, asked context.Context, name <-chan string, leave context.CancelCauseFunc) (end func()) {
	ended := make(chan struct{})
	var stopping sync.WaitGroup
	stopping.Go(func() {
		select {
		case <-ended:
			return
		case <-ctx.Done():
		}
		waiting := time.AfterFunc(r.leave, func() { leave(errInterrupted) })
		defer waiting.Stop()
		select {
		case <-ended:
			return
		case <-asked.Done():
			return
		case change := <-name:
			switch err := r.stop(asked, change); {
			case errors.Is(err, errNoChange):
				waiting.Reset(r.late)
			case err != nil:
				leave(errInterrupted) // it stops when nobody reads on
			}
		}
		<-ended
	})
	return func() { close(ended); leave(nil); stopping.Wait() }
}

// errNoChange means that the change has ended, and its report is on the way, or that the request came to another sidecar behind the same address.
var errNoChange = errors.New("there is no such change")

// stop tells the sidecar to stop a change.
func (r *remote) stop(ctx context.Context, change string) error {
	if change == "" {
		return errors.New("it has no name")
	}
	text, err := json.Marshal(map[string]string{"change": change})
	if err != nil {
		return err
	}
	resp, err := r.send(ctx, http.MethodPost, nil, bytes.NewReader(text), "api", "dlq", "stop")
	var refused *refusedError
	switch {
	case errors.As(err, &refused) && refused.status == http.StatusNotFound:
		return errNoChange
	case err != nil:
		return err
	}
	return resp.Body.Close()
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
