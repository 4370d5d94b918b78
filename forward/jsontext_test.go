package forward

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzJSONText holds that what is written is what encoding/json reads, byte for byte where it is UTF-8.
func FuzzJSONText(f *testing.F) {
	for _, s := range []string{"", "plain", `"quoted" \ and / more`, "\x00\x1f\x7f\n\r\t\b\f", "ümläut \u2028 \U0001f600", "\xff", "a\xc3", "abcdefg\xed\xa0\x80", strings.Repeat("x", 17) + `"`, "1234567\x1f", "12345678!"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, s []byte) {
		quoted, whole := appendJSON([]byte{'"'}, s)
		quoted = append(quoted, '"')
		if whole != utf8.Valid(s) {
			t.Fatalf("%q: utf-8 %v", s, whole)
		}
		var got string
		if err := json.Unmarshal(quoted, &got); err != nil {
			t.Fatalf("%q became %s: %v", s, quoted, err)
		}
		if whole && got != string(s) || !utf8.Valid(quoted) || strings.ContainsAny(string(quoted), "\n\r") {
			t.Fatalf("%q became %s", s, quoted)
		}
		if text := appendText(nil, string(s)); string(text) != string(quoted[1:len(quoted)-1]) {
			t.Fatalf("%q became %s and %s", s, quoted, text)
		}
	})
}
