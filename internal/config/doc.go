package config

import (
	"slices"
	"strings"
)

// doc is what a user reads about a key: its field's doc comment, begun by the key instead of the field's name.
func (f field) doc() string {
	if f.whole != "" {
		return "What " + f.whole + " is as a number."
	}
	text := docs[f.name]
	name := f.name[strings.LastIndexByte(f.name, '.')+1:]
	if rest, ok := strings.CutPrefix(text, name+" "); ok {
		text = f.key + " " + rest
	}
	for _, verb := range []string{" is ", " are "} {
		if rest, ok := strings.CutPrefix(text, f.key+verb); ok {
			text = rest
			break
		}
	}
	first, _, _ := strings.Cut(text, " ")
	if strings.Contains(first, "_") || slices.Contains(f.enum, strings.Trim(first, ",")) {
		return text
	}
	return capitalize(text)
}

func capitalize(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
