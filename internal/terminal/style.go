package terminal

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Colours, as the parameters of the terminal's SGR command.
const (
	Bold   = "1"
	Dim    = "2"
	Red    = "31"
	Green  = "32"
	Yellow = "33"
	Cyan   = "36"
)

// Style is how texts look where they are shown. The zero Style is plain.
type Style struct {
	Terminal bool // it is one
	colour   bool
	file     *os.File
}

// StyleOf is plain unless w is a terminal; colours are also off with NO_COLOR.
func StyleOf(w io.Writer, getenv func(string) string) Style {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return Style{}
	}
	return Style{Terminal: true, colour: getenv("NO_COLOR") == "" && getenv("TERM") != "dumb", file: f}
}

// Width is the number of columns; 0 if it is no terminal, or does not say.
func (s Style) Width() int {
	if s.file == nil {
		return 0
	}
	n, _, err := term.GetSize(int(s.file.Fd()))
	if err != nil {
		return 0
	}
	return n
}

// Paint gives a text a colour.
func (s Style) Paint(colour, text string) string {
	if !s.colour || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}
