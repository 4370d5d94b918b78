//go:build unix

package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// nature is what the app does with a message when nothing else is wrong.
type nature string

// The natures of messages.
const (
	good     nature = "good"     // 200 at once, or after some hundred milliseconds
	long     nature = "long"     // 200 after more than the ack wait
	flaky    nature = "flaky"    // 503 once or twice, then 200
	hangs    nature = "hangs"    // no answer the first time, then 200
	resets   nature = "resets"   // the connection is reset the first time, then 200
	dropped  nature = "dropped"  // Sidecar-Action: drop
	poison   nature = "poison"   // 422
	turned   nature = "turned"   // 200 with Sidecar-Action: dlq
	hopeless nature = "hopeless" // always 503
)

var natures = []struct {
	nature nature
	share  uint64 // of 100
}{{good, 60}, {long, 3}, {flaky, 12}, {hangs, 2}, {resets, 5}, {dropped, 5}, {poison, 7}, {turned, 3}, {hopeless, 3}}

// natureOf is decided by the seed and the message's number.
func natureOf(seed uint64, index int) nature {
	n := hash(seed, uint64(index)) % 100
	for _, s := range natures {
		if n < s.share {
			return s.nature
		}
		n -= s.share
	}
	return good
}

// quick reports whether a message is accepted at once.
func quick(seed uint64, index int) bool {
	return natureOf(seed, index) == good && answerTo(seed, index, 0).delay < 100*ms
}

// anyOf is any message.
func anyOf(uint64, int) bool { return true }

// rejected reports whether the app rejects messages of this nature by its answer.
func (n nature) rejected() bool { return n == poison || n == turned }

// bodyOf is a message's body. It says which message it is, wherever it turns up.
func bodyOf(seed uint64, index int) []byte {
	return fmt.Appendf(nil, "%d %s %s", index, natureOf(seed, index), strings.Repeat("x", int(hash(seed, uint64(index), 2)%2000)))
}

// indexOf reads which message a body is of; -1 if it is none.
func indexOf(body []byte) int {
	number, _, _ := strings.Cut(string(body[:min(len(body), 20)]), " ")
	index, err := strconv.Atoi(number)
	if err != nil {
		return -1
	}
	return index
}

// idOf is the message's Nats-Msg-Id; half of them have none.
func idOf(seed uint64, index int) string {
	if hash(seed, uint64(index), 3)%2 == 0 {
		return ""
	}
	return fmt.Sprintf("campaign-%d-%d", seed, index)
}

// reply is what the app does with one call.
type reply struct {
	delay  time.Duration
	status int
	action string // Sidecar-Action
	hang   bool
	reset  bool
	cut    bool // in the middle of a 200
	shared bool // with other messages of a batch, none of which it accepts or names
}

// accepts reports whether the message is done by this answer.
func (r reply) accepts() bool {
	return !r.shared && r.status/100 == 2 && r.action != "dlq"
}

// rejects reports whether it belongs into the DLQ by this answer.
func (r reply) rejects() bool { return !r.shared && (r.status == 422 || r.action == "dlq") }

func (r reply) String() string {
	switch {
	case r.shared:
		r.shared = false
		return r.String() + " with others"
	case r.cut:
		return "cut off"
	case r.hang:
		return "hung"
	case r.reset:
		return "reset"
	case r.action != "":
		return fmt.Sprintf("%d %s", r.status, r.action)
	default:
		return strconv.Itoa(r.status)
	}
}

// answerTo is the answer to a message that was answered so often before.
func answerTo(seed uint64, index, before int) reply {
	h := hash(seed, uint64(index), 4)
	r := reply{status: 200, delay: time.Duration(h%20) * ms}
	if h>>20%8 == 0 {
		r.delay = time.Duration(100+h%500) * ms
	}
	switch natureOf(seed, index) {
	case long:
		r.delay = ackWait + 600*ms
	case flaky:
		if before < 1+int(h>>30%2) {
			r.status = 503
		}
	case hangs:
		r.hang = before == 0
	case resets:
		r.reset = before == 0
	case dropped:
		r.action = "drop"
	case turned:
		r.action = "dlq"
	case poison:
		r.status = 422
	case hopeless:
		r.status = 503
	}
	return r
}
