package forward

import (
	"slices"
	"strings"
)

// Format is how a message becomes a request.
type Format string

const (
	// Raw is the message as it is.
	Raw Format = ""
	// CloudEvents is a CloudEvent in binary mode: attributes in headers, data in the body.
	CloudEvents Format = "cloudevents"
	// CloudEventsJSON is a CloudEvent in structured mode: all of it in the body, as JSON.
	CloudEventsJSON Format = "cloudevents-json"
)

const eventJSON = "application/cloudevents+json"

// In is the target for messages in a format, of which raw and the empty one are the same.
func (t *Target) In(f Format) *Target {
	in := *t
	in.format = f
	if f == "raw" {
		in.format = Raw
	}
	return &in
}

// dress is the message whose raw request is that of m in this format. It returns how many attributes it left out. An event in a
// format other than JSON, or a batch of events, is sent as it is: it is in structured mode already.
func (f Format) dress(m *Message) (*Message, int) {
	contentType := contentTypeOf(m.Header)
	if isEventType(contentType) && !isEventJSON(contentType) {
		return m, 0
	}
	e := eventOf(m)
	dressed := *m
	dressed.Header = undressed(m.Header, len(e.attributes))
	if f == CloudEventsJSON {
		dressed.Header["Content-Type"] = []string{eventJSON}
		if e.structured != nil {
			return &dressed, 0
		}
		dressed.Body = e.appendJSON(nil)
		return &dressed, e.dropped
	}
	dressed.Body = e.data
	dressed.Header[eventPrefix+"specversion"] = []string{"1.0"}
	values := make([]string, len(e.attributes))
	for i, a := range e.attributes {
		values[i] = encoded(a.value)
		dressed.Header[eventPrefix+a.name] = values[i : i+1 : i+1]
	}
	switch {
	case isEventType(e.dataType): // it would say that the event is in structured mode
		e.dropped++
	case e.dataType != "":
		dressed.Header["Content-Type"] = []string{e.dataType}
	}
	return &dressed, e.dropped
}

// undressed is a header without what is said by the format: content type and attributes. What is for one hop only is left out
// here, so that a message cannot have attributes left out by naming them in a Connection header.
func undressed(header map[string][]string, more int) map[string][]string {
	rest := make(map[string][]string, len(header)+more+2)
	var space [16]string
	names := space[:0]
	for name := range header {
		names = append(names, name)
	}
	hop := connectionNames(header, names)
	for name, values := range header {
		switch {
		case isEventHeader(name), strings.EqualFold(name, "Content-Type"), strings.EqualFold(name, "Connection"):
		case slices.ContainsFunc(hop, func(h string) bool { return strings.EqualFold(h, name) }):
		default:
			rest[name] = values
		}
	}
	return rest
}

// isEventType reports whether a content type says that a whole event, or several, is in the body (HTTP binding, section 3).
func isEventType(contentType string) bool {
	return strings.HasPrefix(mediaType(contentType), "application/cloudevents")
}
