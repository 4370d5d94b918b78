package forward

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestAppendCloudEvent(t *testing.T) {
	const head = `{"specversion":"1.0","id":"ORDERS:42:1772366400123456789","source":"/nats/streams/ORDERS","type":"io.nats.jetstream.message",` +
		`"subject":"orders.new","time":"2026-03-01T12:00:00.123456789Z"`
	const own = `{"specversion":"1.0","id":"a","source":"/shop","type":"com.shop.order"`
	header := func(pairs ...string) map[string][]string {
		h := map[string][]string{}
		for i := 0; i < len(pairs); i += 2 {
			h[pairs[i]] = append(h[pairs[i]], pairs[i+1])
		}
		return h
	}
	ours := func(pairs ...string) map[string][]string {
		return header(append([]string{"ce-specversion", "1.0", "ce-id", "a", "ce-source", "/shop", "ce-type", "com.shop.order"}, pairs...)...)
	}
	structured := func(body string) (map[string][]string, string) {
		return header("Content-Type", "Application/CloudEvents+JSON; charset=UTF-8"), body
	}
	type sample struct {
		header  map[string][]string
		body    string
		want    string
		dropped int
	}
	kept := func(body, want string) sample { h, b := structured(body); return sample{h, b, want, 0} }
	for name, c := range map[string]sample{
		"object":                {nil, ` {"n": 1} `, head + `,"datacontenttype":"application/json","data":{"n": 1}}`, 0},
		"array":                 {nil, `[1]`, head + `,"datacontenttype":"application/json","data":[1]}`, 0},
		"number without type":   {nil, `17`, head + `,"datacontenttype":"text/plain","data":"17"}`, 0},
		"text without type":     {nil, "a \"b\"\\\n\r\té\u2028", head + `,"datacontenttype":"text/plain","data":"a \"b\"\\\n\r\té` + "\u2028" + `"}`, 0},
		"bytes without type":    {nil, "\x00\xff", head + `,"datacontenttype":"application/octet-stream","data_base64":"AP8="}`, 0},
		"control without type":  {nil, "a\x01", head + `,"datacontenttype":"application/octet-stream","data_base64":"YQE="}`, 0},
		"empty":                 {nil, "", head + `}`, 0},
		"empty with type":       {header("Content-Type", "application/json"), "", head + `,"datacontenttype":"application/json"}`, 0},
		"JSON":                  {header("content-type", "application/json; charset=utf-8"), `17`, head + `,"datacontenttype":"application/json; charset=utf-8","data":17}`, 0},
		"JSON null":             {header("Content-Type", "application/json"), `null`, head + `,"datacontenttype":"application/json","data":null}`, 0},
		"JSON by suffix":        {header("Content-Type", "application/vnd.x+json"), `"x"`, head + `,"datacontenttype":"application/vnd.x+json","data":"x"}`, 0},
		"broken JSON":           {header("Content-Type", "application/json"), `{"a"`, head + `,"datacontenttype":"application/json","data_base64":"eyJhIg=="}`, 0},
		"JSON that is no UTF-8": {header("Content-Type", "application/json"), "\"\xff\"", head + `,"datacontenttype":"application/json","data_base64":"Iv8i"}`, 0},
		"text":                  {header("Content-Type", "text/csv"), "a,\x02b", head + `,"datacontenttype":"text/csv","data":"a,\u0002b"}`, 0},
		"text that is no UTF-8": {header("Content-Type", "text/csv"), "\xff", head + `,"datacontenttype":"text/csv","data_base64":"/w=="}`, 0},
		"text in Latin 1":       {header("Content-Type", `text/plain; charset="ISO-8859-1"`), "a", head + `,"datacontenttype":"text/plain; charset=\"ISO-8859-1\"","data_base64":"YQ=="}`, 0},
		"XML":                   {header("Content-Type", "image/svg+xml"), "<a/>", head + `,"datacontenttype":"image/svg+xml","data":"<a/>"}`, 0},
		"other type":            {header("Content-Type", "application/protobuf"), "a", head + `,"datacontenttype":"application/protobuf","data_base64":"YQ=="}`, 0},
		"type that is none":     {header("Content-Type", "json"), "[]", head + `,"datacontenttype":"application/json","data":[]}`, 1},
		"type with a control":   {header("Content-Type", "a\nb"), "[]", head + `,"datacontenttype":"application/json","data":[]}`, 0},
		"id":                    {header("Nats-Msg-Id", "é 1"), "", strings.Replace(head, "ORDERS:42:1772366400123456789", "é 1", 1) + `}`, 0},
		"id that is no text":    {header("Nats-Msg-Id", "\xff"), "", head + `}`, 0},

		"own event": {ours("ce-time", "2020-01-02T03:04:05+01:00", "ce-comment", "caf%C3%A9 %22x%22 100%", "Ce-Quoted", `"a \"b\" %20"`, "content-type", "text/plain"), "x",
			own + `,"time":"2020-01-02T03:04:05+01:00","quoted":"a \"b\"  ","comment":"café \"x\" 100%","datacontenttype":"text/plain","data":"x"}`, 0},
		"own type of data":      {ours("ce-datacontenttype", "application/json", "Content-Type", "text/plain"), "1", own + `,"datacontenttype":"application/json","data":1}`, 0},
		"hostile attributes":    {ours("ce-my-name", "1", "ce-data", "2", "ce-", "3", "CE-é", "4", "ce-a", "b\x01", "ce-b", "\xff", "ce-c", "%C0%A0", "ce-time", "now", "ce-dataschema", "%zz:", "ce-d", "%0A", "ce-id", "other"), "", own + `}`, 11},
		"empty attributes":      {ours("ce-subject", " ", "ce-x", ""), "", own + `}`, 0},
		"own type alone":        {header("CE-Type", "com.shop.order"), "", strings.Replace(head, eventType, "com.shop.order", 1) + `}`, 0},
		"version of another":    {ours("CE-SPECVERSION", "0.3"), "", own + `}`, 1},
		"event of another form": {header("Content-Type", "application/cloudevents+avro"), "a", head + `,"datacontenttype":"application/cloudevents+avro","data_base64":"YQ=="}`, 0},

		"structured":             kept(" "+own+`,"x":{"no":1},"data":1.50} `+"\n", own+`,"x":{"no":1},"data":1.50}`),
		"structured with base64": kept(own+`,"data_base64":"AP8="}`, own+`,"data_base64":"AP8="}`),
		"escaped names":          kept(`{"specversion":"1.0","\u0069d":"a","source":"/","type":"t","nested":{"}":["]","\\\""]}}`, `{"specversion":"1.0","\u0069d":"a","source":"/","type":"t","nested":{"}":["]","\\\""]}}`),
		"structured, no id":      kept(`{"specversion":"1.0","source":"/","type":"t"}`, head+`,"datacontenttype":"application/json","data":{"specversion":"1.0","source":"/","type":"t"}}`),
		"structured, null id":    kept(`{"specversion":"1.0","id":"a","id":null,"source":"/","type":"t"}`, head+`,"datacontenttype":"application/json","data":{"specversion":"1.0","id":"a","id":null,"source":"/","type":"t"}}`),
		"structured, id no text": kept(`{"specversion":"1.0","id":1,"source":"/","type":"t"}`, head+`,"datacontenttype":"application/json","data":{"specversion":"1.0","id":1,"source":"/","type":"t"}}`),
		"structured, 0.3":        kept(`{"specversion":"0.3","id":"a","source":"/","type":"t"}`, head+`,"datacontenttype":"application/json","data":{"specversion":"0.3","id":"a","source":"/","type":"t"}}`),
		"structured, both data":  kept(own+`,"data":null,"data_base64":""}`, head+`,"datacontenttype":"application/json","data":`+own+`,"data":null,"data_base64":""}}`),
		"structured, bad base64": kept(own+`,"data_base64":"?"}`, head+`,"datacontenttype":"application/json","data":`+own+`,"data_base64":"?"}}`),
		"structured, no base64":  kept(own+`,"data_base64":1}`, head+`,"datacontenttype":"application/json","data":`+own+`,"data_base64":1}}`),
		"structured, a list":     kept(`[]`, head+`,"datacontenttype":"application/json","data":[]}`),
		"structured, no JSON":    kept(own, head+`,"datacontenttype":"text/plain","data":`+string(appendString(nil, own))+`}`),
		"structured, empty":      kept(``, head+`}`),
	} {
		t.Run(name, func(t *testing.T) {
			m := message(c.body)
			m.Header = c.header
			got, dropped := AppendCloudEvent([]byte("["), m)
			if string(got) != "["+c.want || dropped != c.dropped {
				t.Errorf("%d left out:\n%s\nwant %d:\n[%s", dropped, got, c.dropped, c.want)
			}
		})
	}
}

