package config

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// parseTOML turns a TOML document into nodes.
func parseTOML(data []byte) (*node, error) {
	var top map[string]any
	if err := toml.Unmarshal(data, &top); err != nil {
		return nil, tomlSyntax(err)
	}
	r := tomlReader{lines: tomlLines(data)}
	return r.node(top, "", 0)
}

// tomlSyntax keeps the line and the kind of an error and drops what it quotes of the file.
func tomlSyntax(err error) error {
	line, why := 0, "cannot be parsed"
	if decode := (*toml.DecodeError)(nil); errors.As(err, &decode) {
		line, _ = decode.Position()
	}
	if m := tomlCause.FindString(err.Error()); m != "" {
		why = m
	}
	if strings.Contains(err.Error(), "at start of value") {
		why = "unexpected character at the start of a value (text must be in quotes)"
	}
	if strings.Contains(err.Error(), "already") {
		why = "a key is given twice"
	}
	return badSyntax(line, "not valid TOML: %s", why)
}

// tomlCause are the beginnings of go-toml's messages that quote nothing of the file.
var tomlCause = regexp.MustCompile(`strings must be quoted|expected ('=' after key|'\]\]?' to close (array table|table) name|',' or '[\]}]' after ` +
	`(array value|inline table key-value)|newline|key but reached end of input|value, not end of input|value)|` +
	`unexpected comma in inline table|unexpected character|invalid character at start of key|invalid escape character|` +
	`(basic|literal) strings cannot have (new lines|control characters)|unterminated (basic|literal) string|` +
	`(array|inline table) is incomplete|integers cannot have leading zeroes|number must have at least one digit between underscores|` +
	`multiline literal string not terminated|impossible date`)

type tomlReader struct {
	budget
	lines map[string]int
}

func (r *tomlReader) node(v any, path string, depth int) (*node, error) {
	n := &node{shape: scalar, line: r.lines[path]}
	if err := r.take(n.line, depth); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case map[string]any:
		n.shape = mapping
		for key, sub := range v {
			p := tomlPath(path, key)
			item, err := r.node(sub, p, depth+1)
			if err != nil {
				return nil, err
			}
			n.pairs = append(n.pairs, pair{key: key, line: r.lines[p], node: item})
		}
		slices.SortFunc(n.pairs, func(a, b pair) int {
			if a.line != b.line {
				return a.line - b.line
			}
			return strings.Compare(a.key, b.key)
		})
	case []any:
		n.shape = sequence
		for i, sub := range v {
			item, err := r.node(sub, tomlPath(path, strconv.Itoa(i)), depth+1)
			if err != nil {
				return nil, err
			}
			if item.line == 0 {
				item.line = n.line
			}
			n.items = append(n.items, item)
		}
	case string:
		n.text = v
	case int64:
		n.tag, n.text = tagInt, strconv.FormatInt(v, 10)
	case float64:
		n.tag, n.text = tagFloat, strconv.FormatFloat(v, 'f', -1, 64)
	case bool:
		n.tag, n.text = tagBool, strconv.FormatBool(v)
	case time.Time:
		n.tag, n.text = tagTime, v.Format(time.RFC3339Nano)
	default: // local dates and times
		n.tag, n.text = tagTime, fmt.Sprint(v)
	}
	return n, nil
}

// tomlPath joins key paths by a byte that TOML keys can hardly contain.
func tomlPath(path, key string) string {
	return path + delim + key
}

// tomlLines finds the line of every key path of a document that is known to be valid.
func tomlLines(data []byte) map[string]int {
	w := tomlWalk{data: data, lines: make(map[string]int), tables: make(map[string]int), line: 1}
	w.parser.Reset(data)
	for w.parser.NextExpression() {
		switch e := w.parser.Expression(); e.Kind {
		case unstable.Table:
			w.prefix = w.keys("", e)
		case unstable.ArrayTable:
			p := w.keys("", e)
			w.prefix = tomlPath(p, strconv.Itoa(w.tables[p]))
			w.lines[w.prefix] = w.line
			w.tables[p]++
		case unstable.KeyValue:
			w.keyValue(w.prefix, e)
		}
	}
	return w.lines
}

type tomlWalk struct {
	data   []byte
	parser unstable.Parser
	lines  map[string]int
	tables map[string]int // array tables met so far, by path
	prefix string
	at     uint32
	line   int
}

// keys returns the path of a node's key below prefix and notes its lines. Inside an array of tables the path goes
// on in its last table.
func (w *tomlWalk) keys(prefix string, e *unstable.Node) string {
	it := e.Key()
	for it.Next() {
		if n, ok := w.tables[prefix]; ok && n > 0 {
			prefix = tomlPath(prefix, strconv.Itoa(n-1))
		}
		k := it.Node()
		prefix = tomlPath(prefix, string(k.Data))
		w.mark(prefix, k.Raw.Offset)
	}
	return prefix
}

func (w *tomlWalk) mark(path string, offset uint32) {
	if offset > w.at && int(offset) <= len(w.data) {
		w.line += bytes.Count(w.data[w.at:offset], []byte{'\n'})
		w.at = offset
	}
	if _, ok := w.lines[path]; !ok {
		w.lines[path] = w.line
	}
}

func (w *tomlWalk) keyValue(prefix string, e *unstable.Node) {
	w.value(w.keys(prefix, e), e.Value())
}

func (w *tomlWalk) value(path string, v *unstable.Node) {
	switch v.Kind {
	case unstable.InlineTable:
		it := v.Children()
		for it.Next() {
			w.keyValue(path, it.Node())
		}
	case unstable.Array:
		it := v.Children()
		for i := 0; it.Next(); i++ {
			w.value(tomlPath(path, strconv.Itoa(i)), it.Node())
		}
	}
}
