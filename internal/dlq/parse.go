package dlq

import (
	"strconv"
	"strings"
	"time"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

// The values of Dlq-Part.
const (
	firstPart  = "1/2"
	secondPart = "2/2"
)

// parse reads what a stored message says of a dead letter; ok is false for one that is none.
func parse(stream string, m *jetstream.Stored) (e *Entry, ok bool) {
	e = &Entry{
		DLQStream: stream, Seq: m.Seq, Time: m.Time.UTC(), Size: m.Size,
		Stream:     value(m.Header, jetstream.HeaderStream),
		Consumer:   value(m.Header, jetstream.HeaderConsumer),
		Subject:    value(m.Header, jetstream.HeaderSubject),
		Sequence:   number(m.Header, jetstream.HeaderSequence),
		Reason:     value(m.Header, jetstream.HeaderReason),
		Status:     int(min(number(m.Header, jetstream.HeaderStatus), maxStatus)),
		Error:      value(m.Header, jetstream.HeaderError),
		Deliveries: number(m.Header, jetstream.HeaderDeliveries),
		Replays:    jetstream.ReplaysOf(m.Header),
		MsgID:      asStored(m.Header, jetstream.HeaderMsgID),
		stamp:      value(m.Header, jetstream.HeaderTimeStamp),
		parts:      []part{{seq: m.Seq, time: m.Time, size: m.Size}},
	}
	if p := value(m.Header, jetstream.HeaderPart); p == firstPart || p == secondPart {
		e.Part = p
	}
	if e.Stream == "" || e.Consumer == "" || e.Sequence == 0 {
		return &Entry{DLQStream: stream, Seq: m.Seq, Time: m.Time.UTC(), Subject: m.Subject, Size: m.Size, parts: e.parts}, false
	}
	return e, true
}

// original is when the source stream stored the message; zero if the entry does not say.
func original(header map[string][]string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, value(header, jetstream.HeaderTimeStamp))
	if err != nil {
		return time.Time{}
	}
	return at
}

func value(header map[string][]string, name string) string {
	return strings.TrimSpace(asStored(header, name))
}

func asStored(header map[string][]string, name string) string {
	if values := header[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

func number(header map[string][]string, name string) uint64 {
	n, err := strconv.ParseUint(value(header, name), 10, 63)
	if err != nil {
		return 0
	}
	return n
}

// letterKey tells which parts belong together.
func (e *Entry) letterKey() string {
	return strings.Join([]string{e.Stream, e.Consumer, strconv.FormatUint(e.Sequence, 10), e.stamp, strconv.Itoa(e.Replays)}, "\x00")
}

// join makes one entry of its two parts.
func (e *Entry) join(second part) {
	e.parts = append(e.parts, second)
	e.Size += second.size
	e.Part = ""
}
