package main

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/jetsidecar/jetsidecar/internal/terminal"
)

// Colours, as the parameters of the terminal's SGR command.
const (
	bold    = "1"
	dim     = "2"
	red     = "31"
	green   = "32"
	yellow  = "33"
	blue    = "34"
	magenta = "35"
	cyan    = "36"
)

// style is how texts look where they are shown.
type style struct {
	colour  bool
	glyphs  bool       // more than ASCII may be used
	columns func() int // of the terminal, 0 if not known; nil if it is none
}

// styleOf is plain unless w is a terminal.
func styleOf(w io.Writer, getenv func(string) string) style {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return style{}
	}
	return style{
		colour: getenv("NO_COLOR") == "" && getenv("TERM") != "dumb",
		glyphs: utf8Locale(getenv),
		columns: func() int {
			n, _, _ := term.GetSize(int(f.Fd()))
			return n
		},
	}
}

func utf8Locale(getenv func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(getenv(name)); v != "" {
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}

// width of a line, 0 if nothing bounds it.
func (s style) width() int {
	if s.columns == nil {
		return 0
	}
	return s.columns()
}

// paint gives a text a colour.
func (s style) paint(colour, text string) string {
	if !s.colour || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// glyph is one of two texts, by what can be shown.
func (s style) glyph(pretty, plain string) string {
	if s.glyphs {
		return pretty
	}
	return plain
}

// cut shortens a text to n characters.
func (s style) cut(text string, n int) string {
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	end := s.glyph("…", "...")
	keep := n - utf8.RuneCountInString(end)
	if keep <= 0 {
		return ""
	}
	return string([]rune(text)[:keep]) + end
}

// pad fills a text with blanks to n characters, on the right; with a negative n on the left.
func pad(text string, n int) string {
	blanks := strings.Repeat(" ", max(0, max(n, -n)-utf8.RuneCountInString(text)))
	if n < 0 {
		return blanks + text
	}
	return text + blanks
}

// maxClean bounds a text of others, in bytes.
const maxClean = 1 << 10

// clean is a text of others, made safe for a terminal and not too long.
func clean(text string) string {
	if len(text) > maxClean {
		return terminal.Clean(text[:maxClean]) + "..."
	}
	return terminal.Clean(text)
}
