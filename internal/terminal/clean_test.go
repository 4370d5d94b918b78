package terminal

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain é 漢 \"'":     "plain é 漢 \"'",
		"\x1b[31mred":       `\x1b[31mred`,
		"a\nb\tc\rd":        `a\nb\tc\rd`,
		"\u202egnp.exe":     `\u202egnp.exe`,
		"\u009b31m":         `\u009b31m`,
		"bad \xff\xc3 utf8": `bad \xff\xc3 utf8`,
		"zero\u200bwidth":   `zero\u200bwidth`,
		"\u2028 \ufeff":     `\u2028 \ufeff`,
	} {
		if got := Clean(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := CleanLines("a\n\tb\x1b[2J\r"); got != "a\n\tb\\x1b[2J\\r" {
		t.Errorf("%q", got)
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want string
	}{{"abcdef", 6, "abcdef"}, {"abcdef", 5, "ab..."}, {"abcdef", 2, "ab"}, {"abcdef", -1, ""}, {"äöüß", 4, "äöüß"}} {
		if got := Cut(c.text, c.n); got != c.want {
			t.Errorf("%q to %d: %q, want %q", c.text, c.n, got, c.want)
		}
	}
}

// No text has anything left that acts on a terminal, and JSON means the same afterwards.
func FuzzClean(f *testing.F) {
	for _, s := range []string{"", "a\x1b[0m", "\u202e", "\xff\xfe", "\U000e0041", "{\"a\":\"\u2066\"}", "\x7f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range Clean(s) + strings.NewReplacer("\n", "", "\t", "").Replace(CleanLines(s)) {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q leaves %q", s, r)
			}
		}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		cleaned := CleanJSON(text)
		var was, is any
		if json.Unmarshal(text, &was) != nil || json.Unmarshal(cleaned, &is) != nil || !reflect.DeepEqual(was, is) {
			t.Fatalf("%q became %q", text, cleaned)
		}
		for _, r := range string(cleaned) {
			if !unicode.IsPrint(r) || r == utf8.RuneError && !strings.ContainsRune(string(text), r) {
				t.Fatalf("%q leaves %q", s, r)
			}
		}
	})
}
