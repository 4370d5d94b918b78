package forward

import (
	"net/url"
	"strings"
	"time"
	"unicode/utf8"
)

// eventPrefix begins the name of a header that is an attribute of an event.
const eventPrefix = "ce-"

// isEventHeader reports whether a header has an attribute of an event, in any case.
func isEventHeader(name string) bool {
	return len(name) >= len(eventPrefix) && strings.EqualFold(name[:len(eventPrefix)], eventPrefix)
}

// validAttribute reports whether an event can have an attribute (CloudEvents 1.0.2, naming conventions and type system). It
// looks no closer at source and dataschema than a parser of URLs does.
func validAttribute(name, value string) bool {
	if !validAttributeName(name) || value == "" || !validText(value) {
		return false
	}
	switch name {
	case "specversion":
		return value == "1.0"
	case "time":
		// time.Parse also takes hours of one digit and a comma.
		_, err := time.Parse(time.RFC3339, value)
		return err == nil && value[len("2006-01-02T15")] == ':' && strings.IndexByte(value, ',') < 0
	case "source", "dataschema":
		_, err := url.Parse(value)
		return err == nil
	case "datacontenttype":
		return validMediaType(value)
	}
	return true
}

func validAttributeName(name string) bool {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return name != "" && name != "data"
}

// validText reports whether a text is a string of the type system: UTF-8 without control characters and noncharacters.
func validText(text string) bool {
	for i, r := range text {
		switch {
		case r < ' ', 0x7f <= r && r <= 0x9f:
			return false
		case 0xfdd0 <= r && r <= 0xfdef, r&0xfffe == 0xfffe:
			return false
		case r == utf8.RuneError:
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
				return false
			}
		}
	}
	return true
}

// validMediaType reports whether a content type has the form of one.
func validMediaType(contentType string) bool {
	kind, sub, ok := strings.Cut(mediaType(contentType), "/")
	return ok && validName(kind) && validName(sub) && validText(contentType) && ascii(contentType)
}

const hexDigits = "0123456789ABCDEF"

// encoded is a value as the HTTP binding wants it in a header.
func encoded(value string) string {
	for i := range len(value) {
		if escaped(value[i]) {
			return string(appendEncoded(nil, value, '%'))
		}
	}
	return value
}

// escaped reports whether a byte of a value is encoded in a header (HTTP binding, section 3.1.3.2).
func escaped(c byte) bool { return c <= ' ' || c >= 0x7f || c == '"' || c == '%' }

// appendEncoded appends a value as the HTTP binding wants it in a header. apart is one more character to encode, '%' for none.
func appendEncoded[T string | []byte](dst []byte, value T, apart byte) []byte {
	for i := range len(value) {
		if c := value[i]; escaped(c) || c == apart {
			dst = append(dst, '%', hexDigits[c>>4], hexDigits[c&15])
		} else {
			dst = append(dst, c)
		}
	}
	return dst
}

// decodeValue is the value of an attribute in a header line, false if it is none. A percent sign that encodes nothing stands for
// itself: not all publishers encode.
func decodeValue(line string) (string, bool) {
	line = strings.Trim(line, " \t")
	if n := len(line); n >= 2 && line[0] == '"' && line[n-1] == '"' {
		line = unquote(line[1 : n-1])
	}
	if strings.IndexByte(line, '%') < 0 {
		return line, validText(line)
	}
	value := make([]byte, 0, len(line))
	for i := 0; i < len(line); i++ {
		if line[i] == '%' && i+2 < len(line) {
			if high, low := hexValue(line[i+1]), hexValue(line[i+2]); high >= 0 && low >= 0 {
				value = append(value, byte(high<<4|low))
				i += 2
				continue
			}
		}
		value = append(value, line[i])
	}
	return string(value), validText(string(value))
}

// unquote is what a quoted string (RFC 9110, section 5.6.4) holds, given without its quotes.
func unquote(text string) string {
	if strings.IndexByte(text, '\\') < 0 {
		return text
	}
	plain := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) {
			i++
		}
		plain = append(plain, text[i])
	}
	return string(plain)
}

// hexValue is the value of a hexadecimal digit, -1 if it is none.
func hexValue(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
