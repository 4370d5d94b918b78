package test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// batched is an option for a sidecar that sends batches of so many messages.
func batched(most int, change ...func(*config.Consumer)) option {
	return consumer(func(c *config.Consumer) {
		c.Batch.MaxMessages, c.Batch.MaxWait, c.Concurrency = most, 50*time.Millisecond, 4
		for _, f := range change {
			f(c)
		}
	})
}

// item is a message as an app reads it in a batch.
type item struct {
	ID             string              `json:"id"`
	Stream         string              `json:"stream"`
	Subject        string              `json:"subject"`
	Sequence       uint64              `json:"sequence"`
	TimeStamp      time.Time           `json:"time_stamp"`
	NumDelivered   uint64              `json:"num_delivered"`
	MaxDeliver     uint64              `json:"max_deliver"`
	NumPending     *uint64             `json:"num_pending"`
	IdempotencyKey string              `json:"idempotency_key"`
	Headers        map[string][]string `json:"headers"`
	Data           *string             `json:"data"`
	DataBase64     *string             `json:"data_base64"`
}

// body is the message's bytes.
func (i item) body() string {
	if i.Data != nil {
		return *i.Data
	}
	b, _ := base64.StdEncoding.DecodeString(*i.DataBase64)
	return string(b)
}

// verdict is what the app says of a message: "" or the action, which "accepts" it or not.
type verdict struct {
	action, reason string
	retryAfter     int
}

// batchApp reads batches, and answers each by its messages.
type batchApp struct {
	w *world

	mu    sync.Mutex
	all   []*batchCall
	times map[uint64]int    // how often each message came
	taken map[uint64]int    // how often it was accepted
	ids   map[uint64]string // by sequence
}

// batchCall is one request.
type batchCall struct {
	items  []item
	header map[string][]string
	begun  time.Time
	reply  reply
}

// batchApp makes the world's app one that reads batches. answer says what it does with one; what is not rejected in results of a 200 is
// accepted.
func (w *world) batchApp(answer func(b *batchCall) (reply, map[string]verdict)) *batchApp {
	a := &batchApp{w: w, times: map[uint64]int{}, taken: map[uint64]int{}, ids: map[uint64]string{}}
	w.app.on(func(c *call) reply { return a.serve(c, answer) })
	return a
}

func (a *batchApp) serve(c *call, answer func(b *batchCall) (reply, map[string]verdict)) reply {
	b := &batchCall{header: c.header, begun: c.begun}
	if c.header.Get("Content-Type") != "application/x-ndjson" || c.header.Get("Sidecar-Batch") != fmt.Sprint(strings.Count(c.body, "\n")) {
		a.w.t.Errorf("headers %v of %d lines", c.header, strings.Count(c.body, "\n"))
	}
	for line := range strings.Lines(c.body) {
		var i item
		if err := json.Unmarshal([]byte(line), &i); err != nil || i.Data == nil && i.DataBase64 == nil {
			a.w.t.Errorf("line %q: %v", line, err)
		}
		b.items = append(b.items, i)
	}
	a.came(b)
	rep, verdicts := answer(b)
	a.answered(b, &rep, verdicts)
	return rep
}

func (a *batchApp) came(b *batchCall) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, b)
	for _, i := range b.items {
		a.times[i.Sequence]++
		if id, ok := a.ids[i.Sequence]; ok && id != i.ID {
			a.w.t.Errorf("message %d has the ids %s and %s", i.Sequence, id, i.ID)
		}
		a.ids[i.Sequence] = i.ID
	}
}

func (a *batchApp) answered(b *batchCall, rep *reply, verdicts map[string]verdict) {
	a.mu.Lock()
	defer a.mu.Unlock()
	b.reply = *rep
	if len(verdicts) > 0 {
		type result map[string]any
		var results []result
		for id, v := range verdicts {
			r := result{"id": id, "action": v.action}
			if v.reason != "" {
				r["reason"] = v.reason
			}
			if v.retryAfter > 0 {
				r["retry_after"] = v.retryAfter
			}
			results = append(results, r)
		}
		text, _ := json.Marshal(map[string]any{"results": results})
		rep.body = string(text)
	}
	for _, i := range b.items {
		v := verdicts[i.ID].action
		if rep.accepted() && (v == "" || v == "ack" || v == "drop") {
			a.taken[i.Sequence]++
		}
	}
}

// calls are the requests so far.
func (a *batchApp) calls() []batchCall {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []batchCall
	for _, b := range a.all {
		all = append(all, *b)
	}
	return all
}

// attempts are the delivery numbers with which a message came, each once.
func (a *batchApp) attempts(seq uint64) (numbers []uint64) {
	for _, b := range a.calls() {
		for _, i := range b.items {
			if i.Sequence == seq && !slices.Contains(numbers, i.NumDelivered) {
				numbers = append(numbers, i.NumDelivered)
			}
		}
	}
	return numbers
}

