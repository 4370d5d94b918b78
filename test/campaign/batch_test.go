//go:build unix

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// some are calls of one request.
func some(replies ...reply) (calls []*call) {
	for i, r := range replies {
		calls = append(calls, &call{index: i, delivered: 1, id: string(rune('a' + i)), size: len(replies), reply: r})
	}
	return calls
}

// Whatever the manner: no message is told otherwise than it is noted, and none is noted as accepted or rejected that the answer may not
// accept or reject.
func TestAnswersOfBatches(t *testing.T) {
	manners := map[manner]int{}
	for seed := range uint64(300) {
		for _, size := range []int{1, 2, 7} {
			var replies []reply
			for i := range size {
				replies = append(replies, answerTo(seed, i, 0))
			}
			calls := some(replies...)
			manners[mannerOf(seed, calls[0], size)]++
			whole, body := answerBatch(seed, calls)
			if size == 1 && calls[0].reply.shared {
				t.Fatalf("seed %d: one message shares its answer", seed)
			}
			var said struct {
				Results []struct{ ID, Action string }
			}
			readable := json.Unmarshal(body, &said) == nil
			named := map[string]string{}
			for _, r := range said.Results {
				named[r.ID] = r.Action
			}
			for _, c := range calls {
				all := whole.status != http.StatusOK || whole.action != "" || whole.hang || whole.reset || whole.cut
				switch {
				case c.reply.shared && (all || !readable && strings.HasPrefix(string(body), `{"results":[{`)):
				case all && size == 1:
				case !c.reply.shared && !all && c.reply.rejects() == (named[c.id] == "dlq") && c.reply.accepts() == (named[c.id] == "" || named[c.id] == "ack" || named[c.id] == "drop"):
				default:
					t.Fatalf("seed %d: %s is noted, %s and %s are said", seed, c.reply, whole, body)
				}
			}
		}
	}
	if len(manners) != 4 {
		t.Errorf("manners %v", manners)
	}
}

func TestAppReadsBatches(t *testing.T) {
	s := &appSlot{app: &app{seed: 1, answered: map[int]int{}}, open: map[*call]bool{}}
	post := func(kind, body string) (*request, error) {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Content-Type", kind)
		r.Header.Set("Nats-Sequence", "9")
		return s.begin(r, []byte(body))
	}
	q, err := post("application/x-ndjson", `{"id":"x","sequence":4,"num_delivered":2,"data":"17 good x"}`+"\n"+`{"id":"y","sequence":5,"num_delivered":1,"data":"18 good x"}`+"\n")
	if err != nil || len(q.calls) != 2 || q.calls[0].index != 17 || q.calls[0].delivered != 2 || q.calls[1].seq != 5 || q.calls[1].size != 2 {
		t.Errorf("read %+v: %v", q, err)
	}
	if q, err := post("", "19 good x"); err != nil || len(q.calls) != 1 || q.calls[0].index != 19 || q.calls[0].size != 0 || q.calls[0].seq != 9 {
		t.Errorf("read %+v: %v", q, err)
	}
	for _, bad := range []string{"", "{\n", "x\n"} {
		if _, err := post("application/x-ndjson", bad); err == nil {
			t.Errorf("%q is a batch", bad)
		}
	}
	s.set(appFails)
	q, err = post("application/x-ndjson", `{"id":"x","data":"17 good x"}`+"\n"+`{"id":"y","data":"18 good x"}`)
	if err != nil || q.reply.status != http.StatusServiceUnavailable || !q.calls[1].reply.shared || !q.calls[1].outage {
		t.Errorf("in an outage %+v: %v", q, err)
	}
}
