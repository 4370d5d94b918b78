package main

import (
	"fmt"

	"github.com/jetsidecar/jetsidecar/internal/dlq"
)

// would is what would become of an entry, where that is not what was asked for.
type would struct {
	Be  string `json:"would_be"` // left or removed
	Why string `json:"why"`
}

// dry lists what is selected, marks what would not be done (a participle and where), and counts it.
func (d *changeFlags) dry(se *session, s streams, done string, do doing) int {
	report, err := do(se, nil, nil)
	if err == nil && report.Interrupted {
		err = errInterrupted
	}
	if err != nil {
		return se.failed(s, err)
	}
	fmt.Fprintf(s.err, "these would be %s:\n", done)
	odd, left, removed := map[dlq.Cursor]would{}, 0, 0
	for _, x := range report.Exceptions {
		w := would{Be: "left", Why: x.Why}
		if x.Result == dlq.Kept {
			left += len(x.Seqs)
		} else {
			w.Be = "removed"
			removed += len(x.Seqs)
		}
		for _, seq := range x.Seqs {
			odd[dlq.Cursor{Stream: x.Stream, Seq: seq}] = w
		}
	}
	f := d.filter
	f.UpTo = report.UpTo
	if code := se.list(f, d.json, s, odd); code != exitOK || len(odd) == 0 {
		return code
	}
	line := fmt.Sprintf("%d of %s would be %s", report.Selected-left-removed, entries(report.Selected), done)
	if removed > 0 {
		line += fmt.Sprintf(", %d removed without a call", removed)
	}
	if left > 0 {
		line += fmt.Sprintf(", %d left", left)
	}
	fmt.Fprintln(s.err, line)
	return exitOK
}

// marked is an entry in the table that says what would become of it.
func (w would) marked(e *dlq.Entry) *dlq.Entry {
	row := *e
	row.Part, row.Error = "", fmt.Sprintf("(would be %s: %s) %s", w.Be, w.Why, e.Error)
	return &row
}
