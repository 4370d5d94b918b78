package forward

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jetsidecar/jetsidecar/policy"
)

// results reads what the body of an answer says of the messages of a batch. A body that is not about results says nothing, nor does one
// whose results are the app's own. One that has results for the batch, and of which it is not clear what it says, or of which message,
// leaves a doubt: then no message that it does not name is to be done by the answer. Nothing that the app said has failed is ever taken for
// done.
func results(body []byte, ids func() map[string][]int, messages int) (items []policy.Outcome, doubt string) {
	large := len(body) >= readBytes
	body = trimJSON(bytes.TrimPrefix(body, []byte("\ufeff")))
	if !large && !mentions(body, `"results"`) {
		return nil, ""
	}
	if large {
		if found, open := begun(body, ids()); found || open {
			return nil, "the answer to the batch is larger than " + strconv.Itoa(readBytes) + " bytes, and may have results in the rest"
		}
		return nil, ""
	}
	var answer struct{ Results json.RawMessage }
	if err := json.Unmarshal(body, &answer); err != nil {
		if found, _ := begun(body, ids()); found {
			return nil, "the results of the batch cannot be read: " + oneLine(err)
		}
		return nil, ""
	}
	var all []json.RawMessage
	if json.Unmarshal(answer.Results, &all) != nil || len(all) == 0 {
		return nil, ""
	}
	return matched(all, ids(), messages)
}

// matched finds the message of each result. One that is named twice gets the more careful verdict. Of an id that several messages
// have nothing is believed but that they are done, or to be tried again.
func matched(all []json.RawMessage, ids map[string][]int, messages int) (items []policy.Outcome, doubt string) {
	for _, raw := range all {
		r := readResult(raw)
		meant := ids[r.id]
		if !r.acts && !(r.text && len(meant) > 0) {
			continue // the app's own
		}
		if items == nil {
			items = make([]policy.Outcome, messages)
		}
		if len(meant) == 0 && r.outcome.Action != policy.Ack && r.outcome.Action != policy.Drop {
			doubt = "the results of the batch name a message that is not in it: " + r.id[:min(len(r.id), 100)]
		}
		if len(meant) > 1 && r.outcome.Action != policy.Ack {
			r.outcome.Action, r.outcome.Error = policy.Retry, because("the id is that of several messages of the batch", r.outcome.Reason)
		}
		for _, i := range meant {
			items[i] = agreed(items[i], r.outcome)
		}
	}
	return items, doubt
}

// agreed is the more careful of what two results say of a message.
func agreed(one, other policy.Outcome) policy.Outcome {
	switch {
	case one.Kind == 0:
		return other
	case one.Action == other.Action:
		return one
	case careful(other.Action) > careful(one.Action):
		one = other
	}
	one.Error = because("the results of the batch name the message twice, with different actions", one.Reason)
	return one
}

// because is what is not clear of a message, with the reason that the app gave.
func because(what, reason string) string {
	if reason == "" {
		return what
	}
	return what + ": " + reason
}

// unescaped is an id as an app reads it.
func unescaped(id []byte) string {
	if bytes.IndexByte(id, '\\') < 0 {
		return string(id)
	}
	var text string
	_ = json.Unmarshal([]byte(`"`+string(id)+`"`), &text) // it was written as JSON here
	return text
}

// careful orders verdicts by how little can be lost by them.
func careful(v policy.Verdict) int {
	switch v {
	case policy.Retry:
		return 3
	case policy.DLQ:
		return 2
	case policy.Drop:
		return 1
	default:
		return 0
	}
}

// result is an element of the list. It is about a message of the batch if it has an action, or as its id a text that is the id of one.
type result struct {
	id      string
	text    bool // the id is one
	acts    bool // there is an action
	outcome policy.Outcome
}

// readResult reads one result. An action that is none is a retry: the app meant to say something of the message.
func readResult(raw json.RawMessage) result {
	var fields struct {
		ID         json.RawMessage
		Action     json.RawMessage
		Reason     json.RawMessage
		RetryAfter json.RawMessage `json:"retry_after"`
	}
	_ = json.Unmarshal(raw, &fields) // what is no object says nothing, and names no message
	r := result{id: textOf(fields.ID), text: bytes.HasPrefix(fields.ID, []byte{'"'}), acts: len(fields.Action) > 0 && string(fields.Action) != "null", outcome: policy.Outcome{Kind: policy.Answered, Response: bytes.Clone(raw[:min(len(raw), keptBytes)])}}
	word := textOf(fields.Action)
	action, ok := policy.ParseAction(word)
	if !ok {
		r.outcome.Action, r.outcome.Reason = policy.Retry, "unknown action "+strconv.QuoteToASCII(word[:min(len(word), 100)])
		return r
	}
	reason := textOf(fields.Reason)
	r.outcome.Action, r.outcome.Reason = action, strings.Clone(reason[:min(len(reason), keptBytes)])
	r.outcome.RetryAfter = later(fields.RetryAfter, time.Now())
	return r
}

// textOf is the text of a JSON string, and of any other value what stands there.
func textOf(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return string(raw)
	}
	return text
}

// later reads a delay: a number of seconds, or text as in a Retry-After header. Nonsense is ignored.
func later(raw json.RawMessage, now time.Time) time.Duration {
	var seconds float64
	if json.Unmarshal(raw, &seconds) != nil {
		later, _ := policy.ParseRetryAfter(textOf(raw), now)
		return later
	}
	if d := seconds * float64(time.Second); d < math.MaxInt64 {
		return max(time.Duration(d), 0)
	}
	return math.MaxInt64
}
