package forward

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/jetsidecar/jetsidecar/policy"
)

// dressed is the request of a message in a format, as both transports send it.
func dressed(t testing.TB, c *Client, f Format, m *Message) (*http.Request, *Message, int) {
	t.Helper()
	as, left := f.dress(m)
	req, _, dropped := wire(t, c, as)
	return req, as, left + dropped
}

// attributesOf are the headers of a request that are attributes, and its content type.
func attributesOf(req *http.Request) map[string]string {
	got := map[string]string{}
	for name, values := range req.Header {
		if isEventHeader(name) || name == "Content-Type" {
			got[strings.ToLower(name)] = strings.Join(values, "|")
		}
	}
	return got
}

func TestCloudEvents(t *testing.T) {
	c := newClient(t, nil)
	ours := "ce-specversion=1.0 ce-id=ORDERS:42:1772366400123456789 ce-source=/nats/streams/ORDERS ce-type=io.nats.jetstream.message " +
		"ce-subject=orders.new ce-time=2026-03-01T12:00:00.123456789Z "
	const own = "ce-specversion=1.0 ce-id=a ce-source=/shop ce-type=order "
	const octets = "content-type=application/octet-stream"
	const event = `{"specversion":"1.0","id":"a","source":"/shop","type":"order"`
	own4 := []string{"ce-specversion", "1.0", "ce-id", "a", "ce-source", "/shop", "ce-type", "order"}
	structured := []string{"content-type", "application/cloudevents+json"}
	for name, tc := range map[string]struct {
		header  []string // names and values
		body    string
		want    string // the attributes and the content type
		data    string
		dropped int
	}{
		"a message":            {nil, `{"a": 1}`, ours + octets, `{"a": 1}`, 0},
		"its type":             {[]string{"content-type", "text/plain"}, "x", ours + "content-type=text/plain", "x", 0},
		"its id":               {[]string{"Nats-Msg-Id", `Euro € 😀 100%"`}, "", strings.Replace(ours, "ORDERS:42:1772366400123456789", "Euro%20%E2%82%AC%20%F0%9F%98%80%20100%25%22", 1) + octets, "", 0},
		"an event":             {append(own4, "Content-Type", "application/json", "ce-comment", "a%20b", "CE-Flag", "true"), "1", own + "ce-comment=a%20b ce-flag=true content-type=application/json", "1", 0},
		"an event's own type":  {append(own4, "ce-datacontenttype", "text/csv", "Content-Type", "application/json"), "1", own + "content-type=text/csv", "1", 0},
		"values not encoded":   {append(own4, "ce-comment", `50% "é"`), "", own + "ce-comment=50%25%20%22%C3%A9%22 " + octets, "", 0},
		"invalid names":        {append(own4, "ce-my-name", "1", "ce-my_name", "1", "ce-data", "1", "ce-", "1", "ce-é", "1", "ce-\x00", "1"), "", own + octets, "", 6},
		"invalid values":       {append(own4, "ce-a", "b\r\nhost: evil", "ce-b", "\xff", "ce-c", "%0d%0ahost: evil", "ce-id", "b", "ce-time", "noon"), "", own + octets, "", 5},
		"only a type":          {[]string{"ce-type", "order"}, "", strings.Replace(ours, eventType, "order", 1) + octets, "", 0},
		"not to be taken away": {append(own4, "Connection", "ce-id, Ce-Source, ce-type, content-type, X-Hop", "X-Hop", "1", "content-type", "a/b"), "", own + "content-type=a/b", "", 0},

		"structured":                 {structured, event + `,"x":-5,"y":true,"z":"é","no":null,"datacontenttype":"application/xml","data":"<a\n/>"}`, own + "ce-x=-5 ce-y=true ce-z=%C3%A9 content-type=application/xml", "<a\n/>", 0},
		"structured, JSON":           {structured, event + `,"data": {"a": "}"} }`, own + "content-type=application/json", `{"a": "}"}`, 0},
		"structured, JSON string":    {structured, event + `,"datacontenttype":"application/json","data":"x"}`, own + "content-type=application/json", `"x"`, 0},
		"structured, null":           {structured, event + `,"data":null}`, own + "content-type=application/json", `null`, 0},
		"structured, base64":         {structured, event + `,"datacontenttype":"image/png","data_base64":"AP8="}`, own + "content-type=image/png", "\x00\xff", 0},
		"structured, no data":        {structured, event + `}`, own + octets, "", 0},
		"structured, text that is 1": {structured, event + `,"datacontenttype":"text/plain","data":1}`, own + "content-type=text/plain", "1", 0},
		"structured, odd attributes": {structured, event + `,"x":{},"y":1.5,"my-name":"1","time":"noon","subject":"","data":1}`, own + "content-type=application/json", "1", 5},
		"structured, said twice":     {structured, event + `,"id":"b","x":1,"x":{},"datacontenttype":"a/b","datacontenttype":null,"data":1,"data":2}`, "ce-specversion=1.0 ce-id=b ce-source=/shop ce-type=order content-type=application/json", "2", 1},
		"structured by NATS binding": {[]string{"Content-Type", "application/cloudevents"}, event + `}`, own + octets, "", 0},
		"event in an event":          {structured, event + `,"datacontenttype":"application/cloudevents+json","data":` + event + `}}`, own + octets, event + "}", 1},
		"broken":                     {structured, event, ours + octets, event, 0},
		"broken, with attributes":    {append(own4, structured...), event, own + octets, event, 0},
		"another event format":       {[]string{"Content-Type", "application/cloudevents+avro", "ce-x", "y"}, "x", "ce-x=y content-type=application/cloudevents+avro", "x", 0},
		"a batch":                    {[]string{"Content-Type", "application/cloudevents-batch+json"}, "[]", "content-type=application/cloudevents-batch+json", "[]", 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := message(tc.body)
			m.Header = map[string][]string{"X-Other": {"kept"}}
			for i := 0; i < len(tc.header); i += 2 {
				m.Header[tc.header[i]] = append(m.Header[tc.header[i]], tc.header[i+1])
			}
			req, as, dropped := dressed(t, c, CloudEvents, m)
			want := map[string]string{}
			for field := range strings.FieldsSeq(tc.want) {
				name, value, _ := strings.Cut(field, "=")
				want[name] = value
			}
			got := attributesOf(req)
			for name := range want {
				if got[name] != want[name] {
					t.Errorf("%s: %q, want %q", name, got[name], want[name])
				}
			}
			if len(got) != len(want) || string(as.Body) != tc.data || dropped != tc.dropped {
				t.Errorf("%v with %q, %d left out", got, as.Body, dropped)
			}
			if req.Header.Get("X-Other") != "kept" || req.Header.Get("Nats-Sequence") != "42" || req.Header.Get("X-Hop") != "" || req.Header.Get("Host") != "" {
				t.Errorf("%v", req.Header)
			}
		})
	}
}

