package config

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// bareWord is text that YAML takes for text without quotes, in a list too.
var (
	bareWord = regexp.MustCompile(`^[A-Za-z/_]([A-Za-z0-9_./:+-]*[A-Za-z0-9_/])?$`)
	notWords = regexp.MustCompile(`^(?i:true|false|yes|no|on|off|null|y|n)$`)
)

// yamlText writes text as a YAML scalar.
func yamlText(s string) string {
	if bareWord.MatchString(s) && !notWords.MatchString(s) {
		return s
	}
	return quote(s)
}

// quote writes text in double quotes with escapes that YAML, JSON and Go read alike, except for \x and \U.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case unicode.IsPrint(r) && r != unicode.ReplacementChar:
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
