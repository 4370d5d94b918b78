package dlq

import (
	"time"
	"unicode/utf8"
)

// Entry is one dead letter, without its body. Its JSON is that of sidecar dlq list --json.
type Entry struct {
	DLQStream  string    `json:"dlq_stream"`
	Seq        uint64    `json:"seq"`      // in the DLQ stream; of the first part, if there are two
	Time       time.Time `json:"time"`     // when it was stored there
	Stream     string    `json:"stream"`   // the original one, as the next four
	Consumer   string    `json:"consumer"` // durable
	Subject    string    `json:"subject"`
	Sequence   uint64    `json:"sequence"`
	Reason     string    `json:"reason"`
	Status     int       `json:"status"` // 0: the app gave no answer
	Error      string    `json:"error"`
	Deliveries uint64    `json:"deliveries"` // replays counted
	Replays    int       `json:"replays"`
	MsgID      string    `json:"msg_id"`         // the original one
	Size       int64     `json:"size"`           // of the body, in bytes
	Part       string    `json:"part,omitempty"` // 1/2 or 2/2 if the other part is missing: half a message

	stamp string // Dlq-Time-Stamp, as it is
	parts []part // as stored: one, or both in order
	alone bool   // its second part is nowhere

	head int64 // the size of the headers that it is published again with, where reading.heads asks for that
}

// Cursor is the place of the entry.
func (e *Entry) Cursor() Cursor { return Cursor{Stream: e.DLQStream, Seq: e.Seq} }

// Letter is an entry with all that is stored. Its JSON is that of sidecar dlq show --json.
type Letter struct {
	Entry
	Headers map[string][]string `json:"headers"`
	Body    []byte              `json:"body_base64"`
	Text    *string             `json:"body,omitempty"`           // the body, if it is UTF-8
	Other   bool                `json:"other_consumer,omitempty"` // its consumer is not in the configuration
}

// setBody sets the body, and its text if it is one.
func (l *Letter) setBody(body []byte) {
	l.Body, l.Size = body, int64(len(body))
	if utf8.Valid(body) {
		text := string(body)
		l.Text = &text
	}
}

// Stats is what there is. Its JSON is that of sidecar dlq stats --json.
type Stats struct {
	Entries int        `json:"entries"`
	Bytes   int64      `json:"bytes"`  // of the bodies
	Oldest  *time.Time `json:"oldest"` // nil: there is none
	Newest  *time.Time `json:"newest"`
	Groups  []Group    `json:"groups"` // the largest first
	Passed             // of what had to be looked at
	// UpTo is how far each DLQ stream was read, those that do not exist left out: as Filter.UpTo it selects no more than was counted.
	UpTo []Cursor `json:"-"`
}

// Group are the entries of one consumer, subject, reason and status.
type Group struct {
	Consumer string    `json:"consumer"`
	Subject  string    `json:"subject"`
	Reason   string    `json:"reason"`
	Status   int       `json:"status"`
	Count    int       `json:"count"`
	Oldest   time.Time `json:"oldest"`
	Newest   time.Time `json:"newest"`
}

// part is one stored message of an entry.
type part struct {
	seq  uint64
	time time.Time
	size int64
}
