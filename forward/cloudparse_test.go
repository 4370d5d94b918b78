package forward

import (
	"encoding/base64"
	"encoding/json"
	"testing"
	"unicode/utf8"
)

// An event is read from JSON as encoding/json reads it, and what is no event is not taken for one.
func FuzzParseEvent(f *testing.F) {
	const event = `{"specversion":"1.0","id":"a","source":"/shop","type":"order"`
	for _, seed := range []string{
		event + `}`, event + `,"data":{"a":[1,{"}":"\""}]},"x":true}`, event + `,"data_base64":"AP8=","datacontenttype":"a/b"}`,
		" {\t\"\\u0069d\" : \"\\ud83d\\ude00\" ,\"specversion\":\"1.0\",\"source\":\"/\",\"type\":\"\\\\\"}\n", event + `,"id":null}`, event + `,"id":1}`, event + `,"subject":true}`, event + `,"id":"b","":"","x":-1.5e9}`,
		event + `,"data":null,"data_base64":null}`, `{}`, `[]`, `{"specversion":1.0}`, event, event + `,"data":"text","datacontenttype":"text/plain"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e, ok := parseEvent(text)
		var got map[string]json.RawMessage
		object := json.Unmarshal(text, &got) == nil && got != nil && utf8.Valid(text)
		if want := object && isEvent(got); ok != want {
			t.Fatalf("an event: %v, want %v: %q", ok, want, text)
		}
		if !ok {
			return
		}
		checkParsed(t, &e, got)
		for name, value := range got {
			switch name {
			case "specversion", "datacontenttype", "data", "data_base64":
				continue
			}
			var s string
			if json.Unmarshal(value, &s) == nil && validAttribute(name, s) != e.has(name) && string(value) != "null" {
				t.Fatalf("%s %q: taken %v", name, value, e.has(name))
			}
		}
	})
}

// isEvent says by the members of an object whether it is an event.
func isEvent(object map[string]json.RawMessage) bool {
	for _, name := range []string{"specversion", "id", "source", "type"} {
		var s *string
		if json.Unmarshal(object[name], &s) != nil || s == nil || !validAttribute(name, *s) {
			return false
		}
	}
	encoded, has := object["data_base64"]
	if !has || string(encoded) == "null" {
		return true
	}
	var s string
	if json.Unmarshal(encoded, &s) != nil || object["data"] != nil {
		return false
	}
	_, err := base64.StdEncoding.DecodeString(s)
	return err == nil
}
