package config

import (
	"strconv"
	"strings"
)

// longestName is the longest stream or durable name, in bytes.
const longestName = 255

// name checks the name of a stream or durable.
func (c *checker) name(path, name string) {
	if why := nameFault(name); why != "" {
		c.fault(path, "%s", why)
	}
}

// nameFault says why NATS would not take the name, or is empty.
func nameFault(name string) string {
	switch {
	case name == "":
		return "is missing"
	case len(name) > longestName:
		return "is longer than " + strconv.Itoa(longestName) + " bytes"
	case strings.ContainsAny(name, `.*>/\`) || strings.ContainsFunc(name, blank):
		return `holds a blank, a control character or one of . * > / \, which NATS does not allow in names`
	}
	return ""
}

func blank(r rune) bool {
	return r <= ' ' || r >= 0x7f && r <= 0xa0
}

// subjectFault says why the subject is not valid, or is empty. Wildcards are allowed as whole tokens.
func subjectFault(subject string) string {
	if subject == "" {
		return "is an empty subject"
	}
	tokens := strings.Split(subject, ".")
	for i, t := range tokens {
		switch {
		case t == "":
			return "has an empty token (two dots, or one at an end)"
		case strings.ContainsFunc(t, blank):
			return "holds a blank or control character"
		case t == ">" && i < len(tokens)-1:
			return "has > before its end"
		case len(t) > 1 && strings.ContainsAny(t, "*>"):
			return "has a wildcard inside a token; * and > stand alone, between dots"
		}
	}
	return ""
}

func validToken(s string) bool {
	return subjectFault(s) == "" && !strings.ContainsAny(s, ".*>")
}

// filters checks the filter subjects and that no two overlap, which the server refuses.
func (c *checker) filters(path string, filters []string) {
	for i, f := range filters {
		at := "[" + strconv.Itoa(i) + "]"
		if why := subjectFault(f); why != "" {
			c.item(path, at, quote(f), "%s", why)
			continue
		}
		for j, other := range filters[:i] {
			if subjectFault(other) == "" && overlap(f, other) {
				c.item(path, at, quote(f), "overlaps %s (entry %d); the server refuses overlapping filters", quote(other), j)
				break
			}
		}
	}
}

// overlap reports whether some subject matches both patterns.
func overlap(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := 0; ; i++ {
		switch {
		case i == len(as) || i == len(bs):
			return len(as) == len(bs)
		case as[i] == ">" || bs[i] == ">":
			return true
		case as[i] != bs[i] && as[i] != "*" && bs[i] != "*":
			return false
		}
	}
}
