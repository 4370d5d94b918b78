package forward

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
)

// parseEvent reads an event in the JSON format; false if the text is none: no JSON object, another version, a required attribute
// missing or invalid, or data that cannot be read. Of a member that is there twice the last one counts, as for most parsers.
func parseEvent(text []byte) (event, bool) {
	text = trimJSON(text)
	if len(text) == 0 || text[0] != '{' || !validJSON(text) {
		return event{}, false
	}
	var version, data, encoded []byte
	e := event{structured: text}
	for rest := text[1:]; ; {
		name, value, after, ok := nextMember(rest)
		if !ok {
			break
		}
		rest = after
		switch name {
		case "specversion":
			version = value
		case "data":
			data = value
		case "data_base64":
			encoded = value
		default:
			e.member(name, value)
		}
	}
	if encoded != nil && string(encoded) == "null" {
		encoded = nil
	}
	if string(version) != `"1.0"` || !e.has("id") || !e.has("source") || !e.has("type") || data != nil && encoded != nil {
		return event{}, false
	}
	return e, e.decodeData(data, encoded)
}

// member takes the attribute of a member over; null is none.
func (e *event) member(name string, value []byte) {
	if string(value) == "null" {
		e.drop(name)
		return
	}
	text, ok := scalarText(value)
	if !ok || value[0] != '"' && isString(name) || !e.take(name, text, true) {
		e.dropped++
		e.drop(name)
	}
}

// isString reports whether the specification has an attribute as a string in JSON; others may be numbers and booleans too.
func isString(name string) bool {
	return name == "datacontenttype" || name == "dataschema" || slices.Contains(wellKnown, name)
}

// drop takes back what an earlier member of that name set.
func (e *event) drop(name string) {
	if name == "datacontenttype" {
		e.dataType = ""
	}
	e.attributes = slices.DeleteFunc(e.attributes, func(a attribute) bool { return a.name == name })
}

// decodeData sets the data and its type from the members that may have it; nil is a member that is not there.
func (e *event) decodeData(data, encoded []byte) bool {
	switch {
	case encoded != nil:
		text, ok := jsonString(encoded)
		if !ok {
			return false
		}
		decoded, err := base64.StdEncoding.DecodeString(text)
		e.data = decoded
		return err == nil
	case data == nil:
		return true
	case e.dataType == "":
		e.dataType, e.data = "application/json", data
		return true
	}
	e.data = data
	if text, ok := jsonString(data); ok && !isJSONType(mediaType(e.dataType)) {
		e.data = []byte(text)
	}
	return true
}

// scalarText is the canonical string of an attribute's value: a string, an integer or a boolean.
func scalarText(value []byte) (string, bool) {
	switch c := value[0]; {
	case c == '"':
		return jsonString(value)
	case c == '{' || c == '[':
		return "", false
	case bytes.ContainsAny(value, ".eE") && c != 't' && c != 'f':
		return "", false
	}
	return string(value), true
}

// jsonString is the text of a JSON string, false if the value is none.
func jsonString(value []byte) (string, bool) {
	if value[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(value, '\\') < 0 {
		return string(value[1 : len(value)-1]), true
	}
	var text string
	err := json.Unmarshal(value, &text)
	return text, err == nil
}

// nextMember takes the next member off what is left of an object, of valid JSON; false at its end.
func nextMember(rest []byte) (name string, value, after []byte, ok bool) {
	rest = bytes.TrimLeft(rest, " \t\r\n,")
	if rest[0] == '}' {
		return "", nil, nil, false
	}
	n := valueLength(rest)
	name, _ = jsonString(rest[:n])
	rest = bytes.TrimLeft(rest[n:], " \t\r\n:")
	n = valueLength(rest)
	return name, rest[:n], rest[n:], true
}

// valueLength is how long the value is that valid JSON begins with.
func valueLength(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case c == '{' || c == '[':
			depth++
			continue
		case depth > 0 && (c == '}' || c == ']'):
			depth--
		case depth > 0:
			continue
		default:
			return literalLength(text)
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(text)
}

// literalLength is how long the number, true, false or null is that text begins with.
func literalLength(text []byte) int {
	for i, c := range text {
		if strings.IndexByte(",}] \t\r\n", c) >= 0 {
			return i
		}
	}
	return len(text)
}