func TestCloudEventsJSON(t *testing.T) {
	c := newClient(t, nil, func(s *setup) { s.config.Headers = map[string]string{"Ce-Tenant": "t"} })
	m := message(`{"a": 1}`)
	m.Header = map[string][]string{"Content-Type": {"application/json"}, "ce-type": {"order"}, "ce-x-y": {"1"}, "X-Other": {"kept", "too"}, "traceparent": {"00-ab"}, "Connection": {"X-Hop"}, "x-hop": {"1"}}
	before := len(m.Header)
	req, as, dropped := dressed(t, c, CloudEventsJSON, m)
	want, _ := AppendCloudEvent(nil, m)
	if string(as.Body) != string(want) || dropped != 1 || len(m.Header) != before {
		t.Errorf("%s, %d left out", as.Body, dropped)
	}
	if got := attributesOf(req); len(got) != 2 || got["content-type"] != eventJSON || got["ce-tenant"] != "t" {
		t.Errorf("%v", got)
	}
	if h := req.Header; !slices.Equal(h["X-Other"], []string{"kept", "too"}) || h.Get("Traceparent") != "00-ab" || h.Get("X-Hop") != "" || h.Get("Nats-Subject") != "orders.new" {
		t.Errorf("%v", h)
	}

	kept := " " + `{"specversion":"1.0","id":"a","source":"/","type":"t", "odd":{}}` + "\n"
	m = message(kept)
	m.Header = map[string][]string{"content-type": {"application/cloudevents; charset=UTF-8"}, "ce-id": {"other"}}
	req, as, dropped = dressed(t, c, CloudEventsJSON, m)
	if string(as.Body) != kept || dropped != 0 || req.Header.Get("Content-Type") != eventJSON || req.Header.Get("Ce-Id") != "" {
		t.Errorf("%q, %d left out, %v", as.Body, dropped, req.Header)
	}
}

