package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
)

// jsonReader turns JSON into nodes with their lines.
type jsonReader struct {
	data []byte
	dec  *json.Decoder
	budget
	at   int64 // offset up to which lines were counted
	line int
}

// parseJSON turns one JSON document into nodes. An empty file is null.
func parseJSON(data []byte) (*node, error) {
	r := &jsonReader{data: data, dec: json.NewDecoder(bytes.NewReader(data)), line: 1}
	r.dec.UseNumber()
	if len(bytes.TrimSpace(data)) == 0 {
		return &node{shape: null}, nil
	}
	n, err := r.value(0)
	if err != nil {
		return nil, err
	}
	if _, err := r.dec.Token(); !errors.Is(err, io.EOF) {
		return nil, badSyntax(r.lineNow(), "not valid JSON: more follows after the end")
	}
	return n, nil
}

// lineNow is the line of the token just read.
func (r *jsonReader) lineNow() int {
	end := min(r.dec.InputOffset(), int64(len(r.data)))
	if end > r.at {
		r.line += bytes.Count(r.data[r.at:end], []byte{'\n'})
		r.at = end
	}
	return r.line
}

func (r *jsonReader) token() (json.Token, error) {
	t, err := r.dec.Token()
	if err == nil {
		return t, nil
	}
	return nil, jsonSyntax(r.data, r.lineNow())
}

// jsonCause are the parts of json's messages that quote nothing of the file.
var jsonCause = regexp.MustCompile(`(after object key:value pair|after object key|after array element|after top-level value|` +
	`in string escape code|in \\u hexadecimal character escape|in string literal|in literal (true|false|null)|in numeric literal|` +
	`after decimal point in numeric literal|in exponent of numeric literal|` +
	`looking for beginning of object key string|looking for beginning of value)( \(expecting '.'\))?$`)

// jsonSyntax says where and why data is no JSON, and quotes nothing of it. line counts if that cannot be told.
func jsonSyntax(data []byte, line int) error {
	var syntax *json.SyntaxError
	if !errors.As(json.Unmarshal(data, new(any)), &syntax) {
		return badSyntax(line, "not valid JSON: cannot be parsed")
	}
	end := min(max(syntax.Offset-1, 0), int64(len(data)))
	if syntax.Error() == "unexpected end of JSON input" {
		end = int64(len(bytes.TrimRight(data, " \t\r\n")))
	}
	line = 1 + bytes.Count(data[:end], []byte{'\n'})
	why := "cannot be parsed"
	if end >= int64(len(bytes.TrimRight(data, " \t\r\n"))) {
		why = "it ends too early"
	} else if m := jsonCause.FindStringSubmatch(syntax.Error()); m != nil {
		why = "unexpected character " + m[1]
	}
	return badSyntax(line, "not valid JSON: %s", why)
}

func (r *jsonReader) value(depth int) (*node, error) {
	t, err := r.token()
	if err != nil {
		return nil, err
	}
	n := &node{shape: scalar, line: r.lineNow()}
	if err := r.take(n.line, depth); err != nil {
		return nil, err
	}
	switch v := t.(type) {
	case nil:
		n.shape = null
	case string:
		n.text = v
	case bool:
		n.tag, n.text = tagBool, map[bool]string{true: "true", false: "false"}[v]
	case json.Number:
		n.text, n.tag = v.String(), tagFloat
		if wholeNumber.MatchString(n.text) {
			n.tag = tagInt
		}
	case json.Delim:
		if v == '{' {
			return n, r.object(n, depth)
		}
		return n, r.array(n, depth)
	}
	return n, nil
}

func (r *jsonReader) object(n *node, depth int) error {
	n.shape = mapping
	for r.dec.More() {
		k, err := r.token()
		if err != nil {
			return err
		}
		key, _ := k.(string)
		p := pair{key: key, line: r.lineNow()}
		if p.node, err = r.value(depth + 1); err != nil {
			return err
		}
		n.pairs = append(n.pairs, p)
	}
	_, err := r.token()
	return err
}

func (r *jsonReader) array(n *node, depth int) error {
	n.shape = sequence
	for r.dec.More() {
		item, err := r.value(depth + 1)
		if err != nil {
			return err
		}
		n.items = append(n.items, item)
	}
	_, err := r.token()
	return err
}
