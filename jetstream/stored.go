package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Stored is a message as a stream has it.
type Stored struct {
	Seq     uint64
	Time    time.Time
	Subject string
	Header  map[string][]string // nil if there is none, or it cannot be parsed
	Body    []byte              // nil where only headers were read
	Size    int64               // of the body, in bytes
	// HeaderLost says that the message has a header block that cannot be parsed.
	HeaderLost bool
}

// StreamState is what a stream is and has.
type StreamState struct {
	Created     time.Time
	First, Last uint64    // sequences
	FirstTime   time.Time // when the first message was stored
	// Subjects are those that its messages can have; none where that cannot be said.
	Subjects []string
	// Listens are the subjects that it stores what is published on, as its messages' own or as another.
	Listens []string
	// Consumes says that the stream drops what was consumed: a work queue, or an interest stream.
	Consumes bool
	Sealed   bool
	// MostBytes is the size of the largest message that it takes, with headers; 0: it sets no limit.
	MostBytes int64
	// Keeps says that no message can be removed from the stream.
	Keeps bool
}

// StreamState looks a stream up. It returns ErrStreamNotFound if there is none.
func (c *Conn) StreamState(ctx context.Context, name string) (StreamState, error) {
	info, err := c.streamInfo(ctx, name)
	if err != nil {
		return StreamState{}, err
	}
	return StreamState{
		Created: info.Created, First: info.State.FirstSeq, Last: info.State.LastSeq,
		FirstTime: info.State.FirstTime, Subjects: storedSubjects(info.Config), Listens: info.Config.Subjects,
		Consumes: info.Config.Retention != natsjs.LimitsPolicy, Sealed: info.Config.Sealed,
		Keeps: info.Config.DenyDelete || info.Config.Sealed, MostBytes: int64(max(info.Config.MaxMsgSize, 0)),
	}, nil
}

// storedSubjects are the subjects that messages of a stream can have; none where that cannot be said: it takes messages from other streams, or
// gives them other subjects than they were published on.
func storedSubjects(c natsjs.StreamConfig) []string {
	if c.Mirror != nil || len(c.Sources) > 0 || c.SubjectTransform != nil {
		return nil
	}
	return c.Subjects
}

// Stored reads a message by its sequence; nil if the stream has none there. It is read from the stream's leader and not by
// direct get, which a publisher's headers can deceive and a replica that lags behind too.
func (c *Conn) Stored(ctx context.Context, stream string, seq uint64) (*Stored, error) {
	return c.stored(ctx, stream, map[string]any{"seq": seq})
}

func (c *Conn) stored(ctx context.Context, stream string, request map[string]any) (*Stored, error) {
	var answer struct {
		Message struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	err = c.api(ctx, "STREAM.MSG.GET."+stream, body, &answer)
	switch {
	case isMessageNotFound(err):
		return nil, nil
	case err != nil:
		return nil, apiError("reading a message of stream "+stream, err)
	}
	m := answer.Message
	s := &Stored{Seq: m.Seq, Time: m.Time, Subject: m.Subject, Body: m.Data, Size: int64(len(m.Data))}
	if len(m.Header) > 0 {
		h, err := nats.DecodeHeadersMsg(m.Header)
		s.Header, s.HeaderLost = h, err != nil
	}
	return s, nil
}

// RemoveStored removes a message from a stream, and reports whether it was there. It is ErrDenied if the user may not.
func (c *Conn) RemoveStored(ctx context.Context, stream string, seq uint64) (was bool, err error) {
	var answer struct {
		Success bool `json:"success"`
	}
	subject := "STREAM.MSG.DELETE." + stream
	err = c.permitted(ctx, func(ctx context.Context) error {
		return c.api(ctx, subject, []byte(`{"seq":`+strconv.FormatUint(seq, 10)+`,"no_erase":true}`), &answer)
	}, c.prefix+subject)
	switch {
	case isMessageNotFound(err):
		return false, nil
	case err != nil:
		return false, apiError("removing a message of stream "+stream, err)
	case !answer.Success:
		return false, fmt.Errorf("removing a message of stream %s: the server did not", stream)
	}
	return true, nil
}

// The answers to a removal of what is not there: just after another removal, and later. The second code is also that of other
// failures, which the description tells apart.
const (
	errSequenceNotFound natsjs.ErrorCode = 10043
	errDeleteFailed     natsjs.ErrorCode = 10057
	nothingToDelete                      = "no message found"
)

// isMessageNotFound reports whether the server says that it has no such message.
func isMessageNotFound(err error) bool {
	var api *natsjs.APIError
	if !errors.As(err, &api) {
		return false
	}
	switch api.ErrorCode {
	case errMessageNotFound, errSequenceNotFound:
		return true
	case errDeleteFailed:
		return api.Description == nothingToDelete
	}
	return false
}