// anyFresh reports whether a message of the batch came for the first time.
func (b *batchCall) anyFresh() bool {
	return slices.ContainsFunc(b.items, func(i item) bool { return i.NumDelivered == 1 })
}

// balance holds the promise of each message: it was accepted, or is in the DLQ once, and not both; with mayRepeat it may have been
// accepted several times.
func (a *batchApp) balance(mayRepeat bool) {
	a.w.t.Helper()
	a.w.waitDone()
	dead := a.w.ledgerOfDead()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, seq := range a.w.published {
		_, buried := dead[seq]
		taken := a.taken[seq]
		if silent := a.w.silent[seq]; silent && taken == 0 && !buried {
			continue
		}
		if buried == (taken > 0) && !(mayRepeat && buried) || taken > 1 && !mayRepeat {
			a.w.t.Errorf("message %d: accepted %d times, dead-lettered %v", seq, taken, buried)
		}
	}
}

// okay answers 200 without results.
func okay(*batchCall) (reply, map[string]verdict) { return reply{status: 200}, nil }

// gather publishes messages before a sidecar is there to see them one by one, and returns their sequences.
func (w *world) publishMany(n int, body func(int) string) (seqs []uint64) {
	w.t.Helper()
	for i := range n {
		seqs = append(seqs, w.publish("orders.a", body(i)))
	}
	return seqs
}

func TestBatches(t *testing.T) {
	w := newWorld(t)
	a := w.batchApp(okay)
	first := w.publish("orders.new", `{"n":1}`, "Nats-Msg-Id: one", "X-Many: a", "X-Many: b", "Trace: \"quoted\"")
	binary := w.publish("orders.new", "\xff\x00bin")
	w.publishMany(98, func(int) string { return "text" })
	s := w.running(batched(25, func(c *config.Consumer) { c.Batch.MaxWait = stall }))
	a.balance(false)
	for _, b := range a.calls() {
		if len(b.items) > 25 {
			t.Errorf("a batch of %d", len(b.items))
		}
		if got := b.header["Nats-Stream"]; len(got) != 1 || got[0] != stream || b.header["Nats-Consumer"][0] != durable {
			t.Errorf("headers %v", b.header)
		}
	}
	if n := len(a.calls()); n > 30 {
		t.Errorf("%d requests for 100 messages", n) // the bound widens from one
	}
	one := a.find(first)
	if one.Stream != stream || one.Subject != "orders.new" || one.NumDelivered != 1 || one.MaxDeliver != 10 || one.NumPending == nil ||
		one.IdempotencyKey != "one" || one.body() != `{"n":1}` || one.Data == nil || time.Since(one.TimeStamp) > time.Minute ||
		one.ID != fmt.Sprintf("ORDERS:%d:%d", first, one.TimeStamp.UnixNano()) {
		t.Errorf("%+v", one)
	}
	if h := one.Headers; len(h) != 3 || len(h["X-Many"]) != 2 || h["X-Many"][1] != "b" || h["Trace"][0] != `"quoted"` || h["Nats-Msg-Id"][0] != "one" {
		t.Errorf("headers %v", h)
	}
	if two := a.find(binary); two.DataBase64 == nil || two.body() != "\xff\x00bin" || two.IdempotencyKey != two.ID || len(two.Headers) != 0 {
		t.Errorf("%+v", two)
	}
	if got := counted(t, "ack", 100, s); got != 100 {
		t.Errorf("%v acked", got)
	}
	// One line a request, and none for a message that passed.
	w.must(s.stop())
	if lines, settled := s.log.lines("batch"), s.log.lines("settled"); len(lines) != len(a.calls()) || len(settled) != 0 {
		t.Errorf("%d lines of batches, %d of messages", len(lines), len(settled))
	}
}

func (a *batchApp) find(seq uint64) item {
	for _, b := range a.calls() {
		for _, i := range b.items {
			if i.Sequence == seq {
				return i
			}
		}
	}
	return item{}
}

