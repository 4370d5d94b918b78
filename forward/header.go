package forward

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The request headers that say what is delivered. A message cannot set them.
const (
	headerSubject      = "Nats-Subject"
	headerStream       = "Nats-Stream"
	headerConsumer     = "Nats-Consumer"
	headerSequence     = "Nats-Sequence"
	headerTimeStamp    = "Nats-Time-Stamp"
	headerNumDelivered = "Nats-Num-Delivered"
	headerMaxDeliver   = "Nats-Max-Deliver"
	headerNumPending   = "Nats-Num-Pending"
	headerMsgID        = "Nats-Msg-Id"
)

// net/http re-sends a request that the app may have seen if one of these is in the header map under its canonical name
// (Request.isReplayable). So they are kept there in lower case, which is the same header to the app.
const (
	headerIdempotencyKey  = "idempotency-key"
	headerXIdempotencyKey = "x-idempotency-key"
)

const defaultContentType = "application/octet-stream"

// fixedHeader is a header sent with every request.
type fixedHeader struct{ name, value string }

// fields appends the header lines of a message as HTTP/1.1 writes them, those that frame the request apart. It returns how
// many lines it left out because HTTP cannot carry them. This is the one place that knows what a message may set.
func (c *Client) fields(dst []byte, m *Message) ([]byte, int) {
	if m.batch != nil {
		return append(c.batchFields(dst, m), c.lines...), 0
	}
	b := headerBuilder{buf: dst}
	b.pass(m.Header, c.owned)
	b.describe(m)
	if !b.typed && !c.owned["Content-Type"] {
		b.line("Content-Type", defaultContentType)
	}
	if !b.agent && !c.owned["User-Agent"] {
		b.line("User-Agent", c.agent)
	}
	return append(b.buf, c.lines...), b.dropped
}

// header is the same as a header map, for net/http.
func (c *Client) header(m *Message) (http.Header, int) {
	pooled := buffers.Get().(*[]byte)
	buf, dropped := c.fields((*pooled)[:0], m)
	text := string(buf)
	buffers.Put(pooled)
	lines := strings.Count(text, "\n")
	h := make(http.Header, lines)
	values := make([]string, lines)
	for i := range lines {
		colon := strings.IndexByte(text, ':')
		end := colon + strings.IndexByte(text[colon:], '\r')
		name, value := text[:colon], text[colon+2:end]
		text = text[end+2:]
		if earlier := h[name]; earlier != nil {
			h[name] = append(earlier, value)
			continue
		}
		values[i] = value
		h[name] = values[i : i+1 : i+1]
	}
	if agents := h["User-Agent"]; len(agents) > 1 { // net/http would send the first alone
		h["user-agent"] = agents
		h["User-Agent"] = []string{""} // which it does not send
	}
	if c.signer != nil {
		h[headerWebhookID] = []string{string(appendWebhookID(nil, m))}
	}
	return h, dropped
}

type headerBuilder struct {
	buf          []byte
	typed, agent bool // the message brings a Content-Type, a User-Agent
	dropped      int
}

// pass takes over the message's own headers, less those that are not the message's to set: owned, and the fixed deny list.
func (b *headerBuilder) pass(header map[string][]string, owned map[string]bool) {
	if len(header) == 0 {
		return
	}
	// Sorted, so that the values of a name that occurs in several spellings are in the same order every time.
	var space [16]string
	names := space[:0]
	for name := range header {
		names = append(names, name)
	}
	slices.Sort(names)
	hop := connectionNames(header, names)

	for _, name := range names {
		values := header[name]
		if !validName(name) {
			b.dropped += len(values)
			continue
		}
		var space [64]byte
		canonical := appendCanonical(space[:0], name)
		if denied(string(canonical)) || owned[string(canonical)] || slices.Contains(hop, string(canonical)) {
			continue
		}
		b.add(canonical, values)
	}
}

// add appends the values that HTTP can carry.
func (b *headerBuilder) add(canonical []byte, values []string) {
	isType, isAgent := string(canonical) == "Content-Type", string(canonical) == "User-Agent"
	if string(canonical) == "X-Idempotency-Key" {
		canonical = []byte(headerXIdempotencyKey)
	}
	for _, v := range values {
		if !validValue(v) {
			b.dropped++
			continue
		}
		b.agent = b.agent || isAgent
		if (isType || isAgent) && strings.Trim(v, " \t") == "" {
			continue // no type at all, for which the default stands in, or no agent
		}
		b.typed = b.typed || isType
		b.buf = append(b.buf, canonical...)
		b.value(v)
	}
}

