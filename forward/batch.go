package forward

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"sync"

	"github.com/jetsidecar/jetsidecar/policy"
)

// The content types of a batch: one JSON object a line, and a JSON array of events.
const (
	batchLines  = "application/x-ndjson"
	batchEvents = "application/cloudevents-batch+json"
)

// headerBatch says how many messages a request holds.
const headerBatch = "Sidecar-Batch"

// headerReplays says how often a message was replayed.
const headerReplays = "Dlq-Replays"

// BatchResult is what one request with several messages came to.
type BatchResult struct {
	Result
	// Items is what the answer says of each message, in the order of the messages; nil if it names none. One that it does not name
	// has the zero outcome: the answer as a whole decides over it.
	Items []policy.Outcome
}

// batchOf is what a request with a batch says of it.
type batchOf struct {
	messages    []Message
	contentType string
}

// Batched makes the target one that is sent batches. A message that is forwarded to it alone is a batch of one.
func (t *Target) Batched() *Target {
	batched := *t
	batched.batch = true
	return &batched
}

// ForwardBatch sends several messages, at least one, in one request, as Forward does one. Of all but the first Sending,
// Wanted and Turn are ignored.
func (c *Client) ForwardBatch(ctx context.Context, t *Target, ms []Message) BatchResult {
	buf := c.batchBuffer()
	body, contentType := slices.Grow((*buf)[:0], sizeOf(ms)), batchLines
	var dropped int
	if t.format == Raw {
		body, dropped = appendLines(body, ms)
	} else {
		body, dropped = appendEvents(body, ms)
		contentType = batchEvents
	}
	first := &ms[0]
	r := BatchResult{Result: c.exchange(ctx, t, &Message{
		Stream: first.Stream, Consumer: first.Consumer, Body: body, Sending: first.Sending, Wanted: first.Wanted, Turn: first.Turn, batch: &batchOf{ms, contentType},
	})}
	*buf = body
	c.keepBatchBuffer(buf)
	r.HeadersDropped += dropped
	if r.Kind == policy.Answered && r.Status/100 == 2 {
		c.readResults(t, ms, &r)
	}
	if len(r.Response) > keptBytes {
		r.Response = append([]byte(nil), r.Response[:keptBytes]...)
	}
	for i := range r.Items {
		if r.Items[i].Kind != 0 {
			r.Items[i].Status = r.Status
		}
	}
	return r
}

// readResults reads what the answer says of each message. No message is done by an answer of which it is not clear what it says.
func (c *Client) readResults(t *Target, ms []Message, r *BatchResult) {
	var doubt string
	if r.Response, doubt = decoded(r.Response, r.coding); doubt == "" {
		r.Items, doubt = results(r.Response, func() map[string][]int { return idsOf(t.format, ms) }, len(ms))
	}
	unclear := slices.IndexFunc(r.Items, func(o policy.Outcome) bool { return o.Error != "" })
	switch {
	case doubt != "" && c.mayWarn(&t.warned.results):
		c.log.Warn("the app answered a batch with results that make no sense: what they do not name is tried again",
			"stream", ms[0].Stream, "consumer", ms[0].Consumer, "error", doubt)
	case unclear >= 0 && c.mayWarn(&t.warned.unclear):
		c.log.Warn("the app answered a batch with results that are not clear: of what they may say of a message the most careful counts",
			"stream", ms[0].Stream, "consumer", ms[0].Consumer, "sequence", ms[unclear].Sequence, "error", r.Items[unclear].Error)
	}
	if doubt == "" {
		return
	}
	if r.Action == 0 || r.Action == policy.Ack || r.Action == policy.Drop {
		r.Action, r.Error = policy.Retry, doubt
	}
}

// forwardOne sends a batch of one.
func (c *Client) forwardOne(ctx context.Context, t *Target, m *Message) Result {
	r := c.ForwardBatch(ctx, t, []Message{*m})
	if r.Items != nil && r.Items[0].Kind != 0 {
		r.Outcome = r.Items[0]
	}
	return r.Result
}

// sizeOf is about how large a batch is, if little of it must be escaped.
func sizeOf(ms []Message) int {
	const line = 320 // besides the body
	size := line * len(ms)
	for i := range ms {
		size += len(ms[i].Body) * 9 / 8
	}
	return size
}

// batchFields appends the header lines of a batch.
func (c *Client) batchFields(dst []byte, m *Message) []byte {
	b := headerBuilder{buf: dst}
	b.checked(headerStream, m.Stream)
	b.checked(headerConsumer, m.Consumer)
	b.line(headerBatch, strconv.Itoa(len(m.batch.messages)))
	if replays := m.batch.messages[0].Header[headerReplays]; len(m.batch.messages) == 1 && len(replays) > 0 {
		b.checked(headerReplays, replays[0]) // events have no place for it
	}
	if !c.owned["Content-Type"] {
		b.line("Content-Type", m.batch.contentType)
	}
	if !c.owned["User-Agent"] {
		b.line("User-Agent", c.agent)
	}
	return b.buf
}

// id tells a batch from all with other messages in it.
func (b *batchOf) id() string {
	var w itemWriter
	var id []byte
	sum := sha256.New()
	for i := range b.messages {
		id = append(w.id(id[:0], &b.messages[i]), '\n')
		sum.Write(id)
	}
	return "batch_" + hex.EncodeToString(sum.Sum(nil)[:16])
}

const mostKeptBatch = 4 << 20 // bytes of a buffer that is kept for another batch

var batchBuffers = sync.Pool{New: func() any { return new([]byte) }}

// batchBuffer is where a batch is written. net/http may still be sending a body when the answer is there, so for it each batch has
// a buffer of its own.
func (c *Client) batchBuffer() *[]byte {
	if c.links == nil {
		return new([]byte)
	}
	return batchBuffers.Get().(*[]byte)
}

func (c *Client) keepBatchBuffer(buf *[]byte) {
	if c.links != nil && cap(*buf) <= mostKeptBatch {
		batchBuffers.Put(buf)
	}
}