// Every message is an event that a parser reads, and its data is the body.
func FuzzAppendCloudEvent(f *testing.F) {
	f.Add("Content-Type", "application/json", "ce-id", "a%20b", "orders", "ORDERS", []byte(`{"a":[1,"\ud800"]}`))
	f.Add("content-type", "application/cloudevents+json", "Ce-Type", "\"x\\\"", "a.b", "S", []byte(`{"specversion":"1.0","id":"1","source":"/","type":"t","data":{"a":"}"},"e":true}`))
	f.Add("Content-Type", "text/plain; charset=utf-8", "ce-time", "2020-01-01T00:00:00Z", "\xff", "\xff", []byte("a\x00\"\\\u2028"))
	f.Add("ce-datacontenttype", "application/json", "ce-source", ":", "s", "a/b", []byte("\xff\xfe"))
	f.Add("Content-Type", "application/cloudevents", "Nats-Msg-Id", "\x7f", "s", "S", []byte(`{"specversion":"1.0","id":"1","source":"/","type":"t","datacontenttype":"text/x","data_base64":"AP8="}`))
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2, subject, stream string, body []byte) {
		m := message("")
		m.Subject, m.Stream, m.Body = subject, stream, body
		m.Header = map[string][]string{name1: {value1}}
		m.Header[name2] = append(m.Header[name2], value2)
		text, dropped := AppendCloudEvent(nil, m)
		var got map[string]json.RawMessage
		if err := json.Unmarshal(text, &got); err != nil || !utf8.Valid(text) {
			t.Fatalf("%v in %q", err, text)
		}
		if dropped < 0 || dropped > 4 {
			t.Fatalf("%d left out", dropped)
		}
		for _, name := range []string{"specversion", "id", "source", "type"} {
			if stringOf(t, got[name]) == "" {
				t.Fatalf("no %s in %q", name, text)
			}
		}
		e := eventOf(m)
		if e.structured != nil {
			if !bytes.Equal(text, trimJSON(body)) {
				t.Fatalf("%q became %q", body, text)
			}
			checkParsed(t, &e, got)
			return
		}
		checkData(t, got, body)
		for name, value := range got {
			if name == "data" || name == "data_base64" {
				continue
			}
			if s := stringOf(t, value); !validAttribute(name, s) {
				t.Fatalf("%s is %q in %q", name, s, text)
			}
		}
		again, ok := parseEvent(text)
		if !ok || len(again.attributes) != len(e.attributes) {
			t.Fatalf("is read back as %v from %q", again.attributes, text)
		}
		for i, a := range again.attributes {
			if a != e.attributes[i] {
				t.Fatalf("%v, want %v", a, e.attributes[i])
			}
		}
	})
}

