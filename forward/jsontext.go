package forward

import "unicode/utf8"

const hexDigits = "0123456789abcdef"

// plainJSON tells the bytes that a JSON string holds as they are.
var plainJSON = func() (t [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// appendJSON appends a text as it stands in a JSON string (RFC 8259, section 7), without the quotes. It reports whether the text is
// UTF-8; what is not is replaced by U+FFFD.
func appendJSON[T string | []byte](dst []byte, s T) (_ []byte, whole bool) {
	whole = true
	begin := 0
	for i := 0; i < len(s); {
		c := s[i]
		if plainJSON[c] {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			dst = appendEscape(append(dst, s[begin:i]...), c)
			i++
			begin = i
			continue
		}
		r, size := decodeRune(s[i:])
		if r == utf8.RuneError && size == 1 {
			whole = false
			dst = append(append(dst, s[begin:i]...), "\ufffd"...)
			begin = i + 1
		}
		i += size
	}
	return append(dst, s[begin:]...), whole
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

func decodeRune[T string | []byte](s T) (rune, int) {
	var head [utf8.UTFMax]byte
	return utf8.DecodeRune(head[:copy(head[:], s[:min(len(s), utf8.UTFMax)])])
}
