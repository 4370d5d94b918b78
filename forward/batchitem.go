package forward

import (
	"encoding/base64"
	"slices"
	"strconv"
	"time"
)

// appendItem appends a message as a line of a batch.
func appendItem(dst []byte, m *Message) []byte {
	dst = append(dst, `{"id":"`...)
	dst = appendItemID(dst, m)
	dst = appendText(append(dst, `","stream":"`...), m.Stream)
	dst = appendText(append(dst, `","subject":"`...), m.Subject)
	dst = strconv.AppendUint(append(dst, `","sequence":`...), m.Sequence, 10)
	dst = m.Stored.UTC().AppendFormat(append(dst, `,"time_stamp":"`...), time.RFC3339Nano)
	dst = strconv.AppendUint(append(dst, `","num_delivered":`...), m.Delivered, 10)
	if m.MaxDeliver > 0 {
		dst = strconv.AppendUint(append(dst, `,"max_deliver":`...), m.MaxDeliver, 10)
	}
	dst = strconv.AppendUint(append(dst, `,"num_pending":`...), m.Pending, 10)
	dst = append(dst, `,"idempotency_key":"`...)
	if id, ok := msgID(m.Header); ok && wholeValue(id) {
		dst = appendText(dst, id)
	} else {
		dst = appendItemID(dst, m)
	}
	dst = appendItemHeaders(append(dst, `","headers":{`...), m.Header)
	return append(appendItemData(append(dst, '}'), m.Body), "}\n"...)
}

// appendItemID appends what tells a message from all others, on every delivery the same: its stream, sequence and time.
func appendItemID(dst []byte, m *Message) []byte {
	dst = appendText(dst, m.Stream)
	dst = strconv.AppendUint(append(dst, ':'), m.Sequence, 10)
	return strconv.AppendInt(append(dst, ':'), m.Stored.UnixNano(), 10)
}

// appendItemHeaders appends the message's own headers, each with the list of its values, as published.
func appendItemHeaders(dst []byte, header map[string][]string) []byte {
	if len(header) == 0 {
		return dst
	}
	var space [16]string
	names := space[:0]
	for name := range header {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendText(append(dst, '"'), name), `":[`...)
		for j, value := range header[name] {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendText(append(dst, '"'), value), '"')
		}
		dst = append(dst, ']')
	}
	return dst
}

// appendItemData appends a body: as text, or in base64 if it is none.
func appendItemData(dst, body []byte) []byte {
	before := len(dst)
	dst, whole := appendJSON(append(dst, `,"data":"`...), body)
	if !whole {
		dst = append(dst[:before], `,"data_base64":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, body)
	}
	return append(dst, '"')
}

// appendText appends a text as JSON writes it, without the quotes. What is not UTF-8 in it is replaced by U+FFFD.
func appendText(dst []byte, s string) []byte {
	dst, _ = appendJSON(dst, s)
	return dst
}
