//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// mostBatch is how many messages a request has at most in any plan.
const mostBatch = 40

// batchOf is how many messages a request may have in the plan of a seed: mostly one.
func batchOf(seed uint64) int {
	if seed%8 != 5 {
		return 1
	}
	return 1 + int(hash(seed, 5)%mostBatch)
}

// batchWait is how long a batch waits for more messages.
func (p plan) batchWait() time.Duration { return time.Duration(hash(p.Seed, 6)%40) * ms }

// leases are how many messages a sidecar may have leased.
func (p plan) leases() int { return concurrency*max(p.Batch, 1) + prefetch }

// item is a message as it comes in a batch.
type item struct {
	ID        string `json:"id"`
	Sequence  uint64 `json:"sequence"`
	Delivered uint64 `json:"num_delivered"`
	Data      string `json:"data"`
}

// manner is how the app answers a batch.
type manner int

// The manners. The app is not sure of itself.
const (
	byItem  manner = iota // what is not accepted is named
	byAll                 // each is named, and one that is not there, as done
	asWhole               // one status for all, by the first that is not accepted
	broken                // as whole, or with results that are cut off
)

// mannerOf is decided by the seed, the first message, and how often that came.
func mannerOf(seed uint64, first *call, size int) manner {
	switch n := hash(seed, uint64(first.index), first.delivered, uint64(size)) % 16; {
	case n < 8:
		return byItem
	case n < 11:
		return byAll
	case n < 15:
		return asWhole
	default:
		return broken
	}
}

// itemsOf reads a batch.
func itemsOf(body []byte) (items []item, err error) {
	for line := range bytes.Lines(body) {
		var i item
		if err := json.Unmarshal(line, &i); err != nil {
			return nil, err
		}
		items = append(items, i)
	}
	if len(items) == 0 {
		return nil, fmt.Errorf("a batch without messages")
	}
	return items, nil
}

// answerBatch makes one answer of what the app would say of each message alone. The calls get what is said of theirs.
func answerBatch(seed uint64, calls []*call) (whole reply, body []byte) {
	m := mannerOf(seed, calls[0], len(calls))
	for _, c := range calls {
		whole.delay = max(whole.delay, c.reply.delay)
		r := c.reply
		if (r.hang || r.reset) && (len(calls) == 1 || hash(seed, uint64(c.index), 7)%4 == 0) {
			r.delay, r.shared = whole.delay, len(calls) > 1
			share(calls, r)
			return r, nil
		}
		if r.hang || r.reset {
			c.reply = reply{status: 503} // the others need not wait for it
		}
	}
	if m == asWhole || m == broken && len(calls) == 1 {
		return answerAsWhole(seed, calls, whole.delay)
	}
	whole.status, body = http.StatusOK, resultsOf(calls, m == byAll || m == broken)
	if m == broken {
		whole.shared, whole.cut = true, hash(seed, uint64(calls[0].index), 8)%2 == 0
		share(calls, whole)
		if !whole.cut {
			body = body[:len(body)-1]
		}
	}
	return whole, body
}

// answerAsWhole answers as an app does that knows of no results.
func answerAsWhole(seed uint64, calls []*call, delay time.Duration) (whole reply, body []byte) {
	body = []byte("answer\n")
	i := slices.IndexFunc(calls, func(c *call) bool { return c.reply.status != http.StatusOK || c.reply.action != "" })
	if i < 0 {
		return reply{status: http.StatusOK, delay: delay}, body
	}
	whole = calls[i].reply
	whole.delay, whole.shared = delay, len(calls) > 1
	if whole.status == http.StatusServiceUnavailable && hash(seed, uint64(calls[i].index), 9)%2 == 0 {
		whole.status = http.StatusInternalServerError
	}
	share(calls, whole)
	return whole, body
}

func share(calls []*call, r reply) {
	for _, c := range calls {
		c.reply = r
	}
}

// resultsOf is what the app says item by item.
func resultsOf(calls []*call, everything bool) []byte {
	type result struct {
		ID     string `json:"id"`
		Action string `json:"action"`
		Reason string `json:"reason,omitempty"`
	}
	results := []result{}
	for _, c := range calls {
		switch {
		case c.reply.rejects():
			results = append(results, result{c.id, "dlq", "no"})
		case c.reply.action == "drop":
			results = append(results, result{c.id, "drop", ""})
		case !c.reply.accepts():
			results = append(results, result{c.id, "retry", ""})
		case everything:
			results = append(results, result{c.id, "ack", ""})
		}
	}
	if everything {
		results = append(results, result{"nobody", "ack", ""})
	}
	text, err := json.Marshal(map[string]any{"results": results})
	if err != nil {
		panic(err) // it is text
	}
	return text
}

// batches holds that no request has too many messages, and that what was answered comes again as another attempt, or in the same one with
// fewer neighbours after an answer that it shared with others, or at its limit where the breaker may hold.
func (k *checker) batches() {
	for _, c := range k.calls {
		if c.size > max(k.plan.Batch, 1) {
			k.broken("batches are bounded", fmt.Sprintf("%d messages in a request of sidecar %s", c.size, c.by))
		}
	}
	for index, cs := range k.byIndex {
		for n, c := range cs[:len(cs)-1] {
			again := cs[n+1]
			same := again.by == c.by && again.delivered == c.delivered
			halved := c.reply.shared && again.size < c.size
			holds := c.delivered >= k.plan.MaxDeliver && k.lives[c.by].breaker
			if same && !halved && !holds && c.given && k.arrived(c) && !c.reply.accepts() && !k.disturbed(c.by, c.begun, again.begun) {
				k.broken("an answer is an attempt", fmt.Sprintf("called again as attempt %d", c.delivered), index)
			}
		}
	}
}
