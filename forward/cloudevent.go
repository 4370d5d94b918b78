package forward

import (
	"bytes"
	"net/url"
	"slices"
	"strings"
	"time"
)

// eventType is the type of an event made of a message that brings none: what it is about is said by its subject.
const eventType = "io.nats.jetstream.message"

// event is a message as a CloudEvent (CloudEvents 1.0.2).
type event struct {
	attributes []attribute // but datacontenttype, no name twice
	dataType   string      // datacontenttype
	data       []byte
	structured []byte // the event in the JSON format, if it came so
	dropped    int    // attributes left out because they are none that CloudEvents know
}

// attribute is a context attribute with its canonical string, which is valid.
type attribute struct{ name, value string }

// AppendCloudEvent appends a message as a CloudEvent in the JSON format: one JSON object. A message that is such an event is
// appended as it came. It returns how many attributes and header lines it left out because no CloudEvent can have them.
func AppendCloudEvent(dst []byte, m *Message) ([]byte, int) {
	e := eventOf(m)
	if e.structured != nil {
		return append(dst, e.structured...), 0
	}
	return e.appendJSON(dst), e.dropped
}

// eventOf reads a message as an event. What it has of one itself is kept: an event in the JSON format, or attributes in headers
// (the NATS binding). What it lacks of the required attributes is made up, and then the subject and the time too.
func eventOf(m *Message) event {
	contentType := contentTypeOf(m.Header)
	if isEventJSON(contentType) {
		if e, ok := parseEvent(m.Body); ok {
			return e
		}
	}
	e := event{data: m.Body}
	e.fromHeader(m.Header)
	switch {
	case e.dataType != "":
	case isEventJSON(contentType): // it says so and is none
	case validMediaType(contentType):
		e.dataType = contentType
	case contentType != "":
		e.dropped++
	}
	e.complete(m)
	return e
}

// fromHeader takes the attributes that a message has as headers: ce- and the attribute's name.
func (e *event) fromHeader(header map[string][]string) {
	var space [16]string
	names := space[:0]
	for name := range header {
		if isEventHeader(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names) // of a name in several spellings the same one is taken every time
	for _, name := range names {
		for _, line := range header[name] {
			if strings.Trim(line, " \t") == "" {
				continue
			}
			value, ok := decodeValue(line)
			if !ok || !e.take(strings.ToLower(name[len(eventPrefix):]), value, false) {
				e.dropped++
			}
		}
	}
}

// take takes an attribute over if it is a valid one. One that is there already stays, unless again.
func (e *event) take(name, value string, again bool) bool {
	switch {
	case !validAttribute(name, value):
		return false
	case name == "specversion":
		return true
	case name == "datacontenttype":
		if e.dataType != "" && !again {
			return false
		}
		e.dataType = value
		return true
	}
	for i := range e.attributes {
		if e.attributes[i].name == name {
			if again {
				e.attributes[i].value = value
			}
			return again
		}
	}
	e.attributes = append(e.attributes, attribute{name, value})
	return true
}

func (e *event) has(name string) bool {
	return slices.ContainsFunc(e.attributes, func(a attribute) bool { return a.name == name })
}

// wellKnown are the attributes that come first, in this order.
var wellKnown = []string{"id", "source", "type", "subject", "time"}

// order brings the attributes into the order in which they are written.
func (e *event) order() {
	rank := func(a attribute) int {
		if i := slices.Index(wellKnown, a.name); i >= 0 {
			return i
		}
		return len(wellKnown)
	}
	slices.SortStableFunc(e.attributes, func(a, b attribute) int { return rank(a) - rank(b) })
}

// complete makes up what a message lacks to be an event. An event that lacks nothing is left as it is.
func (e *event) complete(m *Message) {
	defer e.order()
	if e.has("id") && e.has("source") && e.has("type") {
		return
	}
	if e.attributes == nil {
		e.attributes = make([]attribute, 0, len(wellKnown))
	}
	fill := func(name, value string) {
		if !e.has(name) {
			e.attributes = append(e.attributes, attribute{name, value})
		}
	}
	fill("id", eventID(m))
	fill("source", "/nats/streams/"+url.PathEscape(m.Stream))
	fill("type", eventType)
	switch {
	case validAttribute("subject", m.Subject):
		fill("subject", m.Subject)
	case !e.has("subject"):
		e.dropped++
	}
	fill("time", m.Stored.UTC().Format(time.RFC3339Nano))
}

// eventID is what tells the message from all others of its source, on every delivery and replay: the idempotency key, as far as
// it can be one.
func eventID(m *Message) string {
	if id, ok := msgID(m.Header); ok && wholeValue(id) && validAttribute("id", id) {
		return id
	}
	return string(appendOwnID(nil, m, validAttribute("id", m.Stream)))
}

// contentTypeOf is the message's content type: the first that is not blank, empty if there is none.
func contentTypeOf(header map[string][]string) string {
	if t := firstType(header["Content-Type"]); t != "" {
		return t
	}
	found := ""
	for name, values := range header {
		if (found == "" || name < found) && strings.EqualFold(name, "Content-Type") && firstType(values) != "" {
			found = name
		}
	}
	return firstType(header[found])
}

func firstType(values []string) string {
	for _, v := range values {
		if v = strings.Trim(v, " \t"); v != "" && validValue(v) {
			return v
		}
	}
	return ""
}

// isEventJSON reports whether a content type is that of an event in the JSON format. The NATS binding has it also without +json.
func isEventJSON(contentType string) bool {
	media := mediaType(contentType)
	return media == "application/cloudevents+json" || media == "application/cloudevents"
}

// mediaType is a content type without its parameters, in lower case.
func mediaType(contentType string) string {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.Trim(media, " \t"))
}

// trimJSON is JSON text without the blanks around it.
func trimJSON(text []byte) []byte { return bytes.Trim(text, " \t\r\n") }