func stringOf(t *testing.T, value json.RawMessage) string {
	t.Helper()
	var s string
	if err := json.Unmarshal(value, &s); err != nil {
		t.Fatalf("%v: %q", err, value)
	}
	return s
}

// checkData holds that the data of an event is the body it was made of.
func checkData(t *testing.T, got map[string]json.RawMessage, body []byte) {
	t.Helper()
	data, text := got["data"]
	encoded, binary := got["data_base64"]
	switch {
	case text && binary || (text || binary) != (len(body) > 0):
		t.Fatalf("data %q and data_base64 %q of %q", data, encoded, body)
	case binary:
		if decoded, err := base64.StdEncoding.DecodeString(stringOf(t, encoded)); err != nil || !bytes.Equal(decoded, body) {
			t.Fatalf("%v: %q became %q", err, body, encoded)
		}
	case text && isJSONType(mediaType(stringOf(t, got["datacontenttype"]))):
		if !bytes.Equal(data, trimJSON(body)) {
			t.Fatalf("%q became %q", body, data)
		}
	case text && stringOf(t, data) != string(body):
		t.Fatalf("%q became %q", body, data)
	}
}

// checkParsed holds that an event was read from the JSON format as encoding/json reads it.
func checkParsed(t *testing.T, e *event, got map[string]json.RawMessage) {
	t.Helper()
	for _, a := range e.attributes {
		want := string(got[a.name])
		if want[0] == '"' {
			want = stringOf(t, got[a.name])
		}
		if a.value != want || !validAttribute(a.name, a.value) {
			t.Fatalf("%s is %q, want %q", a.name, a.value, want)
		}
	}
	if encoded := got["data_base64"]; encoded != nil && string(encoded) != "null" {
		if want, err := base64.StdEncoding.DecodeString(stringOf(t, encoded)); err != nil || !bytes.Equal(want, e.data) {
			t.Fatalf("data %q, want %q", e.data, want)
		}
	} else if data := got["data"]; len(data) > 0 && (data[0] != '"' || isJSONType(mediaType(e.dataType))) && !bytes.Equal(e.data, data) {
		t.Fatalf("data %q, want %q", e.data, data)
	}
}

func TestValidTime(t *testing.T) {
	for value, want := range map[string]bool{
		time.Now().Format(time.RFC3339Nano): true, "2020-01-01T00:00:00Z": true, "2020-01-01T1:00:00Z": false, "2020-01-01T00:00:00,5Z": false,
		"2020-01-01 00:00:00Z": false, "2020-02-30T00:00:00Z": false, "2020-01-01T00:00:00": false,
	} {
		if validAttribute("time", value) != want {
			t.Errorf("%s: %v", value, !want)
		}
	}
}
