package jetstream

import (
	"cmp"
	"encoding/hex"
	"hash/fnv"
	"maps"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// The headers of a DLQ entry.
const (
	HeaderReason     = "Dlq-Reason"
	HeaderStatus     = "Dlq-Status"
	HeaderError      = "Dlq-Error"
	HeaderResponse   = "Dlq-Response"
	HeaderStream     = "Dlq-Stream"
	HeaderConsumer   = "Dlq-Consumer"
	HeaderSubject    = "Dlq-Subject"
	HeaderSequence   = "Dlq-Sequence"
	HeaderTimeStamp  = "Dlq-Time-Stamp"
	HeaderMsgID      = "Dlq-Msg-Id"
	HeaderDeliveries = "Dlq-Deliveries"
	HeaderFailedAt   = "Dlq-Failed-At"
	HeaderReplays    = "Dlq-Replays"
	HeaderPart       = "Dlq-Part"
)

const (
	// maxText is the longest text of one Dlq header, in bytes.
	maxText = 1024
	// longSubject is the first token in the place of an original subject too long for the entry's.
	longSubject = "_long"
	// maxHeaderBlock is the largest header block that JetStream stores (nats-server stream.go, processJetStreamMsg).
	maxHeaderBlock = 65535
	// maxSubject keeps a publish below maxLine.
	maxSubject = 3500
)

// entries makes the messages that store a dead letter within limit bytes: one, or two parts that have half of the body each. What does not fit is left
// out, and counted, in this order: the response, the error, original headers from the largest on; and the original id if not even parts fit with it.
func (d *DeadLetters) entries(dl DeadLetter, limit int) ([]*nats.Msg, int, error) {
	own := d.cause(dl, ReplaysOf(dl.Message.Header))
	msgs, dropped, err := d.entriesWith(dl, own, limit)
	if id := own[HeaderMsgID]; err != nil && id != "" {
		delete(own, HeaderMsgID)
		msgs, dropped, err = d.entriesWith(dl, own, limit)
		dropped++
	}
	return msgs, dropped, err
}

func (d *DeadLetters) entriesWith(dl DeadLetter, own map[string]string, limit int) ([]*nats.Msg, int, error) {
	replays := ReplaysOf(dl.Message.Header)
	original, dropped := originals(dl.Message)
	if id := msgID(dl.Message); !survives(id) {
		dropped++
	}
	subject, body := d.subject(dl.Message.Subject), dl.Message.Body
	entry := func(body []byte, part string) *nats.Msg {
		msg := &nats.Msg{Subject: subject, Data: body, Header: make(nats.Header, len(own)+len(original)+2)}
		for name, value := range own {
			msg.Header[name] = []string{value}
		}
		msg.Header[natsjs.MsgIDHeader] = []string{d.id(dl.Message, replays, part)}
		if part != "" {
			msg.Header[HeaderPart] = []string{part}
		}
		return msg
	}
	whole := entry(body, "")
	if left, ok := fit(whole, original, limit); ok {
		return []*nats.Msg{whole}, dropped + left, nil
	}
	// The first part has the original headers. What the second leaves out is in the first, or counted there.
	half := len(body) / 2
	first, second := entry(body[:half], "1/2"), entry(body[half:], "2/2")
	left, ok := fit(first, original, limit)
	if _, alsoOK := fit(second, nil, limit); !ok || !alsoOK {
		return nil, 0, ErrDeadLetterTooLarge
	}
	return []*nats.Msg{first, second}, dropped + left, nil
}

// fit gives an entry its original headers and leaves out what does not fit. It returns how many headers these are, and whether the rest fits.
func fit(msg *nats.Msg, original []header, limit int) (left int, ok bool) {
	size := headerSize(msg.Header)
	for _, h := range original {
		size += h.size()
	}
	fits := func() bool { return size <= maxHeaderBlock && size+len(msg.Data) <= limit }
	for _, name := range []string{HeaderResponse, HeaderError} {
		if value := msg.Header[name]; !fits() && len(value) > 0 {
			size -= header{name, value[0]}.size()
			delete(msg.Header, name)
			left++
		}
	}
	out := make([]bool, len(original))
	if !fits() {
		for _, i := range largestFirst(original) {
			if fits() {
				break
			}
			size -= original[i].size()
			out[i] = true
			left++
		}
	}
	for i, h := range original {
		if !out[i] {
			msg.Header[h.name] = append(msg.Header[h.name], h.value) // the values of a name stay in their order
		}
	}
	return left, fits()
}

// largestFirst are the indices of headers, the largest first, and of equal ones the last.
func largestFirst(headers []header) []int {
	order := make([]int, len(headers))
	for i := range order {
		order[i] = len(order) - 1 - i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(headers[b].size(), headers[a].size()) })
	return order
}

