package forward

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// begun reports whether a body that is not one JSON value, or too large to be read to its end, has begun to say something of a message of the
// batch, and whether it ends amid an object of which no result is whole, nor all that stands for them. Results can be in any of several values, and
// behind a text that is none. Where the body is cut off, what was said before counts. Where something else is wrong with it, what comes after may
// be results as well: then the words are enough.
func begun(body []byte, ids map[string][]int) (found, open bool) {
	whole := false
	dec := json.NewDecoder(bytes.NewReader(body))
	skip := func(string) error { return dec.Decode(new(json.RawMessage)) }
	field := func(key string) error {
		var value json.RawMessage
		err := dec.Decode(&value)
		switch {
		case strings.EqualFold(key, "action"):
			found = found || err != nil || string(value) != "null"
		case strings.EqualFold(key, "id") && bytes.HasPrefix(value, []byte{'"'}):
			found = found || len(ids[textOf(value)]) > 0
		}
		return err
	}
	element := func(key string) error {
		if key != "" {
			return skip(key) // of an object
		}
		err := parts(dec, field)
		whole = whole || err == nil
		return err
	}
	member := func(key string) error {
		if !strings.EqualFold(key, "results") {
			return skip(key)
		}
		err := parts(dec, element)
		whole = whole || err == nil
		return err
	}
	object := false
	value := func() error {
		next := bytes.TrimLeft(body[dec.InputOffset():], " \t\r\n")
		whole, object = false, len(next) > 0 && next[0] == '{'
		return parts(dec, member)
	}
	err := value()
	if err != nil && dec.InputOffset() == 0 { // it begins with no JSON
		at := bytes.IndexByte(body, '{')
		if at < 0 {
			return false, false
		}
		body = body[at:]
		dec = json.NewDecoder(bytes.NewReader(body))
		err = value()
	}
	for err == nil {
		err = value()
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		rest := body[dec.InputOffset():]
		return found || mentions(rest, `"action"`) || mentions(rest, `"id"`), false
	}
	return found, object && !whole
}

// parts goes through the members of an object, or the elements of a list, whose key is empty. part reads the value of each. Another value
// has none.
func parts(dec *json.Decoder, part func(key string) error) error {
	begins, err := dec.Token()
	if err != nil {
		return err
	}
	kind, ok := begins.(json.Delim)
	if !ok {
		return nil
	}
	for dec.More() {
		key := ""
		if kind == '{' {
			name, err := dec.Token()
			if err != nil {
				return err
			}
			key, _ = name.(string)
		}
		if err := part(key); err != nil {
			return err
		}
	}
	_, err = dec.Token() // its end
	return err
}

// mentions reports whether a word is in a text, in any case. The word begins with a quotation mark.
func mentions(text []byte, word string) bool {
	for {
		i := bytes.IndexByte(text, word[0])
		if i < 0 || len(text)-i < len(word) {
			return false
		}
		if text = text[i:]; bytes.EqualFold(text[:len(word)], []byte(word)) {
			return true
		}
		text = text[1:]
	}
}
