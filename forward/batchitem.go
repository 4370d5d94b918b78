package forward

import (
	"encoding/base64"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// itemWriter writes the messages of a batch, each as one line. What most of them share it works out once.
type itemWriter struct {
	stream string
	text   []byte // the stream, as JSON has it
	second int64  // of when, since 1970
	when   []byte // the date and the time to that second

	changed int // values of headers that are not what was published
}

// appendLines appends messages, each as a line. It returns how many values of headers are not what was published, since they are not UTF-8.
func appendLines(dst []byte, ms []Message) (_ []byte, changed int) {
	var w itemWriter
	for i := range ms {
		dst = w.item(dst, &ms[i])
	}
	return dst, w.changed
}

// item appends a message as a line.
func (w *itemWriter) item(dst []byte, m *Message) []byte {
	dst = append(dst, `{"id":"`...)
	at := len(dst)
	dst = w.id(dst, m)
	end := len(dst)
	dst = append(append(dst, `","stream":"`...), w.streamText(m.Stream)...)
	dst = appendText(append(dst, `","subject":"`...), m.Subject)
	dst = strconv.AppendUint(append(dst, `","sequence":`...), m.Sequence, 10)
	dst = w.time(append(dst, `,"time_stamp":"`...), m.Stored.UTC())
	dst = strconv.AppendUint(append(dst, `","num_delivered":`...), m.Delivered, 10)
	if m.MaxDeliver > 0 {
		dst = strconv.AppendUint(append(dst, `,"max_deliver":`...), m.MaxDeliver, 10)
	}
	dst = strconv.AppendUint(append(dst, `,"num_pending":`...), m.Pending, 10)
	dst = append(dst, `,"idempotency_key":"`...)
	if id, ok := msgID(m.Header); ok && wholeValue(id) && utf8.ValidString(id) {
		dst = appendText(dst, id)
	} else {
		dst = append(dst, dst[at:end]...)
	}
	dst = w.headers(append(dst, `","headers":{`...), m.Header)
	return append(appendItemData(append(dst, '}'), m.Body), "}\n"...)
}

// id appends what tells a message from all others, on every delivery the same: its stream, sequence and time.
func (w *itemWriter) id(dst []byte, m *Message) []byte {
	dst = append(dst, w.streamText(m.Stream)...)
	dst = strconv.AppendUint(append(dst, ':'), m.Sequence, 10)
	return strconv.AppendInt(append(dst, ':'), m.Stored.UnixNano(), 10)
}

func (w *itemWriter) streamText(stream string) []byte {
	if stream != w.stream {
		w.stream, w.text = stream, appendText(w.text[:0], stream)
	}
	return w.text
}

// time appends a time as time.RFC3339Nano does.
func (w *itemWriter) time(dst []byte, t time.Time) []byte {
	if second := t.Unix(); second != w.second || w.when == nil {
		w.second, w.when = second, t.AppendFormat(w.when[:0], "2006-01-02T15:04:05")
	}
	dst = append(dst, w.when...)
	if n := t.Nanosecond(); n > 0 {
		point := len(dst)
		dst = strconv.AppendInt(dst, int64(n)+int64(time.Second), 10)
		dst[point] = '.' // in place of the 1 that keeps the zeros
		for dst[len(dst)-1] == '0' {
			dst = dst[:len(dst)-1]
		}
	}
	return append(dst, 'Z')
}

// headers appends the message's own headers, each with the list of its values, as published.
func (w *itemWriter) headers(dst []byte, header map[string][]string) []byte {
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
			if dst = append(appendText(append(dst, '"'), value), '"'); !utf8.ValidString(value) || !utf8.ValidString(name) {
				w.changed++
			}
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
