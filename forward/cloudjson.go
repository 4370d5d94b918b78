package forward

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// appendJSON appends the event in the JSON format (CloudEvents 1.0.2, JSON event format).
func (e *event) appendJSON(dst []byte) []byte {
	data, member := e.data, ""
	dataType, kind := e.dataKind()
	switch kind {
	case dataJSON:
		data, member = trimJSON(data), `,"data":`
	case dataText:
		member = `,"data":`
	case dataBinary:
		member = `,"data_base64":"`
	}
	if dst == nil {
		dst = make([]byte, 0, e.sizeJSON(kind))
	}
	dst = append(dst, `{"specversion":"1.0"`...)
	for _, a := range e.attributes {
		dst = appendMember(dst, a.name, a.value)
	}
	if dataType != "" {
		dst = appendMember(dst, "datacontenttype", dataType)
	}
	dst = append(dst, member...)
	switch kind {
	case dataJSON:
		dst = append(dst, data...)
	case dataText:
		dst = appendString(dst, data)
	case dataBinary:
		dst = base64.StdEncoding.AppendEncode(dst, data)
		dst = append(dst, '"')
	}
	return append(dst, '}')
}

// sizeJSON is about how long the event is in the JSON format.
func (e *event) sizeJSON(kind dataKind) int {
	size := 128 + len(e.data)
	if kind == dataBinary {
		size = 128 + base64.StdEncoding.EncodedLen(len(e.data))
	}
	for _, a := range e.attributes {
		size += len(a.name) + len(a.value) + len(`,"":""`)
	}
	return size
}

// dataKind is how the JSON format has the data of an event.
type dataKind int

const (
	noData     dataKind = iota
	dataJSON            // a JSON value
	dataText            // a string
	dataBinary          // base64
)

// dataKind says how the JSON format has the data, and its content type. Data of a type that is not known to be text is never a
// string, even if it could be one: the app is not to see now this, now that. Without a type, a look decides.
func (e *event) dataKind() (string, dataKind) {
	media := mediaType(e.dataType)
	switch {
	case len(e.data) == 0:
		return e.dataType, noData
	case media == "" && holdsStructure(e.data):
		return "application/json", dataJSON
	case media == "" && plainText(e.data):
		return "text/plain", dataText
	case media == "":
		return defaultContentType, dataBinary
	case isJSONType(media) && validJSON(e.data):
		return e.dataType, dataJSON
	case isTextType(media) && utf8.Valid(e.data) && unicodeCharset(e.dataType):
		return e.dataType, dataText
	}
	return e.dataType, dataBinary
}

func isJSONType(media string) bool {
	return strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json")
}

func isTextType(media string) bool {
	switch media {
	case "application/xml", "application/yaml", "application/x-yaml", "application/toml", "application/javascript",
		"application/graphql", "application/sql", "application/x-ndjson", "application/x-www-form-urlencoded":
		return true
	}
	return strings.HasPrefix(media, "text/") || strings.HasSuffix(media, "+xml") || strings.HasSuffix(media, "+yaml")
}

// unicodeCharset reports whether a content type names no charset but those whose bytes are UTF-8.
func unicodeCharset(contentType string) bool {
	_, charset, ok := strings.Cut(strings.ToLower(contentType), "charset=")
	charset, _, _ = strings.Cut(charset, ";")
	charset = strings.Trim(charset, "\" \t")
	return !ok || charset == "utf-8" || charset == "us-ascii"
}

// holdsStructure reports whether a body is a JSON object or array. Numbers, true and the like may be plain text as well.
func holdsStructure(body []byte) bool {
	text := trimJSON(body)
	return len(text) > 0 && (text[0] == '{' || text[0] == '[') && validJSON(text)
}

// plainText reports whether a body without a type is text: UTF-8 with no control characters but those that space it out.
func plainText(body []byte) bool {
	for _, c := range body {
		if c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0x7f {
			return false
		}
	}
	return utf8.Valid(body)
}

// validJSON reports whether a text is JSON. encoding/json alone would let bytes pass that are not UTF-8.
func validJSON(text []byte) bool { return json.Valid(text) && utf8.Valid(text) }

// appendMember appends one more member of an object, by a name that needs no escape.
func appendMember(dst []byte, name, value string) []byte {
	dst = append(dst, `,"`...)
	dst = append(dst, name...)
	dst = append(dst, `":`...)
	return appendString(dst, value)
}

// appendString appends UTF-8 text as a JSON string.
func appendString[T string | []byte](dst []byte, text T) []byte {
	dst = append(dst, '"')
	start := 0
	for i := range len(text) {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, text[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	dst = append(dst, text[start:]...)
	return append(dst, '"')
}
