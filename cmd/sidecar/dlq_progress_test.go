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

// What is gone is not counted as replayed, and others are waited for in so many words: at once, and without a terminal once.
func TestProgressWaits(t *testing.T) {
	const counted = "2 of 4 entries, 1 replayed, 1 gone already"
	for name, c := range map[string]struct {
		style terminal.Style
		want  string
	}{
		"lines": {terminal.Style{}, counted + ", waiting for 2 entries that process 7 on a has in work (if it died, for 15s at most)\n"},
		"bar": {terminal.Style{Terminal: true}, "\r[############............] " + counted + ", waiting for 2 entries that process 7 on a has in work (if it died, for 15s at most)\x1b[K" +
			"\r[############............] " + counted + ", waiting for 1 entry that process 7 on a has in work (if it died, for 15s at most)\x1b[K\r\x1b[K"},
	} {
		var out strings.Builder
		p := &progress{w: &out, style: c.style, done: "replayed", now: func() time.Time { return time.Unix(0, 0) }}
		p.begin(4)
		p.told(dlq.Progress{Selected: 4, Done: 2, Gone: 1})
		p.told(dlq.Progress{Selected: 4, Done: 2, Gone: 1, Waiting: &dlq.Waiting{Entries: 2, Owner: "process 7 on a"}})
		p.told(dlq.Progress{Selected: 4, Done: 2, Gone: 1, Waiting: &dlq.Waiting{Entries: 1, Owner: "process 7 on a"}})
		p.end()
		if out.String() != c.want {
			t.Errorf("%s: %q\nwant %q", name, out.String(), c.want)
		}
	}
}
