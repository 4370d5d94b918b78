package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/dlq"
	"github.com/jetsidecar/jetsidecar/internal/terminal"
	"github.com/jetsidecar/jetsidecar/jetstream"
)

const (
	barEvery  = 100 * time.Millisecond // between two changes of the bar
	lineEvery = 5 * time.Second        // between two lines where there is no terminal
	barCells  = 24
)

// progress says on stderr how far a replay or a removal is: by a bar on a terminal, else by a line now and then.
type progress struct {
	w     io.Writer
	style terminal.Style
	done  string // what becomes of entries, as "removed"
	now   func() time.Time

	mu      sync.Mutex
	started time.Time
	shown   time.Time
	last    dlq.Progress
	drawn   bool // there is a bar on the line
	waited  bool // it was said that others are waited for
}

func newProgress(s streams, done string) *progress {
	return &progress{w: s.err, style: terminal.StyleOf(s.err, s.getenv), done: done, now: time.Now}
}

// begin starts the clock.
func (p *progress) begin(selected int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = p.now()
	p.shown = p.started
	p.last.Selected = selected
}

// told is called after each entry, and when others are waited for: that is said at once, where there is no terminal the first time.
func (p *progress) told(now dlq.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = now
	every := lineEvery
	if p.style.Terminal {
		every = barEvery
	}
	waits := now.Waiting != nil && now.Last == nil && (p.style.Terminal || !p.waited)
	p.waited = p.waited || waits
	if at := p.now(); waits || at.Sub(p.shown) >= every {
		p.shown = at
		p.show(at)
	}
}

func (p *progress) show(at time.Time) {
	if !p.style.Terminal {
		fmt.Fprintln(p.w, p.text(at))
		return
	}
	handled := p.last.Done + p.last.Failed + p.last.Kept
	cells := barCells * handled / max(p.last.Selected, 1)
	bar := "[" + strings.Repeat("#", cells) + strings.Repeat(".", barCells-cells) + "] "
	line := bar + p.text(at)
	if width := p.style.Width(); width > 0 {
		line = terminal.Cut(line, width-1)
	}
	fmt.Fprintf(p.w, "\r%s\x1b[K", line)
	p.drawn = true
}

// text is how far it is, how fast, and how long it takes still.
func (p *progress) text(at time.Time) string {
	handled := p.last.Done + p.last.Failed + p.last.Kept
	text := fmt.Sprintf("%d of %s, %d %s", handled, entries(p.last.Selected), p.last.Done-p.last.Gone, p.done)
	if p.last.Gone > 0 {
		text += fmt.Sprintf(", %d gone already", p.last.Gone)
	}
	if p.last.Failed > 0 {
		text += fmt.Sprintf(", %d failed again", p.last.Failed)
	}
	if p.last.Kept > 0 {
		text += fmt.Sprintf(", %d left", p.last.Kept)
	}
	if w := p.last.Waiting; w != nil {
		return text + fmt.Sprintf(", waiting for %s that %s has in work (if it died, for %s at most)", entries(w.Entries), terminal.Clean(w.Owner), jetstream.ClaimLease)
	}
	took := at.Sub(p.started)
	if handled == 0 || took <= 0 {
		return text
	}
	left := time.Duration(float64(took) / float64(handled) * float64(p.last.Selected-handled))
	return text + fmt.Sprintf(", %.1f/s, %s left", float64(handled)/took.Seconds(), left.Round(time.Second))
}

// end takes the bar away: the report comes in its place.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
