package config

import (
	"fmt"
	"strconv"
)

// node is a piece of a parsed file, or the text of an environment variable, with where it stands.
type node struct {
	shape shape
	tag   tag    // of a scalar
	text  string // of a scalar, as written
	line  int    // from 1; 0 if unknown
	items []*node
	pairs []pair
}

type pair struct {
	key  string
	line int
	node *node
}

type shape int

const (
	null shape = iota
	scalar
	sequence
	mapping
)

// tag is what kind of scalar the file's language takes the text for.
type tag int

const (
	tagText    tag = iota
	tagInt         // a whole number
	tagFloat       // a number
	tagBool        // true or false
	tagTime        // an unquoted time
	tagUnknown     // an explicit tag of some other language
	tagEnv         // an environment variable: text that may stand for anything
)

// maxDepth and maxNodes bound what a file may expand to (YAML aliases multiply).
const (
	maxDepth = 32
	maxNodes = 100_000
)

// noun says what the node is, for messages.
func (n *node) noun() string {
	switch n.shape {
	case null:
		return "nothing"
	case sequence:
		return "a list"
	case mapping:
		return "a map"
	}
	switch n.tag {
	case tagInt, tagFloat:
		return "a number"
	case tagBool:
		return "true or false"
	case tagTime:
		return "a time"
	}
	return "text"
}

// syntaxError is a file that is not of its language. Its text is ours and quotes nothing of the file.
type syntaxError struct {
	line int
	why  string
}

func (e *syntaxError) Error() string {
	if e.line > 0 {
		return "line " + strconv.Itoa(e.line) + ": " + e.why
	}
	return e.why
}

func badSyntax(line int, format string, args ...any) error {
	return &syntaxError{line: line, why: fmt.Sprintf(format, args...)}
}

// budget counts nodes and depth while a file is turned into nodes.
type budget struct {
	nodes int
}

func (b *budget) take(line, depth int) error {
	b.nodes++
	if depth > maxDepth {
		return badSyntax(line, "nested more than %d deep", maxDepth)
	}
	if b.nodes > maxNodes {
		return badSyntax(line, "more than %d values", maxNodes)
	}
	return nil
}
