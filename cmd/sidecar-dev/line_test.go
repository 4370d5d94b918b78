package main

import (
	"errors"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jetsidecar/jetsidecar/internal/pipeline"
	"github.com/jetsidecar/jetsidecar/policy"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// onTerminal is a style for a terminal of so many columns.
func onTerminal(columns int) style {
	return style{colour: true, glyphs: true, columns: func() int { return columns }}
}

var settled = []pipeline.Settled{
	{Subject: "orders.created", Sequence: 1, Delivered: 1, Result: pipeline.ResultAck, Status: 200, Duration: 12 * time.Millisecond},
	{Subject: "orders.paid", Sequence: 22, Delivered: 2, Result: pipeline.ResultRetry, Status: 503, Error: "busy", Delay: 1234 * time.Millisecond, Duration: time.Second},
	{Subject: "orders.paid", Sequence: 333, Delivered: 4, Result: pipeline.ResultDLQ, Reason: policy.ReasonMaxDeliver, Error: "connection reset " + strings.Repeat("x", 100), Duration: time.Millisecond},
	{Subject: "orders.shipped", Sequence: 4444, Delivered: 1, Result: pipeline.ResultDrop, Status: 200, Duration: time.Microsecond},
	{Subject: "orders.shipped", Sequence: 55555, Delivered: 1, Result: pipeline.ResultDuplicate},
}

func TestLinesPlain(t *testing.T) {
	l := lines{dlq: "ORDERS_DLQ", max: 4}
	want := []string{
		"12:00:00  #1     orders.created  1/4  ack          200   12",
		"12:00:00  #22    orders.paid     2/4  retry        503 1000  again in 1.2s, busy",
		"12:00:00  #333   orders.paid     4/4  dlq            -    1  max_deliver: connection reset " + strings.Repeat("x", 100) + " -> ORDERS_DLQ",
		"12:00:00  #4444  orders.shipped  1/4  drop         200    0  not wanted",
		"12:00:00  #55555 orders.shipped  1/4  duplicate      -    -  same id as #7, app not called",
	}
	for i := range settled {
		if got := l.settled(noon, &settled[i], 7); got != want[i] {
			t.Errorf("got  %q\nwant %q", got, want[i])
		}
	}
	if got := l.settled(noon, &settled[4], 0); !strings.HasSuffix(got, "  answered before, app not called") {
		t.Error(got)
	}
}

var sgr = regexp.MustCompile("\x1b\\[[0-9]+m")

// TestLinesOnATerminal holds that nothing wraps, that columns are aligned, and that colours end with their line.
func TestLinesOnATerminal(t *testing.T) {
	for _, columns := range []int{80, 100} {
		l := lines{style: onTerminal(columns), dlq: "ORDERS_DLQ", max: 4}
		all := []string{l.head()}
		for i := range settled {
			all = append(all, l.settled(noon, &settled[i], 0))
		}
		at := strings.Index(sgr.ReplaceAllString(all[0], ""), "what")
		for _, line := range append(all, l.now(time.Minute, counts{})) {
			text := sgr.ReplaceAllString(line, "")
			if n := utf8.RuneCountInString(text); n > columns {
				t.Errorf("%d wide: %q", n, text)
			}
			if n := strings.Count(line, "\x1b[0m"); n == 0 || strings.Count(line, "\x1b[") != 2*n {
				t.Errorf("colours: %q", line)
			}
			if strings.Contains(text, "/4") {
				if r := []rune(text); len(r) > at && (r[at-1] != ' ' || r[at] == ' ') {
					t.Errorf("column %d: %q", at, text)
				}
			}
		}
		if !strings.HasSuffix(sgr.ReplaceAllString(all[3], ""), "…") || strings.HasPrefix(sgr.ReplaceAllString(all[1], ""), "12:") != (columns == 100) {
			t.Errorf("for %d columns: %q", columns, all)
		}
	}
}

func TestLineOfOthersIsClean(t *testing.T) {
	l := lines{style: onTerminal(200), dlq: "D", max: 4}
	line := l.settled(noon, &pipeline.Settled{Subject: "a.\x1b[2J", Result: pipeline.ResultRetry, Error: "\u202e\r\nx\x1b]0;title\a"}, 0)
	if text := sgr.ReplaceAllString(line, ""); strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("%q", text)
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"", "plain", "\x1b[31m", "\u009b31m", "\xff\xfe", "\u202e", "é→ 漢", "a\tb\r\n", "\x7f", "\U000e0001", strings.Repeat("é", maxClean)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := clean(s)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("clean(%q) = %q", s, got)
		}
		if len(s) <= maxClean && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) && got != s {
			t.Errorf("clean(%q) = %q: there was nothing to change", s, got)
		}
	})
}

func TestStyle(t *testing.T) {
	env := func(vars map[string]string) func(string) string { return func(k string) string { return vars[k] } }
	if s := styleOf(io.Discard, env(map[string]string{"LANG": "C.UTF-8"})); s.colour || s.glyphs || s.width() != 0 {
		t.Errorf("not a terminal: %+v", s)
	}
	for _, c := range []struct {
		vars map[string]string
		want bool
	}{
		{map[string]string{"LANG": "C.UTF-8"}, true},
		{map[string]string{"LC_ALL": "C", "LANG": "C.UTF-8"}, false},
		{map[string]string{"LC_CTYPE": "de_DE.utf8"}, true},
		{nil, false},
	} {
		if utf8Locale(env(c.vars)) != c.want {
			t.Errorf("%v: %v", c.vars, !c.want)
		}
	}
}

func TestLogShowsWarningsOnly(t *testing.T) {
	out := &output{}
	s := newScreen(out, func() {})
	log := slog.New(logHandler{screen: s}).With("stream", "S", "app", "a")
	log.Info("hidden")
	log.Warn("settled", "verdict", "dlq")
	log.Warn("the app is gone", "error", errors.New("no \x1b[1mroute"))
	log.Error("the dlq is full")
	s.close()
	log.Error("after the end")
	got := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d  `).ReplaceAllString(out.String(), "")
	want := "warn  the app is gone  app=a  error=no \\x1b[1mroute\nerror  the dlq is full  app=a\n"
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestScreenNeverWaits writes to what takes nothing: lines are counted, and shown is what there was room for.
func TestScreenNeverWaits(t *testing.T) {
	r, w := io.Pipe()
	s := newScreen(w, func() {})
	for range 3 * screenLines {
		s.line("x")
	}
	read := make(chan string)
	go func() {
		all, _ := io.ReadAll(r)
		read <- string(all)
	}()
	s.close()
	w.Close()
	text := <-read
	if n := strings.Count(text, "x\n"); n < screenLines || n > 2*screenLines || !strings.Contains(text, " lines are not shown") {
		t.Errorf("%d lines, %q", n, text[:200])
	}
}

func TestScreenSaysWhenItIsBroken(t *testing.T) {
	r, w := io.Pipe()
	r.Close()
	broken := make(chan struct{}, 1)
	s := newScreen(w, func() {
		select {
		case broken <- struct{}{}:
		default:
		}
	})
	s.line("x")
	<-broken
	s.close()
}
