package forward

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// plainJSON tells the bytes that a JSON string holds as they are.
var plainJSON = func() (t [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// appendText appends a text as it stands in a JSON string, without the quotes. What is not UTF-8 in it is replaced by U+FFFD.
func appendText(dst []byte, s string) []byte {
	for i := range len(s) {
		if !plainJSON[s[i]] {
			dst, _ = appendJSON(dst, []byte(s))
			return dst
		}
	}
	return append(dst, s...)
}

// appendJSON appends a text as it stands in a JSON string (RFC 8259, section 7), without the quotes. It reports whether the text is
// UTF-8; what is not is replaced by U+FFFD.
func appendJSON(dst, s []byte) (_ []byte, whole bool) {
	whole = true
	for {
		n := plainRun(s)
		dst = append(dst, s[:n]...)
		if s = s[n:]; len(s) == 0 {
			return dst, whole
		}
		if c := s[0]; c < utf8.RuneSelf {
			dst, s = appendEscape(dst, c), s[1:]
			continue
		}
		r, size := utf8.DecodeRune(s)
		whole = whole && (r != utf8.RuneError || size > 1)
		dst, s = utf8.AppendRune(dst, r), s[size:]
	}
}

// plainRun is how many bytes at the start a JSON string holds as they are. It looks at eight at a time.
func plainRun(s []byte) int {
	const low, high = 0x0101010101010101, 0x8080808080808080
	n := 0
	for ; len(s)-n >= 8; n += 8 {
		x := binary.LittleEndian.Uint64(s[n:])
		quote, slash := x^low*'"', x^low*'\\'
		// The top bit of a byte, as far as no lower byte has it: at least ' ', or not ASCII, or one of the two.
		if special := ((x - low*' ') | (quote - low) | (slash - low) | x) & high; special != 0 {
			return n + bits.TrailingZeros64(special)/8
		}
	}
	for n < len(s) && plainJSON[s[n]] {
		n++
	}
	return n
}

// appendEscape appends a character that a JSON string must escape.
func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	default:
		return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
	}
}
