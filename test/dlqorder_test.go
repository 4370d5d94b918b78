package test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// ofStreams are dead letters of three source streams, n in all: the one of message i is the i-th that was stored. It returns what a sidecar
// must be told of the streams, in the environment and as an option.
func (w *world) ofStreams(n int) (env []string, option func(*config.Config)) {
	w.t.Helper()
	names := []string{stream, "AUX", "ZED"} // by name the one whose entries come first is not the first
	for _, name := range names {
		if name != stream {
			w.streamOf(natsjs.StreamConfig{Name: name, Subjects: []string{strings.ToLower(name) + ".>"}})
		}
		w.streamOf(natsjs.StreamConfig{Name: name + "_DLQ", Subjects: []string{"dlq." + name + ".*.>"}})
	}
	for i := range n {
		name := names[[]int{2, 0, 1, 1, 0, 2, 2, 2, 0, 1}[i%10]]
		m := letter(i+1, func(h nats.Header) { h["Dlq-Stream"] = []string{name} })
		m.Subject = "dlq." + name + ".worker.orders.a"
		w.buryOne(m)
	}
	env = w.environment(
		"SIDECAR_CONSUMERS_1_STREAM=AUX", "SIDECAR_CONSUMERS_1_DURABLE="+durable,
		"SIDECAR_CONSUMERS_2_STREAM=ZED", "SIDECAR_CONSUMERS_2_DURABLE="+durable)
	return env, func(c *config.Config) {
		for _, name := range names[1:] {
			other := c.Consumers[0]
			other.Stream = name
			c.Consumers = append(c.Consumers, other)
		}
	}
}

// fromTo are the numbers from one to the other, both included.
func fromTo(from, to uint64) (all []uint64) {
	for n := from; n <= to; n++ {
		all = append(all, n)
	}
	return all
}

func messagesOf(all []listed) (sequences []uint64) {
	for _, l := range all {
		sequences = append(sequences, l.Sequence)
	}
	return sequences
}

// What is the oldest is so in all DLQ streams, in a list, in what a limit selects, and at the app.
func TestSeveralDLQStreamsInOrderOfArrival(t *testing.T) {
	w := newWorld(t)
	env, _ := w.ofStreams(30)
	ok := func(args ...string) string {
		t.Helper()
		got := w.dlqWith(env, args...)
		if got.code != 0 {
			t.Fatalf("%q: %+v", args, got)
		}
		return got.out
	}
	list := func(args ...string) []uint64 {
		t.Helper()
		return messagesOf(lines[listed](t, ok(append([]string{"list", "--json"}, args...)...)))
	}
	if got := list(); !slices.Equal(got, fromTo(1, 30)) {
		t.Errorf("listed %v", got)
	}
	for _, limit := range []uint64{1, 2, 7, 29, 30, 31} {
		if got := list("--limit", fmt.Sprint(limit)); !slices.Equal(got, fromTo(1, min(limit, 30))) {
			t.Errorf("the oldest %d are %v", limit, got)
		}
	}
	if got := list("--stream", "ZED_DLQ"); !slices.Equal(got, []uint64{1, 6, 7, 8, 11, 16, 17, 18, 21, 26, 27, 28}) {
		t.Errorf("of one stream: %v", got)
	}
	if out := ok("stats", "--json", "--limit", "4"); !strings.Contains(out, `"entries":4,`) {
		t.Errorf("%s", out)
	}
	ok("rm", "--limit", "5", "--yes")
	if got := list(); !slices.Equal(got, fromTo(6, 30)) {
		t.Errorf("after the removal of the oldest five: %v", got)
	}
	ok("replay", "--limit", "6", "--rate", "0", "--yes")
	ok("replay", "--rate", "0", "--yes")
	var called []uint64
	for _, c := range w.app.all() {
		called = append(called, c.seq)
	}
	if !slices.Equal(called, fromTo(6, 30)) || len(list()) != 0 {
		t.Errorf("the app got %v", called)
	}
}

// The pages of the API go through all DLQ streams by time, either way, and what is stored or removed between two pages moves nothing.
func TestPagesOverSeveralDLQStreams(t *testing.T) {
	w := newWorld(t)
	_, others := w.ofStreams(30)
	s := w.running(others)
	walk := func(order string, limit int, between func(page int)) (all []uint64) {
		t.Helper()
		for n, after := 0, ""; ; n++ {
			var p page
			path := fmt.Sprintf("/api/dlq?order=%s&limit=%d&after=%s", order, limit, url.QueryEscape(after))
			if code := s.admin.ask(t, "GET", path, "", &p); code != 200 || len(p.Entries) > limit {
				t.Fatalf("%s: %d %+v", path, code, p)
			}
			for _, e := range p.Entries {
				all = append(all, e.Sequence)
			}
			if after = p.Next; after == "" {
				return all
			}
			between(n)
		}
	}
	nothing := func(int) {}
	backwards := fromTo(1, 30)
	slices.Reverse(backwards)
	for _, limit := range []int{1, 4, 29, 30, 100} {
		if got := walk("oldest", limit, nothing); !slices.Equal(got, fromTo(1, 30)) {
			t.Errorf("pages of %d, oldest first: %v", limit, got)
		}
		if got := walk("newest", limit, nothing); !slices.Equal(got, backwards) {
			t.Errorf("pages of %d, newest first: %v", limit, got)
		}
	}
	if code := s.admin.ask(t, "GET", "/api/dlq?after=OTHER_DLQ:2", "", nil); code != 400 {
		t.Errorf("a cursor of another stream: %d", code)
	}
	tool := w.dlqWith(nil, "list", "--json", "--admin", string(s.admin), "--limit", "12")
	if got := messagesOf(lines[listed](t, tool.out)); !slices.Equal(got, fromTo(1, 12)) {
		t.Errorf("by the tool: %+v", tool)
	}
	got := walk("newest", 8, func(page int) {
		if page > 0 {
			return
		}
		for i, name := range []string{"ZED", "AUX", stream} { // newer than all
			m := letter(31+i, func(h nats.Header) { h["Dlq-Stream"] = []string{name} })
			m.Subject = "dlq." + name + ".worker.orders.a"
			w.buryOne(m)
		}
		w.must(w.deleted("AUX_DLQ", 9)) // message 30, which was on the page
		w.must(w.deleted("ZED_DLQ", 1)) // message 1, which is on the last
	})
	if !slices.Equal(got, backwards[:29]) {
		t.Errorf("with changes under way: %v", got)
	}
	bounded := s.admin.many(t, "/api/dlq/rm", `{"up_to": ["AUX_DLQ:2", "ORDERS_DLQ:2", "ZED_DLQ:2"], "dry_run": true}`)
	limited := s.admin.many(t, "/api/dlq/rm", `{"limit": 5, "dry_run": true}`)
	if string(limited) != string(bounded) || !strings.Contains(string(limited), `"selected":5`) {
		t.Errorf("the oldest five: %s\nare not those that bound them: %s", limited, bounded)
	}
}

// deleted deletes one message.
func (w *world) deleted(name string, seq uint64) error {
	ctx, cancel := within()
	defer cancel()
	s, err := w.js.Stream(ctx, name)
	if err != nil {
		return err
	}
	return s.DeleteMsg(ctx, seq)
}
