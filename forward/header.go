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
type fixedHeader struct {
	name   string // as kept in the header map
	values []string
}

// header maps a message to request headers. It returns how many header lines it left out because HTTP cannot carry them.
func (c *Client) header(m *Message) (http.Header, int) {
	b := headerBuilder{
		h:      make(http.Header, 12+len(m.Header)+len(c.fixed)),
		values: make([]string, 0, 12+countValues(m.Header)),
	}
	b.pass(m.Header, c.owned)
	b.describe(m)
	if _, ok := b.h["Content-Type"]; !ok {
		b.set("Content-Type", defaultContentType)
	}
	if _, ok := b.h["User-Agent"]; !ok {
		b.h["User-Agent"] = c.agent
	}
	for _, f := range c.fixed {
		b.h[f.name] = f.values
	}
	return b.h, b.dropped
}

type headerBuilder struct {
	h       http.Header
	values  []string // backs the values of h
	dropped int
}

// pass takes over the message's own headers, less those that are not the message's to set: owned, and the fixed deny list.
func (b *headerBuilder) pass(header map[string][]string, owned map[string]bool) {
	if len(header) == 0 {
		return
	}
	// Sorted, so that the values of a name that occurs in several spellings are in the same order every time.
	var buf [16]string
	names := buf[:0]
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
		canonical := http.CanonicalHeaderKey(name)
		if denied(canonical) || owned[canonical] || slices.Contains(hop, canonical) {
			continue
		}
		b.add(canonical, values)
	}
	b.splitUserAgent()
}

// add appends the values that HTTP can carry.
func (b *headerBuilder) add(canonical string, values []string) {
	key := canonical
	if key == "X-Idempotency-Key" {
		key = headerXIdempotencyKey
	}
	start := len(b.values)
	if earlier := b.h[key]; earlier != nil { // another spelling: both together
		b.values = append(b.values, earlier...)
	}
	for _, v := range values {
		switch {
		case !validValue(v):
			b.dropped++
		case canonical == "Content-Type" && strings.Trim(v, " \t") == "":
			// no type at all; the default stands in
		default:
			b.values = append(b.values, v)
		}
	}
	if end := len(b.values); end > start {
		b.h[key] = b.values[start:end:end]
	}
}

// splitUserAgent keeps all values of a repeated User-Agent: net/http would send the first alone.
func (b *headerBuilder) splitUserAgent() {
	if agents := b.h["User-Agent"]; len(agents) > 1 {
		b.h["user-agent"] = agents
		b.set("User-Agent", "") // which net/http does not send
	}
}

// describe sets the headers that say what is delivered.
func (b *headerBuilder) describe(m *Message) {
	b.setChecked(headerSubject, m.Subject)
	b.setChecked(headerStream, m.Stream)
	b.setChecked(headerConsumer, m.Consumer)

	id, hasID := msgID(m.Header)
	if hasID {
		b.setChecked(headerMsgID, id)
	}

	// One string holds all the numbers.
	var buf [192]byte
	n := buf[:0]
	n = strconv.AppendUint(n, m.Sequence, 10)
	sequence := len(n)
	n = m.Stored.UTC().AppendFormat(n, time.RFC3339Nano)
	stamp := len(n)
	n = strconv.AppendUint(n, m.Delivered, 10)
	delivered := len(n)
	n = strconv.AppendUint(n, m.MaxDeliver, 10)
	limit := len(n)
	n = strconv.AppendUint(n, m.Pending, 10)
	pending := len(n)
	ownKey := !hasID || !wholeValue(id)
	if ownKey {
		if wholeValue(m.Stream) {
			n = append(n, m.Stream...)
		}
		n = append(n, ':')
		n = strconv.AppendUint(n, m.Sequence, 10)
		n = append(n, ':')
		n = strconv.AppendInt(n, m.Stored.UnixNano(), 10)
	}
	s := string(n)

	b.set(headerSequence, s[:sequence])
	b.set(headerTimeStamp, s[sequence:stamp])
	b.set(headerNumDelivered, s[stamp:delivered])
	if m.MaxDeliver > 0 {
		b.set(headerMaxDeliver, s[delivered:limit])
	}
	b.set(headerNumPending, s[limit:pending])
	if ownKey {
		b.set(headerIdempotencyKey, s[pending:])
	} else {
		b.set(headerIdempotencyKey, id)
	}
}

func (b *headerBuilder) setChecked(key, value string) {
	if !validValue(value) {
		b.dropped++
		return
	}
	b.set(key, value)
}

func (b *headerBuilder) set(key, value string) {
	b.values = append(b.values, value)
	end := len(b.values)
	b.h[key] = b.values[end-1 : end : end]
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
		headerMaxDeliver, headerNumPending, headerMsgID, "Idempotency-Key":
		return true
	}
	return false
}

func countValues(header map[string][]string) int {
	n := 0
	for _, values := range header {
		n += len(values)
	}
	return n
}

// validName reports whether HTTP can carry a header of this name: a token (RFC 9110, section 5.6.2).
func validName(name string) bool {
	if name == "" {
		return false
	}
	for i := range len(name) {
		if !isToken(name[i]) {
			return false
		}
	}
	return true
}

func isToken(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

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