// Verdicts message by message, of all kinds.
func TestBatchResults(t *testing.T) {
	w := newWorld(t)
	a := w.batchApp(func(b *batchCall) (reply, map[string]verdict) {
		vs := map[string]verdict{}
		for _, i := range b.items {
			switch kind := i.body(); {
			case kind == "retry" && i.NumDelivered == 1:
				vs[i.ID] = verdict{"retry", "later", 0}
			case kind == "wait" && i.NumDelivered == 1:
				vs[i.ID] = verdict{"Retry", "", 1}
			case kind == "dlq":
				vs[i.ID] = verdict{"DLQ", "bad one", 0}
			case kind == "drop":
				vs[i.ID] = verdict{"drop", "old", 0}
			case kind == "ack":
				vs[i.ID] = verdict{"ack", "", 0}
			case kind == "never":
				vs[i.ID] = verdict{"retry", "never", 0}
			case kind == "odd" && i.NumDelivered == 1:
				vs[i.ID] = verdict{"explode", "", 0}
			}
		}
		return reply{status: 200}, vs
	})
	kinds := []string{"good", "retry", "wait", "dlq", "drop", "ack", "never", "odd"}
	seqs := w.publishMany(40, func(i int) string { return kinds[i%len(kinds)] })
	s := w.running(batched(20, func(c *config.Consumer) { c.MaxDeliver = 3 }))
	w.waitDone()
	dead := map[uint64]entry{}
	for _, e := range w.waitDead(10) {
		dead[e.source()] = e
	}
	for i, seq := range seqs {
		kind, want := kinds[i%len(kinds)], 1
		switch kind {
		case "retry", "wait", "odd":
			want = 2
		case "never":
			want = 3
		}
		if got := a.attempts(seq); len(got) != want {
			t.Errorf("%s %d: attempts %v", kind, seq, got)
		}
		e, buried := dead[seq]
		if buried != (kind == "dlq" || kind == "never") {
			t.Errorf("%s %d: dead-lettered %v", kind, seq, buried)
		}
		if kind == "dlq" && (e.header.Get("Dlq-Reason") != "rejected" || e.header.Get("Dlq-Error") != "bad one" || e.header.Get("Dlq-Status") != "200" || !strings.HasPrefix(e.header.Get("Dlq-Response"), `{"action":"DLQ","id":"`) || e.body != "dlq") {
			t.Errorf("entry %v", e.header)
		}
		if kind == "never" && (e.header.Get("Dlq-Reason") != "max_deliver" || e.header.Get("Dlq-Deliveries") != "3") {
			t.Errorf("entry %v", e.header)
		}
	}
	if got := counted(t, "drop", 5, s); got != 5 {
		t.Errorf("%v dropped", got)
	}
	if times := a.gaps(seqs[2]); times[0] < time.Second {
		t.Errorf("it waited %s", times[0])
	}
}

// gaps are the times between the requests with a message.
func (a *batchApp) gaps(seq uint64) (gaps []time.Duration) {
	var last time.Time
	for _, b := range a.calls() {
		if slices.ContainsFunc(b.items, func(i item) bool { return i.Sequence == seq }) {
			if !last.IsZero() {
				gaps = append(gaps, b.begun.Sub(last))
			}
			last = b.begun
		}
	}
	return gaps
}

// What makes no sense in an answer never acks a message that the app may have meant.
func TestBatchResultsOfNoSense(t *testing.T) {
	for name, c := range map[string]struct {
		body  string
		retry bool // all that is not named
	}{
		"nothing":        {"", false},
		"text":           {"OK", false},
		"another object": {`{"status":"fine"}`, false},
		"no list":        {`{"results":null}`, false},
		"empty list":     {`{"results":[]}`, false},
		"broken":         {`{"results":[{"id":"x","action":"ret`, true},
		"a text":         {`{"results":"failed"}`, false},
		"its own count":  {`{"results":{"inserted":500}}`, false},
		"its own list":   {`{"results":[{"id":17,"status":"created"}]}`, false},
		"its own broken": {`{"results":[{"id":17,"status":"crea`, false},
		"unknown id":     {`{"results":[{"id":"nobody","action":"retry"}]}`, true},
		"unknown acked":  {`{"results":[{"id":"nobody","action":"ack"}]}`, false},
		"a number":       {`{"results":[4]}`, false},
		"huge":           {`{"results":[{"id":"nobody","action":"ack"}]` + strings.Repeat(" ", 2<<20) + `}`, true},
		"huge, later":    {`{"log":"` + strings.Repeat("x", 2<<20) + `","results":[{"id":"nobody","action":"retry"}]}`, true},
		"huge, its own":  {`{"results":[]` + strings.Repeat(" ", 2<<20) + `}`, false},
		"other case":     {`{"Results":[{"Id":"nobody","Action":"dlq"}]}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := w.batchApp(func(b *batchCall) (reply, map[string]verdict) {
				if c.retry && b.anyFresh() {
					return reply{status: 200, body: c.body, means: "retry"}, nil
				}
				return reply{status: 200, body: map[bool]string{false: c.body}[c.retry]}, nil
			})
			seqs := w.publishMany(10, func(int) string { return "x" })
			w.running(batched(10))
			a.balance(false)
			for _, seq := range seqs {
				if got := a.attempts(seq); c.retry != (len(got) > 1) {
					t.Errorf("message %d: attempts %v", seq, got)
				}
			}
			if dead := w.dead(); len(dead) != 0 {
				t.Errorf("%d dead letters", len(dead))
			}
		})
	}
}
