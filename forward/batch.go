package forward

import (
	"context"
	"strconv"
	"sync"

	"github.com/jetsidecar/jetsidecar/policy"
)

// batchType is the content type of a batch: one JSON object a line.
const batchType = "application/x-ndjson"

// headerBatch says how many messages a request holds.
const headerBatch = "Sidecar-Batch"

// BatchResult is what one request with several messages came to.
type BatchResult struct {
	Result
	// Items is what the answer says of each message, in the order of the messages; nil if it names none. One that it does not name
	// has the zero outcome: the answer as a whole decides over it.
	Items []policy.Outcome
}

// Batched makes the target one that is sent batches. A message that is forwarded to it alone is a batch of one.
func (t *Target) Batched() *Target {
	batched := *t
	batched.batch = true
	return &batched
}

// ForwardBatch sends several messages, at least one, in one request, as Forward does one. Of all but the first Sending is
// ignored.
func (c *Client) ForwardBatch(ctx context.Context, t *Target, ms []Message) BatchResult {
	buf := c.batchBuffer()
	body := (*buf)[:0]
	var w itemWriter
	for i := range ms {
		body = w.item(body, &ms[i])
	}
	first := &ms[0]
	r := BatchResult{Result: c.exchange(ctx, t, &Message{
		Stream: first.Stream, Consumer: first.Consumer, Body: body, Sending: first.Sending, batch: len(ms),
	})}
	*buf = body
	c.keepBatchBuffer(buf)
	if r.Kind == policy.Answered && r.Status/100 == 2 {
		var doubt string
		if r.Items, doubt = results(r.Response, ms); doubt != "" {
			c.warnResults(doubt)
			r.distrust(doubt)
		}
	}
	if len(r.Response) > keptBytes {
		r.Response = append([]byte(nil), r.Response[:keptBytes]...)
	}
	for i := range r.Items {
		if r.Items[i].Kind != 0 {
			r.Items[i].Status, r.Items[i].Response = r.Status, r.Response
		}
	}
	return r
}

// distrust lets no message be done by an answer of which it is not clear what it says of them.
func (r *BatchResult) distrust(doubt string) {
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

// batchFields appends the header lines of a batch.
func (c *Client) batchFields(dst []byte, m *Message) []byte {
	b := headerBuilder{buf: dst}
	b.checked(headerStream, m.Stream)
	b.checked(headerConsumer, m.Consumer)
	b.line(headerBatch, strconv.Itoa(m.batch))
	if !c.owned["Content-Type"] {
		b.line("Content-Type", batchType)
	}
	if !c.owned["User-Agent"] {
		b.line("User-Agent", c.agent)
	}
	return b.buf
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