// cause is what an entry says of its message and of what went wrong.
func (d *DeadLetters) cause(dl DeadLetter, replays int) map[string]string {
	m := dl.Message
	h := map[string]string{
		HeaderReason:     dl.Reason,
		HeaderStream:     d.source,
		HeaderConsumer:   d.consumer,
		HeaderSubject:    m.Subject,
		HeaderSequence:   strconv.FormatUint(m.Sequence, 10),
		HeaderTimeStamp:  m.Stored.UTC().Format(time.RFC3339Nano),
		HeaderDeliveries: strconv.FormatUint(dl.Deliveries, 10),
		HeaderFailedAt:   dl.FailedAt.UTC().Format(time.RFC3339Nano),
	}
	if dl.Status != 0 {
		h[HeaderStatus] = strconv.Itoa(dl.Status)
	}
	if text := oneLine(dl.Error, maxText); text != "" {
		h[HeaderError] = text
	}
	if text := oneLine(string(dl.Response), maxText); text != "" {
		h[HeaderResponse] = text
	}
	if id := msgID(m); id != "" && survives(id) {
		h[HeaderMsgID] = id // as it is: what a replay is known by is made of it
	}
	if replays > 0 {
		h[HeaderReplays] = strconv.Itoa(replays)
	}
	return h
}

// msgID is the id that a message was published with; empty if there is none.
func msgID(m *Message) string {
	if id := m.Header[natsjs.MsgIDHeader]; len(id) > 0 {
		return id[0]
	}
	return ""
}

// survives reports whether a header value is read as it was published: nats.go writes line breaks as blanks, and none at the start or end.
func survives(value string) bool {
	return !strings.ContainsAny(value, "\r\n") && textproto.TrimString(value) == value
}

// subject is where an entry is stored. An original subject too long for it is replaced by a hash; Dlq-Subject has it whole.
func (d *DeadLetters) subject(original string) string {
	subject := d.fill(original)
	if len(subject) <= d.conn.maxSubjectNow() {
		return subject
	}
	sum := fnv.New128a()
	sum.Write([]byte(original))
	return d.fill(longSubject + "." + hex.EncodeToString(sum.Sum(nil)))
}

func (d *DeadLetters) fill(original string) string {
	return strings.NewReplacer("{stream}", d.source, "{consumer}", d.consumer, "{subject}", original).Replace(d.cfg.Subject)
}

type header struct{ name, value string }

// size is that on the wire.
func (h header) size() int { return len(h.name) + len(": ") + len(h.value) + len("\r\n") }

// originals are the message's headers that go into the entry, in a fixed order, and the number of those that cannot.
// Dlq headers of an earlier life are left out: an entry has its own, and headers do not grow with each replay.
func originals(m *Message) (kept []header, dropped int) {
	if m.HeaderLost {
		dropped++
	}
	for _, name := range slices.Sorted(maps.Keys(m.Header)) {
		switch {
		case isCommand(name), len(name) >= 4 && strings.EqualFold(name[:4], "Dlq-"):
			continue
		case !validName(name):
			dropped += len(m.Header[name])
			continue
		}
		for _, v := range m.Header[name] {
			kept = append(kept, header{name, v})
		}
	}
	return kept, dropped
}

// validName reports whether nats.go can publish a header of this name (nats.go, Header encoding).
func validName(name string) bool {
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return name != ""
}

// mostReplays is more than anybody replays a message: a larger number is a publisher's own.
const mostReplays = 1_000_000

// ReplaysOf is how often a message was replayed, as its headers say.
func ReplaysOf(h map[string][]string) int {
	if v := h[HeaderReplays]; len(v) > 0 {
		if n, err := strconv.Atoi(strings.TrimSpace(v[0])); err == nil && n > 0 && n <= mostReplays {
			return n
		}
	}
	return 0
}

// headerSize is the size of a header block on the wire.
func headerSize(h nats.Header) int {
	n := len("NATS/1.0\r\n") + len("\r\n")
	for name, values := range h {
		for _, v := range values {
			n += header{name, v}.size()
		}
	}
	return n
}
