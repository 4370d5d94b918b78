package jetstream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// The headers of a message in the retry stream.
const (
	retryHeaderStream     = "Sidecar-Stream"
	retryHeaderConsumer   = "Sidecar-Consumer"
	retryHeaderSubject    = "Sidecar-Subject"
	retryHeaderTimeStamp  = "Sidecar-Time-Stamp"
	retryHeaderDeliveries = "Sidecar-Deliveries"
	retryHeaderLost       = "Sidecar-Header-Lost"

	retryHeaderMark = "Sidecar-" // begins each of them
)

// envelopeRoom is what an envelope needs at most besides the message, its subject and the names of stream and durable.
const envelopeRoom = 1024

// envelope makes a message that carries another one, exactly as it is: its headers are part of the body, since as headers of
// the envelope some would command the server, and some cannot be published by this client at all.
func envelope(m *Message, stream, durable string) *nats.Msg {
	h := nats.Header{
		retryHeaderStream:     []string{stream},
		retryHeaderConsumer:   []string{durable},
		retryHeaderSubject:    []string{m.Subject},
		retryHeaderTimeStamp:  []string{m.Stored.UTC().Format(time.RFC3339Nano)},
		retryHeaderDeliveries: []string{strconv.FormatUint(m.Delivered, 10)},
	}
	if m.HeaderLost {
		h[retryHeaderLost] = []string{"1"}
	}
	block := headerBlock(m.Header)
	body := make([]byte, 0, 4+len(block)+len(m.Body))
	body = binary.BigEndian.AppendUint32(body, uint32(len(block)))
	body = append(body, block...)
	return &nats.Msg{Header: h, Data: append(body, m.Body...)}
}

// headerBlock writes headers so that parseHeaderBlock reads the same: a line for each value. Neither names nor values that
// came over NATS hold line breaks, and names no colon.
func headerBlock(h map[string][]string) []byte {
	var b []byte
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, v := range h[name] {
			b = append(append(append(append(b, name...), ':'), v...), '\n')
		}
	}
	return b
}

func parseHeaderBlock(b []byte) (map[string][]string, error) {
	if len(b) == 0 {
		return nil, nil
	}
	h := map[string][]string{}
	for line := range bytes.Lines(b) {
		name, value, ok := strings.Cut(strings.TrimSuffix(string(line), "\n"), ":")
		if !ok {
			return nil, errors.New("a header line without a colon")
		}
		h[name] = append(h[name], value)
	}
	return h, nil
}

// errForeign says that somebody else published a message to the subjects of the retry stream: it has no mark of an envelope.
var errForeign = errors.New("it is no message of a sidecar")

// unwrap makes a message of the retry stream the one it carries. What it is leased by stays, and all of it where that makes no sense. What came
// without its body lacks that afterwards: see sealed.
func (r *retries) unwrap(m *Message) error {
	key, due := strings.CutPrefix(m.Subject, r.subject("due", ""))
	switch {
	case !due:
		return fmt.Errorf("the subject %q is none of what is due", m.Subject)
	case !m.HeaderLost && !marked(m.Header):
		return errForeign
	}
	createdText, sequenceText, _ := strings.Cut(key, ".")
	created, err1 := strconv.ParseInt(createdText, 10, 64)
	sequence, err2 := strconv.ParseUint(sequenceText, 10, 64)
	before, err3 := strconv.ParseUint(first(m.Header[retryHeaderDeliveries]), 10, 64)
	stored, err4 := time.Parse(time.RFC3339Nano, first(m.Header[retryHeaderTimeStamp]))
	header, body, err5 := contents(m.Body)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return err
	}
	m.Subject, m.Sequence, m.Stored, m.StreamCreated = first(m.Header[retryHeaderSubject]), sequence, stored, time.Unix(0, created)
	m.HeaderLost, m.lacking = first(m.Header[retryHeaderLost]) != "", len(m.Body) == 0
	if m.Body = body; !m.lacking { // else they say how large the body is
		m.Header = header
	}
	m.repeats = m.Delivered
	m.Delivered += before
	m.Pending = r.main.Status().Pending
	m.MaxDeliver = r.main.Limit()
	return nil
}

// marked reports whether headers may be those of an envelope.
func marked(h map[string][]string) bool {
	for name := range h {
		if len(name) >= len(retryHeaderMark) && strings.EqualFold(name[:len(retryHeaderMark)], retryHeaderMark) {
			return true
		}
	}
	return false
}

// contents are the headers and the body in that of an envelope, which is never empty but where the server left it out.
func contents(b []byte) (header map[string][]string, body []byte, err error) {
	if len(b) == 0 {
		return nil, nil, nil
	}
	if len(b) < 4 || uint64(len(b)-4) < uint64(binary.BigEndian.Uint32(b)) {
		return nil, nil, errors.New("the body is cut off")
	}
	n := 4 + int(binary.BigEndian.Uint32(b))
	header, err = parseHeaderBlock(b[4:n])
	return header, b[n:], err
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// fits reports whether a message fits into an envelope: within the server's limit, and within the share of the leased bytes that
// is lent to the retry stream.
func (r *retries) fits(m *Message) bool {
	size := int64(len(m.Body)) + int64(len(headerBlock(m.Header))) + int64(len(m.Subject)) + envelopeRoom
	return size <= r.main.conn.mostPayload() && size <= r.source.cfg.MaxBytes
}
