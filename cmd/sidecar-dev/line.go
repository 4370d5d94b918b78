package main

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jetsidecar/jetsidecar/internal/pipeline"
)

const (
	clock        = "15:04:05"
	narrow       = 96 // columns below which the time is left out
	subjectWidth = 14
	longSubject  = 28 // on a terminal
)

// look is how a result looks.
type look struct {
	word, glyph, colour string
}

var looks = map[pipeline.Result]look{
	pipeline.ResultAck:       {"ack", "✓", green},
	pipeline.ResultRetry:     {"retry", "↻", yellow},
	pipeline.ResultDLQ:       {"dlq", "✗", red},
	pipeline.ResultDrop:      {"drop", "-", magenta},
	pipeline.ResultDuplicate: {"duplicate", "=", cyan},
}

// lines makes the lines of one run.
type lines struct {
	style
	dlq string // name of the DLQ stream
	max int    // attempts a message gets
}

// head names the columns.
func (l lines) head() string {
	return l.paint(dim, l.row(l.width(), "time", "seq", "subject", "try", pad("verdict", 11), "http", "ms", "what follows"))
}

// settled is the line of one settled delivery; of is the sequence of the message that it repeats, or 0.
func (l lines) settled(at time.Time, s *pipeline.Settled, of uint64) string {
	k := looks[s.Result]
	word := pad(k.word, 11)
	if l.glyphs {
		word = k.glyph + " " + pad(k.word, 9)
	}
	status, took := "-", "-"
	if s.Status != 0 {
		status = fmt.Sprint(s.Status)
	}
	if s.Duration > 0 {
		took = fmt.Sprint(s.Duration.Milliseconds())
	}
	subject := clean(s.Subject)
	if l.columns != nil {
		subject = l.cut(subject, longSubject)
	}
	return l.coloured(k.colour, l.row(l.width(), at.Format(clock), fmt.Sprintf("#%d", s.Sequence), subject,
		fmt.Sprintf("%d/%d", s.Delivered, l.max), word, status, took, l.follows(s, of)), word)
}

// follows says in words what happens next, and why.
func (l lines) follows(s *pipeline.Settled, of uint64) string {
	why := clean(s.Error)
	switch s.Result {
	case pipeline.ResultRetry:
		return join(", ", "again in "+short(s.Delay), why)
	case pipeline.ResultDLQ:
		return join(": ", string(s.Reason), why) + " " + l.glyph("→", "->") + " " + l.dlq
	case pipeline.ResultDrop:
		return join(": ", "not wanted", why)
	case pipeline.ResultDuplicate:
		if of != 0 {
			return fmt.Sprintf("same id as #%d, app not called", of)
		}
		return "answered before, app not called"
	}
	return why
}

// row sets the columns, and cuts the last one so that the line fits width.
func (l lines) row(width int, at, seq, subject, try, verdict, status, took, follows string) string {
	var b strings.Builder
	if width == 0 || width >= narrow {
		b.WriteString(pad(at, 8) + "  ")
	}
	b.WriteString(pad(seq, 6) + " " + pad(subject, subjectWidth) + "  " + pad(try, 4) + " " + verdict + " " + pad(status, -4) + pad(took, -5) + "  ")
	if width > 0 {
		follows = l.cut(follows, width-utf8.RuneCountInString(b.String()))
	}
	return strings.TrimRight(b.String()+follows, " ")
}

// coloured gives a row's verdict its colour, and dims what is before it. What follows a failure is coloured too.
func (l lines) coloured(colour, row, verdict string) string {
	before, after, ok := strings.Cut(row, verdict)
	if !l.colour || !ok {
		return row
	}
	if colour == red {
		return l.paint(dim, before) + l.paint(colour, verdict+after)
	}
	return l.paint(dim, before) + l.paint(colour, verdict) + after
}

// note is a line that is about no message.
func (l lines) note(at time.Time, colour, word, text string) string {
	row := word + "  " + text
	if w := l.width(); w == 0 || w >= narrow {
		row = at.Format(clock) + "  " + row
	}
	return l.paint(colour, row)
}

// now sums up in one line.
func (l lines) now(since time.Duration, c counts) string {
	text := fmt.Sprintf("%s: %d published, %d ack, %d retry, %d duplicate, %d dlq, %d drop, %d open",
		since.Round(time.Second), c.published+c.others, c.results[pipeline.ResultAck], c.results[pipeline.ResultRetry],
		c.results[pipeline.ResultDuplicate], c.results[pipeline.ResultDLQ], c.results[pipeline.ResultDrop], c.waiting)
	rule := l.glyph("──", "--")
	text = rule + " " + text + " " + rule
	if w := l.width(); w > 0 {
		text = l.cut(text, w)
	}
	return l.paint(blue, text)
}

func join(sep string, parts ...string) string {
	var given []string
	for _, p := range parts {
		if p != "" {
			given = append(given, p)
		}
	}
	return strings.Join(given, sep)
}

// short is a duration to three digits or so.
func short(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}
