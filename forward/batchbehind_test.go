package forward

import (
	"strings"
	"testing"
)

// Results that stand behind something else, whatever that is, are never taken for an answer that accepts all.
func TestResultsBehindSomethingElse(t *testing.T) {
	ids := func() map[string][]int { return map[string][]int{"a": {0}, "b": {1}} }
	large := `{"pad":"` + strings.Repeat("x", readBytes) + `","results":[{"id":"a","action":"retry"}]}`
	for name, body := range map[string]string{
		"a text":                        `warn {"results":[{"id":"a"}]}`,
		"a text like a list":            `[warn] {"results":[{"id":"a"}]}`,
		"a number and a text":           `1: {"results":[{"id":"a"}]}`,
		"an object and a comma":         `{"ok":1},{"results":[{"id":"a"}]}`,
		"an object and a text":          `{"ok":1} done {"results":[{"id":"a"}]}`,
		"a record separator":            "\x1e{\"ok\":1}\n\x1e{\"results\":[{\"id\":\"b\"}]}\n",
		"an event":                      "data: {\"ok\":1}\n\ndata: {\"results\":[{\"id\":\"b\"}]}\n\n",
		"a list":                        `[]{"results":[{"id":"b"}]}`,
		"results of the app's own":      `{"results":[]}{"results":[{"id":"b"}]}`,
		"nothing, large":                large,
		"a prefix, large":               ")]}'\n" + large,
		"a value, large":                "null\n" + large,
		"an object, large":              `{"ok":1}` + "\n" + large,
		"results of its own, and large": `{"results":[]}` + "\n" + large,
	} {
		if _, doubt := results([]byte(body)[:min(len(body), readBytes)], ids, 2); doubt == "" {
			t.Errorf("behind %s they are not seen", name)
		}
	}
	for name, body := range map[string]string{
		"text with a brace":  strings.Repeat("a { b ", readBytes/6+1),
		"a list":             `[` + strings.Repeat(`{"a":1},`, readBytes/8+1),
		"results of its own": `{"results":[{"sum":1}],"pad":"` + strings.Repeat("x", readBytes),
	} {
		if _, doubt := results([]byte(body)[:readBytes], ids, 2); doubt != "" {
			t.Errorf("a large %s: %s", name, doubt)
		}
	}
}
