package main

import (
	"strings"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/dlq"
	"github.com/jetsidecar/jetsidecar/internal/terminal"
)

func TestProgress(t *testing.T) {
	for name, c := range map[string]struct {
		style terminal.Style
		want  string
	}{
		"lines": {terminal.Style{}, "30 of 100 entries, 28 replayed, 1 failed again, 1 left, 6.0/s, 12s left\n"},
		"bar": {terminal.Style{Terminal: true},
			"\r[##......................] 10 of 100 entries, 10 replayed, 10.0/s, 9s left\x1b[K\r[#######.................] 30 of 100 entries, 28 replayed, 1 failed again, 1 left, 6.0/s, 12s left\x1b[K\r\x1b[K"},
	} {
		var out strings.Builder
		now := time.Unix(0, 0)
		p := &progress{w: &out, style: c.style, done: "replayed", now: func() time.Time { return now }}
		p.begin(100)
		now = now.Add(time.Second)
		p.told(dlq.Progress{Selected: 100, Done: 10})
		now = now.Add(10 * time.Millisecond)
		p.told(dlq.Progress{Selected: 100, Done: 11})
		now = now.Add(3990 * time.Millisecond)
		p.told(dlq.Progress{Selected: 100, Done: 28, Failed: 1, Kept: 1})
		p.end()
		if out.String() != c.want {
			t.Errorf("%s: %q\nwant %q", name, out.String(), c.want)
		}
	}
}