// What the configuration sets is not the message's, an attribute neither.
func TestAttributeInAppHeaders(t *testing.T) {
	c := newClient(t, nil, func(s *setup) { s.config.Headers = map[string]string{"CE-Type": "com.shop.order"} })
	req, _, _ := dressed(t, c, CloudEvents, message(""))
	if got := req.Header.Values("Ce-Type"); !slices.Equal(got, []string{"com.shop.order"}) {
		t.Errorf("%q", got)
	}
}

// The request is another one, but what is reported of it is the same as of a raw one.
func TestForwardInAFormat(t *testing.T) {
	overEach(t, func(t *testing.T, c *Client, app *recorder) {
		m := message(`{"a": 1}`)
		m.Header = map[string][]string{"ce-bad-name": {"1"}, "X-Bad": {"\x00"}, "tracestate": {"a=1"}, "baggage": {"k=v"}, "traceparent": {"00-ab"}}
		for _, f := range []Format{"raw", CloudEvents, CloudEventsJSON} {
			r := c.Forward(t.Context(), target(t, c, "PUT").In(f), m)
			if want := map[Format]int{"raw": 1, CloudEvents: 2, CloudEventsJSON: 2}[f]; r.Kind != policy.Answered || r.Status != 200 || r.HeadersDropped != want {
				t.Errorf("%s: %+v", f, r)
			}
		}
		for i, s := range app.seen {
			if s.header.Get("Tracestate") != "a=1" || s.header.Get("Baggage") != "k=v" || s.header.Get("Traceparent") != "00-ab" {
				t.Errorf("request %d: %v", i, s.header)
			}
		}
		if raw, binary := app.seen[0], app.seen[1]; raw.header.Get("Ce-Bad-Name") != "1" || string(raw.body) != `{"a": 1}` || binary.header.Get("Ce-Id") == "" || string(binary.body) != `{"a": 1}` {
			t.Errorf("%v", app.seen)
		}
		var e map[string]any
		if err := json.Unmarshal(app.seen[2].body, &e); err != nil || e["id"] != app.seen[1].header.Get("Ce-Id") {
			t.Errorf("%v: %s", err, app.seen[2].body)
		}
	})
}

// Binary mode and structured mode say the same, whatever the message.
func FuzzFormats(f *testing.F) {
	f.Add("Content-Type", "application/json", "ce-id", "a%20b", "orders", []byte(`{"a":1}`))
	f.Add("content-type", "application/cloudevents+json", "Ce-Type", "x", "a.b", []byte(`{"specversion":"1.0","id":"1","source":"/","type":"t","x":1,"data":{"a":"}"}}`))
	f.Add("Connection", "ce-id,content-type", "ce-id", "1", "\xff", []byte("x"))
	f.Add("Ce-Datacontenttype", "application/cloudevents", "ce-a", "\"\\\"%22", "s", []byte("x"))
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2, subject string, body []byte) {
		c := newClient(t, nil)
		m := message("")
		m.Subject, m.Body = subject, body
		m.Header = map[string][]string{name1: {value1}}
		m.Header[name2] = append(m.Header[name2], value2)
		req, as, dropped := dressed(t, c, CloudEvents, m)
		if contentType := contentTypeOf(m.Header); isEventType(contentType) && !isEventJSON(contentType) {
			return
		}
		if dropped < 0 || dropped > 7 {
			t.Fatalf("%d left out", dropped)
		}
		e := eventOf(m)
		if !bytes.Equal(as.Body, e.data) || isEventType(req.Header.Get("Content-Type")) || req.Header.Get("Ce-Specversion") != "1.0" {
			t.Fatalf("%v with %q", req.Header, as.Body)
		}
		found := 0
		for name, values := range req.Header {
			if isEventHeader(name) {
				found += len(values)
			}
		}
		if found != len(e.attributes)+1 {
			t.Fatalf("%d attributes of %v in %v", found, e.attributes, req.Header)
		}
		for _, a := range e.attributes {
			got := req.Header.Get(eventPrefix + a.name)
			if value, ok := decodeValue(got); !ok || value != a.value || !ascii(got) || strings.ContainsAny(got, "\" ") {
				t.Fatalf("%s: %q, want %q", a.name, got, a.value)
			}
		}
	})
}
