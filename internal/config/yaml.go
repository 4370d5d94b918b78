package config

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// parseYAML turns one YAML document into nodes. An empty file is null.
func parseYAML(data []byte) (*node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return &node{shape: null}, nil
	}
	if err != nil {
		return nil, yamlSyntax(err, data)
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		if err != nil {
			return nil, yamlSyntax(err, data)
		}
		return nil, badSyntax(more.Line, "a second document begins here; only one is read")
	}
	if len(doc.Content) == 0 {
		return &node{shape: null}, nil
	}
	return new(budget).fromYAML(doc.Content[0], 0)
}

// yamlSyntax keeps the line and the kind of an error and drops what it quotes of the file.
func yamlSyntax(err error, data []byte) error {
	line := 0
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		line, _ = strconv.Atoi(m[1])
	}
	if better := yamlErrorLine(data); better > 0 {
		line = better
	}
	switch s := err.Error(); {
	case yamlAnchor.MatchString(s):
		return badSyntax(line, "not valid YAML: unknown alias (a value that begins with * must be in quotes)")
	default:
		why := yamlPrefix.ReplaceAllString(s, "")
		if !yamlKnown.MatchString(why) {
			why = "cannot be parsed"
		}
		if yamlUnquoted.MatchString(why) {
			why += "; put a value that begins with { or contains ': ' in quotes"
		}
		return badSyntax(line, "not valid YAML: %s", why)
	}
}

var (
	yamlLine   = regexp.MustCompile(`line (\d+)`)
	yamlAnchor = regexp.MustCompile(`unknown anchor`)
	yamlPrefix = regexp.MustCompile(`^yaml: (line \d+: )?`)
	// yamlKnown are the messages that quote nothing of the file.
	yamlKnown = regexp.MustCompile(`^(did not find|could not find|found |mapping values|block |control char|invalid |incomplete |while |unexpected )[a-zA-Z0-9 ,.:'%#\-/()\[\]{}]*$`)
)

// yamlUnquoted are the messages that text without quotes is most often the cause of.
var yamlUnquoted = regexp.MustCompile(`^(did not find expected (key|',' or '}')|mapping values are not allowed)`)

// What finding the line of an error may cost.
const (
	mostTries   = 500     // parses
	mostScanned = 1 << 16 // bytes of a file
)

// yamlErrorLine finds the line that makes data no YAML: the first one with which, and with any more, it cannot be
// parsed. The parser itself mostly names where the map around it begins. 0 if it was not found.
func yamlErrorLine(data []byte) int {
	if len(data) > mostScanned {
		return 0
	}
	lines := bytes.SplitAfter(data, []byte{'\n'})
	end := len(data)
	for i := len(lines) - 1; i >= 0 && len(lines)-i <= mostTries; i-- {
		end -= len(lines[i])
		if yamlParses(data[:end]) {
			return i + 1
		}
	}
	return 0
}

func yamlParses(data []byte) bool {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		err := dec.Decode(new(yaml.Node))
		if err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

func (b *budget) fromYAML(y *yaml.Node, depth int) (*node, error) {
	if err := b.take(y.Line, depth); err != nil {
		return nil, err
	}
	n := &node{line: y.Line}
	switch y.Kind {
	case yaml.AliasNode:
		return b.fromYAML(y.Alias, depth+1)
	case yaml.SequenceNode:
		n.shape = sequence
		for _, item := range y.Content {
			sub, err := b.fromYAML(item, depth+1)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, sub)
		}
		return n, nil
	case yaml.MappingNode:
		return n, b.mapFromYAML(n, y, depth)
	}
	n.shape, n.text, n.tag = scalar, y.Value, tagUnknown
	switch y.ShortTag() {
	case "!!null":
		n.shape = null
	case "!!str":
		n.tag = tagText
	case "!!int":
		n.tag = tagInt
	case "!!float":
		n.tag = tagFloat
	case "!!bool":
		n.tag = tagBool
	case "!!timestamp":
		n.tag = tagTime
	}
	return n, nil
}

func (b *budget) mapFromYAML(n *node, y *yaml.Node, depth int) error {
	n.shape = mapping
	var merged []pair
	for i := 0; i+1 < len(y.Content); i += 2 {
		k, v := y.Content[i], y.Content[i+1]
		if k.Kind == yaml.AliasNode {
			k = k.Alias
		}
		if k.Kind != yaml.ScalarNode {
			return badSyntax(k.Line, "a key is not a plain word")
		}
		sub, err := b.fromYAML(v, depth+1)
		if err != nil {
			return err
		}
		if k.ShortTag() == "!!merge" {
			more, err := mergedPairs(sub)
			if err != nil {
				return err
			}
			merged = append(merged, more...)
			continue
		}
		n.pairs = append(n.pairs, pair{key: k.Value, line: k.Line, node: sub})
	}
	n.inherit(merged)
	return nil
}

// mergedPairs are the pairs that a merge key (<<) brings in.
func mergedPairs(n *node) ([]pair, error) {
	switch n.shape {
	case mapping:
		return n.pairs, nil
	case sequence:
		var all []pair
		for _, item := range n.items {
			if item.shape != mapping {
				return nil, badSyntax(item.line, "<< takes maps only")
			}
			all = append(all, item.pairs...)
		}
		return all, nil
	}
	return nil, badSyntax(n.line, "<< takes maps only")
}

// inherit adds merged pairs whose key is not there yet; the first of several wins, as YAML says.
func (n *node) inherit(merged []pair) {
	if len(merged) == 0 {
		return
	}
	have := make(map[string]bool, len(n.pairs))
	for _, p := range n.pairs {
		have[p.key] = true
	}
	for _, p := range merged {
		if !have[p.key] {
			have[p.key] = true
			n.pairs = append(n.pairs, p)
		}
	}
}
