// Package terminal answers how texts of others are shown to people: nothing of them reaches a terminal as a command, and nothing
// changes how the rest of a line reads.
package terminal

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean is a text with everything escaped that a terminal could take for a command or that would change how the rest of the
// line reads: control characters, line breaks, bidirectional and invisible ones, and what is not UTF-8.
func Clean(text string) string { return clean(text, "") }

// CleanLines is Clean for a text of several lines: line breaks and tabs stay.
func CleanLines(text string) string { return clean(text, "\n\t") }

func clean(text, keep string) string {
	var b strings.Builder
	b.Grow(len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteString(`\x` + strconv.FormatUint(uint64(text[0])|0x100, 16)[1:])
		case unicode.IsPrint(r), strings.ContainsRune(keep, r):
			b.WriteString(text[:size])
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	return b.String()
}

// CleanJSON escapes in a JSON text what Clean would. The text means the same afterwards.
func CleanJSON(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r < 0x7f || unicode.IsPrint(r):
			out = append(out, text[:size]...)
		case r < 0x10000:
			out = append(out, escape(r)...)
		default:
			r -= 0x10000
			out = append(append(out, escape(0xd800+r>>10)...), escape(0xdc00+r&0x3ff)...)
		}
		text = text[size:]
	}
	return out
}

func escape(r rune) string { return `\u` + strconv.FormatUint(uint64(r)|0x10000, 16)[1:] }

// Cut shortens a text to n characters, none of them if n is less than 1.
func Cut(text string, n int) string {
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	if n < 4 {
		return string([]rune(text)[:max(n, 0)])
	}
	return string([]rune(text)[:n-3]) + "..."
}
