package telemetry

import (
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// clean reports whether a line can be shown as it is: valid UTF-8 that only prints, one line break at its end.
func clean(line []byte) bool {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}
	for i, c := range line {
		if c < ' ' || c >= 0x7f {
			return printable(line[i:])
		}
	}
	return true
}

func printable(b []byte) bool {
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if !shown(r, n) {
			return false
		}
		b = b[n:]
	}
	return true
}

// shown reports whether a rune of n bytes only prints: no control character (terminal commands are made of these, the
// ones above 0x7f too), no invisible one such as a change of direction.
func shown(r rune, n int) bool {
	return r >= ' ' && r < 0x7f || r > 0x7f && unicode.IsPrint(r) && (r != utf8.RuneError || n > 1)
}

// appendClean appends a line with what is not to be shown raw as Unicode escapes (\u001b): right inside a JSON string, the only place of
// a JSON line where such can be, and readable in a text line.
func appendClean(b, line []byte) []byte {
	end := len(line)
	if end > 0 && line[end-1] == '\n' {
		end--
	}
	for i := 0; i < end; {
		r, n := utf8.DecodeRune(line[i:end])
		switch {
		case shown(r, n):
			b = append(b, line[i:i+n]...)
		case r > 0xffff:
			r1, r2 := utf16.EncodeRune(r)
			b = appendEscape(appendEscape(b, r1), r2)
		default:
			b = appendEscape(b, r)
		}
		i += n
	}
	return append(b, line[end:]...)
}

func appendEscape(b []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	return append(b, '\\', 'u', hex[r>>12&0xf], hex[r>>8&0xf], hex[r>>4&0xf], hex[r&0xf])
}