// describe sets the headers that say what is delivered.
func (b *headerBuilder) describe(m *Message) {
	b.checked(headerSubject, m.Subject)
	b.checked(headerStream, m.Stream)
	b.checked(headerConsumer, m.Consumer)
	id, hasID := msgID(m.Header)
	if hasID {
		b.checked(headerMsgID, id)
	}

	b.number(headerSequence, m.Sequence)
	b.name(headerTimeStamp)
	b.buf = m.Stored.UTC().AppendFormat(b.buf, time.RFC3339Nano)
	b.end()
	b.number(headerNumDelivered, m.Delivered)
	if m.MaxDeliver > 0 {
		b.number(headerMaxDeliver, m.MaxDeliver)
	}
	b.number(headerNumPending, m.Pending)

	b.name(headerIdempotencyKey)
	if hasID && wholeValue(id) {
		b.buf = append(b.buf, id...)
	} else {
		b.buf = appendOwnID(b.buf, m, wholeValue(m.Stream))
	}
	b.end()
}

// appendOwnID appends what tells a message from all others if it was published without an id: the stream, unless that cannot be
// said, its sequence there and when it was stored.
func appendOwnID(dst []byte, m *Message, named bool) []byte {
	if named {
		dst = append(dst, m.Stream...)
	}
	dst = append(dst, ':')
	dst = strconv.AppendUint(dst, m.Sequence, 10)
	dst = append(dst, ':')
	return strconv.AppendInt(dst, m.Stored.UnixNano(), 10)
}

func (b *headerBuilder) checked(name, value string) {
	if !validValue(value) {
		b.dropped++
		return
	}
	b.line(name, value)
}

func (b *headerBuilder) number(name string, value uint64) {
	b.name(name)
	b.buf = strconv.AppendUint(b.buf, value, 10)
	b.end()
}

func (b *headerBuilder) line(name, value string) {
	b.buf = append(b.buf, name...)
	b.value(value)
}

func (b *headerBuilder) name(name string) {
	b.buf = append(b.buf, name...)
	b.buf = append(b.buf, ": "...)
}

// value ends a line with its value, without the blanks at either end that are no part of it.
func (b *headerBuilder) value(value string) {
	b.buf = append(b.buf, ": "...)
	b.buf = append(b.buf, strings.Trim(value, " \t")...)
	b.end()
}

func (b *headerBuilder) end() { b.buf = append(b.buf, "\r\n"...) }

// appendCanonical appends a valid name in the spelling of http.CanonicalHeaderKey.
func appendCanonical(dst []byte, name string) []byte {
	upper := true
	for i := range len(name) {
		c := name[i]
		switch {
		case upper && 'a' <= c && c <= 'z':
			c -= 'a' - 'A'
		case !upper && 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		}
		dst = append(dst, c)
		upper = c == '-'
	}
	return dst
}

// msgID is the id the message was published with. The server goes by exactly this name, and by its first value.
func msgID(header map[string][]string) (string, bool) {
	if values := header[headerMsgID]; len(values) > 0 && values[0] != "" {
		return values[0], true
	}
	return "", false
}

// connectionNames are the names that the message's Connection headers list: they are for one hop only, and not this one.
func connectionNames(header map[string][]string, names []string) []string {
	var listed []string
	for _, name := range names {
		if !strings.EqualFold(name, "Connection") {
			continue
		}
		for _, value := range header[name] {
			for part := range strings.SplitSeq(value, ",") {
				if part = strings.Trim(part, " \t"); validName(part) {
					listed = append(listed, http.CanonicalHeaderKey(part))
				}
			}
		}
	}
	return listed
}

// denied reports whether a message must not set a header, by its canonical name: hop-by-hop headers, those that frame or
// authorize the request, and those that say what is delivered.
func denied(canonical string) bool {
	switch canonical {
	case "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings",
		"Host", "Content-Length", "Expect", "Accept-Encoding",
		"Authorization", "Cookie":
		return true
	}
	return described(canonical) || strings.HasPrefix(canonical, "Proxy-")
}

// described reports whether a header, by its canonical name, is one that says what is delivered.
func described(canonical string) bool {
	switch canonical {
	case headerSubject, headerStream, headerConsumer, headerSequence, headerTimeStamp, headerNumDelivered,
		headerMaxDeliver, headerNumPending, headerMsgID, headerBatch, "Idempotency-Key":
		return true
	}
	return false
}

// validName reports whether HTTP can carry a header of this name: a token (RFC 9110, section 5.6.2).
func validName(name string) bool {
	if name == "" {
		return false
	}
	for i := range len(name) {
		if !token[name[i]] {
			return false
		}
	}
	return true
}

// token tells the bytes that a token is made of.
var token = func() (t [256]bool) {
	for c := range t {
		t[c] = '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || strings.IndexByte("!#$%&'*+-.^_`|~", byte(c)) >= 0
	}
	return t
}()

// validValue reports whether HTTP can carry a header value: no control characters but the tab.
func validValue(value string) bool {
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// wholeValue reports whether a value reaches the app byte for byte: HTTP also trims blanks at either end.
func wholeValue(value string) bool {
	return value != "" && validValue(value) && strings.Trim(value, " \t") == value
}
