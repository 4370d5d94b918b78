package test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

// A replay is the request that the app got the first time, but for what says that it is one.
func TestReplayIsTheSameRequest(t *testing.T) {
	w := newWorld(t)
	w.app.on(each(reply{status: 422}, reply{status: 200}))
	seqs := []uint64{
		w.publish("orders.eu.new", `{"a":1}`, "Nats-Msg-Id: id-1", "X-Many: one", "X-Many: two", "x-many: three", "traceparent: 00-ab", "Content-Type: application/json"),
		w.publish("orders.us", ""),
		w.publish("orders.us", "x", "Nats-Msg-Id: id\x1b[31m"), // which HTTP cannot carry
		w.publish("orders.us", "x", "Nats-Msg-Id: id-2 "),      // which HTTP cuts
		w.publish("orders.us", "x", "Nats-Msg-Id: \u00a0"+strings.Repeat("i", 1500)),
		w.publish("orders.us", "x", "Nats-Msg-Id: id\xff"),
	}
	env := []string{"SIDECAR_CONSUMERS_0_PATH=/orders", "SIDECAR_CONSUMERS_0_METHOD=PUT", "SIDECAR_APP_HEADERS=X-Fixed=yes"}
	w.running(consumer(func(c *config.Consumer) { c.Path, c.Method = "/orders", "PUT" }), func(c *config.Config) { c.App.Headers = map[string]string{"X-Fixed": "yes"} })
	w.balance()
	if s := w.dlqWith(w.environment(env...), "replay", "--yes"); s.code != 0 || !strings.Contains(s.out, "6 of 6 entries replayed") || len(w.dead()) != 0 {
		t.Fatalf("%+v", s)
	}
	for _, seq := range seqs {
		calls := w.app.of(seq)
		if len(calls) != 2 {
			t.Fatalf("%d calls", len(calls))
		}
		first, again := calls[0], calls[1]
		if again.header.Get("Dlq-Replays") != "1" || again.delivered != "2" {
			t.Errorf("Dlq-Replays %q, delivered %q", again.header.Get("Dlq-Replays"), again.delivered)
		}
		for _, name := range []string{"Dlq-Replays", "Nats-Num-Delivered", "Nats-Num-Pending", "User-Agent"} {
			first.header.Del(name)
			again.header.Del(name)
		}
		if !maps.EqualFunc(first.header, again.header, slices.Equal) || first.body != again.body || first.uri != again.uri || first.method != again.method {
			t.Errorf("the first request was %s %s %v %q\nthe replay %s %s %v %q", first.method, first.uri, first.header, first.body, again.method, again.uri, again.header, again.body)
		}
	}
}

// What fails again stays, with the new cause; what passes goes. Headers do not grow.
func TestReplayThatFailsAgain(t *testing.T) {
	w := newWorld(t)
	w.app.on(always(reply{status: 422, header: map[string]string{"Sidecar-Reason": "no such customer"}, body: "first"}))
	bad := w.publish("orders.bad", "x", "Nats-Msg-Id: id-1", "Kept: yes")
	good := w.publish("orders.good", "x")
	w.running()
	w.balance()
	first := w.deadOf(bad)
	for n := 1; n <= 4; n++ {
		w.app.on(func(c *call) reply {
			if c.subject == "orders.good" {
				return reply{status: 200, header: map[string]string{"Sidecar-Action": "drop"}}
			}
			return reply{status: 500 + n, header: map[string]string{"Sidecar-Reason": fmt.Sprintf("reason %d", n)}, body: "again"}
		})
		s := w.dlq("replay", "--yes")
		if s.code != 1 || !strings.Contains(s.out, "1 failed again") || !strings.Contains(s.out, fmt.Sprintf("max_deliver     %d", 500+n)) || !strings.Contains(s.out, fmt.Sprintf("reason %d", n)) {
			t.Fatalf("%+v", s)
		}
		es := w.dead()
		if len(es) != 1 || es[0].source() != bad {
			t.Fatalf("%d entries", len(es))
		}
		e := es[0]
		stamp := first.header.Get("Nats-Msg-Id")
		want := map[string]string{
			"Nats-Msg-Id": fmt.Sprintf("%s:%d", stamp, n), "Dlq-Replays": strconv.Itoa(n), "Dlq-Deliveries": strconv.Itoa(n + 1), "Dlq-Status": strconv.Itoa(500 + n),
			"Dlq-Reason": "max_deliver", "Dlq-Error": fmt.Sprintf("reason %d", n), "Dlq-Response": "again", "Dlq-Msg-Id": "id-1", "Kept": "yes",
			"Dlq-Sequence": first.header.Get("Dlq-Sequence"), "Dlq-Time-Stamp": first.header.Get("Dlq-Time-Stamp"), "Dlq-Subject": "orders.bad",
		}
		for name, value := range want {
			if got := e.header[name]; !slices.Equal(got, []string{value}) {
				t.Errorf("%s: %q, want %q", name, got, value)
			}
		}
		if len(e.header) != len(first.header)+1 || e.body != "x" {
			t.Errorf("%v", e.header)
		}
	}
	if n := len(w.app.of(good)); n != 2 {
		t.Errorf("the good one was called %d times", n)
	}
	s := w.dlq("replay", "--max-replays", "4")
	if calls := len(w.app.of(bad)); s.code != 1 || calls != 5 || !strings.Contains(s.out, "it was replayed 4 times already") {
		t.Errorf("%+v, %d calls", s, calls)
	}
}

// A replay that the app accepts is remembered as any answer: a later duplicate is acked without a call.
func TestReplayIsRemembered(t *testing.T) {
	w := newWorld(t, func(c *natsjs.StreamConfig) { c.Duplicates = 100 * time.Millisecond })
	id := "id\x1b" + strings.Repeat("1", 1500)
	w.app.on(always(reply{status: 422}))
	w.publish("orders.a", "x", "Nats-Msg-Id: "+id)
	kv := []string{"SIDECAR_CONSUMERS_0_DEDUPE_STORE=kv"}
	s := w.running(consumer(func(c *config.Consumer) { c.Dedupe.Store = "kv" }))
	w.waitDead(1)
	w.app.on(always(reply{status: 200}))
	if s := w.dlqWith(w.environment(kv...), "replay"); s.code != 0 {
		t.Fatalf("%+v", s)
	}
	w.publishAfterWindow("orders.a", "x", id)
	eventually(t, func() bool { return s.admin.verdicts("duplicate") == 1 }, text("the duplicate to be acked"))
	if n := w.app.count(); n != 2 {
		t.Errorf("%d calls", n)
	}
}

// A replay to the stream is one more message there, for every consumer, under an id of its own.
func TestReplayToStream(t *testing.T) {
	w := newWorld(t)
	w.app.on(always(reply{status: 422}))
	seq := w.publish("orders.eu", "body", "Nats-Msg-Id: id-1", "Kept: yes", "Kept: too")
	w.running()
	w.balance()
	e := w.deadOf(seq)
	at := w.list()[0].Time
	w.app.on(always(reply{status: 200}))
	if out := w.dlqOK("replay", "--to", "stream"); !strings.Contains(out, "1 of 1 entry replayed") || len(w.dead()) != 0 {
		t.Fatal(out)
	}
	m, ok := w.message(stream, seq+1)
	want := map[string][]string{"Kept": {"yes", "too"}, "Dlq-Replays": {"1"}, "Nats-Msg-Id": {fmt.Sprintf("%s:%d:%d", dlq, e.seq, at.UnixNano())}}
	if !ok || m.subject != "orders.eu" || m.body != "body" || !maps.EqualFunc(m.header, want, slices.Equal) {
		t.Errorf("%v %+v", ok, m)
	}
	eventually(t, func() bool { return len(w.app.of(seq+1)) == 1 }, text("the call"))
	if got := w.app.of(seq + 1)[0].header.Get("Dlq-Replays"); got != "1" {
		t.Errorf("Dlq-Replays %q", got)
	}
}

// An entry whose stream does not take it stays, and it is said why.
func TestReplayToStreamThatDoesNotTakeIt(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*world)
		why    string
	}{
		"gone":          {func(w *world) { w.anew(stream) }, "stream does not exist"},
		"other subject": {func(w *world) { w.makeStream(func(c *natsjs.StreamConfig) { c.Subjects = []string{"other.>"} }) }, "does not listen on the subject"},
		"taken by another": {func(w *world) {
			w.makeStream(func(c *natsjs.StreamConfig) { c.Subjects = []string{"other.>"} })
			w.streamOf(natsjs.StreamConfig{Name: "THIEF", Subjects: []string{"orders.>"}})
		}, "does not listen on the subject"},
		"full": {func(w *world) {
			w.makeStream(func(c *natsjs.StreamConfig) { c.MaxMsgs, c.Discard = 1, natsjs.DiscardNew })
			w.publish("orders.a", "x")
		}, "maximum messages exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.bury(2)
			w.stateBucket()
			c.change(w)
			s := w.dlq("replay", "--to", "stream", "--yes")
			if s.code != 1 || !strings.Contains(s.out, c.why) || !strings.Contains(s.out, "2 left as they were") || len(w.dead()) != 2 {
				t.Errorf("%+v", s)
			}
			if i := w.streamInfo("THIEF"); i != nil && i.State.Msgs > 0 {
				t.Error("another stream has it")
			}
		})
	}
}

// stateBucket makes the bucket that claims are in, as a sidecar would have.
func (w *world) stateBucket() {
	w.t.Helper()
	ctx, cancel := within()
	defer cancel()
	_, err := w.js.CreateKeyValue(ctx, natsjs.KeyValueConfig{Bucket: "sidecar-state", TTL: time.Hour})
	w.must(err)
}

// An earlier run that was killed after the publish leaves a duplicate: the entry goes, if the stream has what was published.
func TestReplayToStreamThatIsADuplicate(t *testing.T) {
	for name, stored := range map[string]bool{"stored": true, "something else": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.bury(1)
			e := w.list()[0]
			id := fmt.Sprintf("%s:%d:%d", dlq, e.Seq, e.Time.UnixNano())
			subject := "orders.k1"
			if !stored {
				subject = "orders.forged"
			}
			w.publish(subject, "x", "Nats-Msg-Id: "+id)
			s := w.dlq("replay", "--to", "stream")
			if left := len(w.dead()); stored && (s.code != 0 || left != 0) || !stored && (s.code != 1 || left != 1 || !strings.Contains(s.out, "it is not there")) {
				t.Errorf("%+v, %d left", s, left)
			}
			if n := w.streamInfo(stream).State.Msgs; n != 1 {
				t.Errorf("%d messages", n)
			}
		})
	}
}

// The app is not there: nothing is tried, and nothing waits for ever.
func TestReplayWithoutTheApp(t *testing.T) {
	w := newWorld(t)
	w.bury(3)
	w.app.down()
	s := w.dlq("replay", "--yes")
	if s.code != 1 || !strings.Contains(s.err, "the app cannot be connected to") || !strings.Contains(s.out, "3 not tried") || len(w.dead()) != 3 {
		t.Errorf("%+v", s)
	}
	w.app.up()
	closing := make(chan struct{})
	w.app.on(func(c *call) reply {
		if c.seq == 1 { // the answer is the last one: nobody can connect any more
			go func() { defer close(closing); w.app.close() }()
			w.app.refuses()
		}
		return reply{status: 200}
	})
	s = w.dlq("replay", "--yes")
	<-closing
	if s.code != 1 || !strings.Contains(s.err, "the app cannot be connected to") || len(w.dead()) < 2 {
		t.Errorf("%+v, %d left", s, len(w.dead()))
	}
}

// Two parts are one entry everywhere.
func TestDLQParts(t *testing.T) {
	w := newWorldOn(t, localnats.Options{Config: fmt.Sprintf("max_payload: %d", maxPayload)})
	w.app.on(func(c *call) reply {
		if c.nth < 3 {
			return reply{status: 422}
		}
		return reply{status: 200}
	})
	const size = maxPayload - 100
	body := pattern(size)
	w.running()
	seq := w.publish("orders.a", body, "Nats-Msg-Id: id-1")
	w.waitDead(2)
	w.publish("orders.b", "x")
	w.balance()
	all := w.list()
	if len(all) != 2 || all[0].Seq != 1 || all[0].Size != size || all[0].Part != "" {
		t.Fatalf("%+v", all)
	}
	for _, part := range []string{"1", "2"} {
		if raw := w.dlqOK("show", part, "--raw"); raw != body {
			t.Errorf("part %s shows %d bytes", part, len(raw))
		}
	}
	if out := w.dlqOK("stats"); !strings.Contains(out, "2 entries, 130973 bytes") {
		t.Error(out)
	}
	if s := w.dlq("replay", "1"); s.code != 1 || !strings.Contains(s.out, "1 failed again") || len(w.dead()) != 3 {
		t.Errorf("%+v, %d stored", s, len(w.dead()))
	}
	again := w.list("--subject", "orders.a")
	if len(again) != 1 || again[0].Size != size || again[0].Replays != 1 {
		t.Fatalf("%+v", again)
	}
	if out := w.dlqOK("replay", strconv.FormatUint(again[0].Seq, 10)); !strings.Contains(out, "1 of 1 entry replayed") {
		t.Error(out)
	}
	if calls := w.app.of(seq); len(calls) != 3 || calls[2].body != body || calls[2].header.Get("Dlq-Replays") != "2" || calls[2].header.Get("Dlq-Part") != "" {
		t.Errorf("%d calls", len(calls))
	}
	if out := w.dlqOK("rm", "--yes"); !strings.Contains(out, "1 of 1 entry removed") || len(w.dead()) != 0 {
		t.Errorf("%s, %d left", out, len(w.dead()))
	}
}

// Parts that are far from each other are found, and one whose other is gone is half a message, which is never replayed.
func TestDLQPartsApart(t *testing.T) {
	w := newWorld(t)
	w.bury(0)
	part := func(n int, p string) *nats.Msg {
		m := letter(n, func(h nats.Header) { h["Dlq-Part"], h["Nats-Msg-Id"][0] = []string{p}, h["Nats-Msg-Id"][0]+":"+p })
		m.Data = []byte(p)
		return m
	}
	w.buryOne(part(1, "1/2"))
	w.buryOne(part(2, "2/2")) // its first is gone
	for n := range 300 {
		w.buryOne(letter(n + 100))
	}
	last := w.buryOne(part(1, "2/2"))
	half := w.buryOne(part(3, "1/2")) // its second is gone
	all := w.list()
	if len(all) != 303 || all[0].Part != "" || all[0].Size != 6 || all[1].Part != "2/2" || all[302].Part != "1/2" {
		t.Fatalf("%d entries, %+v, %+v", len(all), all[0], all[1])
	}
	if !slices.IsSortedFunc(all, func(a, b listed) int { return int(a.Seq) - int(b.Seq) }) {
		t.Error("not in order")
	}
	if raw := w.dlqOK("show", strconv.FormatUint(last, 10), "--raw"); raw != "1/22/2" {
		t.Errorf("%q", raw)
	}
	if got := w.list("--seq", fmt.Sprintf("%d-", last)); len(got) != 1 || got[0].Seq != half {
		t.Errorf("%+v", got)
	}
	if out := w.dlqOK("show", "2"); !strings.Contains(out, "half a message: part 2/2 alone") {
		t.Error(out)
	}
	s := w.dlq("replay", "--rate", "0", "--concurrency", "4", "--yes")
	if s.code != 1 || !strings.Contains(s.out, "301 of 303 entries replayed, 2 left") || !strings.Contains(s.out, "half a message: part 1/2 alone") || w.app.count() != 301 {
		t.Errorf("%+v, %d calls", s, w.app.count())
	}
	if s := w.dlq("rm", "--yes"); s.code != 1 || !strings.Contains(s.out, "its second part may be on its way") || len(w.dead()) != 1 {
		t.Errorf("%+v, %d left", s, len(w.dead()))
	}
	if w.dlqOK("rm", strconv.FormatUint(half, 10)); len(w.dead()) != 0 {
		t.Errorf("%d left", len(w.dead()))
	}
}

// Where entries cannot be removed nothing is done with them at all.
func TestDLQThatKeepsItsEntries(t *testing.T) {
	w := newWorld(t)
	w.dlqOf(func(c *natsjs.StreamConfig) { c.DenyDelete = true })
	w.buryOne(letter(1))
	for _, args := range [][]string{{"replay"}, {"replay", "--to", "stream"}, {"rm"}} {
		s := w.dlq(args...)
		if s.code != 1 || !strings.Contains(s.err, "deny_delete") || len(w.dead()) != 1 || w.app.count() != 0 || w.streamInfo(stream).State.Msgs != 0 {
			t.Errorf("%v: %+v", args, s)
		}
	}
}

// Without the bucket nothing keeps two replays apart: it is refused.
func TestReplayWithoutClaims(t *testing.T) {
	w := newWorld(t)
	w.bury(2)
	s := w.dlqWith(w.environment("SIDECAR_CONSUMERS_0_MANAGE=none"), "replay", "--yes")
	if s.code != 1 || !strings.Contains(s.err, "entries cannot be claimed") || !strings.Contains(s.err, "bucket sidecar-state") || w.app.count() != 0 {
		t.Errorf("%+v", s)
	}
	if s := w.dlqWith(w.environment("SIDECAR_CONSUMERS_0_MANAGE=none"), "rm", "--yes"); s.code != 0 || len(w.dead()) != 0 {
		t.Errorf("%+v", s)
	}
}

// Two replays at once deliver no entry twice, and both say that all is done.
func TestTwoReplaysAtOnce(t *testing.T) {
	w := newWorld(t)
	w.bury(200)
	w.app.on(func(c *call) reply { return reply{status: 200, delay: rand.N(4 * time.Millisecond)} })
	var runs sync.WaitGroup
	for range 3 {
		runs.Go(func() {
			if s := w.dlq("replay", "--rate", "0", "--concurrency", "3", "--yes"); s.code != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
	runs.Wait()
	w.eachOnce(200)
	if left := len(w.dead()); left != 0 {
		t.Errorf("%d left", left)
	}
}

// eachOnce holds that the app got messages 1 to n once each.
func (w *world) eachOnce(n int) {
	w.t.Helper()
	calls := map[uint64]int{}
	for _, c := range w.app.all() {
		calls[c.seq]++
	}
	for seq := range uint64(n) {
		if calls[seq+1] != 1 {
			w.t.Errorf("message %d was called %d times", seq+1, calls[seq+1])
		}
	}
}

// A replay that is killed at any moment, again and again, loses nothing; the app gets at most one call more for each kill and
// each request that was under way.
func TestReplayKilled(t *testing.T) {
	for _, to := range []string{"app", "stream"} {
		t.Run(to, func(t *testing.T) {
			const n = 300
			w := newWorld(t)
			w.bury(n)
			w.app.on(func(c *call) reply {
				if c.seq%10 == 0 && c.header.Get("Dlq-Replays") == "1" {
					return reply{status: 422, delay: time.Millisecond}
				}
				return reply{status: 200, delay: time.Millisecond}
			})
			progress := func() int { return w.app.count() + int(w.streamInfo(stream).State.Msgs) }
			kills := 0
			for ; kills < 6; kills++ {
				before := progress()
				cmd := w.dlqCommand(w.environment(), "replay", "--to", to, "--rate", "0", "--max-replays", "1", "--yes")
				w.must(cmd.Start())
				ended := make(chan struct{})
				go func() { _ = cmd.Wait(); close(ended) }()
				goal := before + 10 + rand.N(25)
				eventually(t, func() bool { return progress() >= goal || closed(ended) }, text("the replay to go on"))
				_ = cmd.Process.Kill()
				<-ended
			}
			s := w.dlq("replay", "--to", to, "--rate", "0", "--max-replays", "1", "--yes")
			if to == "stream" {
				if s.code != 0 || len(w.dead()) != 0 || w.streamInfo(stream).State.Msgs != n {
					t.Errorf("%+v, %d left, %d in the stream", s, len(w.dead()), w.streamInfo(stream).State.Msgs)
				}
				return
			}
			if left := w.list(); s.code != 1 || len(left) != n/10 || slices.ContainsFunc(left, func(l listed) bool { return l.Sequence%10 != 0 || l.Replays != 1 }) {
				t.Errorf("%+v, %d left", s, len(w.dead()))
			}
			calls := map[uint64]int{}
			for _, c := range w.app.all() {
				calls[c.seq]++
			}
			twice := 0
			for seq := range uint64(n) {
				if c := calls[seq+1]; c == 0 {
					t.Errorf("message %d was not called", seq+1)
				} else {
					twice += c - 1
				}
			}
			if twice > kills {
				t.Errorf("%d calls too many after %d kills", twice, kills)
			}
		})
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// SIGINT stops after what is in work, and says what was done; a second run continues.
func TestReplayInterrupted(t *testing.T) {
	w := newWorld(t)
	w.bury(20)
	open := make(chan struct{})
	w.app.on(func(c *call) reply {
		if c.seq == 3 {
			return reply{status: 200, gate: open}
		}
		return reply{status: 200}
	})
	cmd := w.dlqCommand(w.environment(), "replay", "--rate", "0", "--yes", "--json")
	out, log := &logLines{}, &logLines{}
	cmd.Stdout, cmd.Stderr = out, log
	w.must(cmd.Start())
	eventually(t, func() bool { return w.app.count() == 3 }, text("the third call"))
	w.must(cmd.Process.Signal(syscall.SIGINT))
	eventually(t, func() bool { return strings.Contains(log.String(), "stopping after what is in work") }, text("the answer"))
	close(open)
	_ = cmd.Wait()
	var report struct {
		Selected, Done int
		Interrupted    bool
	}
	w.must(json.Unmarshal([]byte(out.String()), &report))
	if code := cmd.ProcessState.ExitCode(); code != 1 || report.Selected != 20 || report.Done != 3 || !report.Interrupted || len(w.dead()) != 17 {
		t.Errorf("exit %d, %+v, %d left\n%s", code, report, len(w.dead()), log)
	}
	if strings.Contains(log.String(), "\n\n") || strings.HasPrefix(log.String(), "\n") {
		t.Errorf("an empty line where there is no terminal: %q", log)
	}
	w.dlqOK("replay", "--rate", "0", "--yes")
	w.eachOnce(20)
}

// SIGINT to a tool that has a sidecar do it stops the sidecar after what is in work, and the report has all that it did.
func TestRemoteReplayInterrupted(t *testing.T) {
	w := newWorld(t)
	s := w.running(func(c *config.Config) { c.Admin.Token = "secret" })
	w.bury(200)
	third := make(chan struct{})
	w.app.on(func(c *call) reply {
		if c.seq == 3 {
			return reply{status: 200, gate: third}
		}
		return reply{status: 200}
	})
	cmd := w.dlqCommand(w.environment(), "replay", "--rate", "100", "--yes", "--json", "--token", "secret", "--admin", string(s.admin))
	out, log := &logLines{}, &logLines{}
	cmd.Stdout, cmd.Stderr = out, log
	w.must(cmd.Start())
	eventually(t, func() bool { return w.app.count() == 3 }, text("the third call"))
	w.must(cmd.Process.Signal(syscall.SIGINT))
	eventually(t, func() bool { return strings.Contains(log.String(), "stopping after what is in work") }, text("the answer"))
	close(third)
	_ = cmd.Wait()
	var report struct {
		Selected, Done       int
		Interrupted, Partial bool
	}
	w.must(json.Unmarshal([]byte(out.String()), &report))
	left := len(w.dead())
	if report.Selected != 200 || report.Partial || report.Done < 3 || report.Done+left != 200 || report.Interrupted != (left > 0) {
		t.Errorf("%+v, %d left\n%s", report, left, log)
	}
}

// A stop before anything was done says so, and not what became of a request that nobody waits for any more.
func TestInterruptedBeforeItBegins(t *testing.T) {
	w := newWorld(t)
	asked := make(chan struct{}, 1)
	never := func(r *http.Request) { asked <- struct{}{}; <-r.Context().Done() }
	api := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			t.Error(err)
		}
		if r.Method == http.MethodGet && r.URL.Query().Get("limit") == "1" {
			fmt.Fprint(out, `{"streams":["D"],"entries":[]}`)
			return
		}
		never(r)
	}))
	defer api.Close()
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { never(r) }))
	defer silent.Close()
	for _, c := range []struct{ args, says string }{
		{"rm --yes --admin " + api.URL, "it was interrupted before anything was done"},
		{"replay --yes --admin " + api.URL, "it was interrupted before anything was done"},
		{"rm 7 --admin " + api.URL, "sidecar dlq rm: interrupted before it was through"},
		{"list --admin " + api.URL, "sidecar dlq list: interrupted before it was through"},
		{"stats --admin " + api.URL, "sidecar dlq stats: interrupted before it was through"},
		{"show 7 --admin " + api.URL, "sidecar dlq show: interrupted before it was through"},
		{"list --admin " + silent.URL, "sidecar dlq list: interrupted before it was through"},
	} {
		cmd := w.dlqCommand(nil, strings.Fields(c.args)...)
		log := &logLines{}
		cmd.Stdout, cmd.Stderr = log, log
		w.must(cmd.Start())
		<-asked
		w.must(cmd.Process.Signal(syscall.SIGINT))
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(log.String(), c.says) || strings.Contains(log.String(), "canceled") {
			t.Errorf("%s: exit %d\n%s", c.args, code, log)
		}
	}
}

// A second signal stops at once.
func TestReplayInterruptedTwice(t *testing.T) {
	w := newWorld(t)
	w.bury(2)
	never := make(chan struct{})
	w.app.on(always(reply{status: 200, gate: never}))
	cmd := w.dlqCommand(w.environment(), "replay", "--yes")
	log := &logLines{}
	cmd.Stderr = log
	w.must(cmd.Start())
	eventually(t, func() bool { return w.app.count() == 1 }, text("the call"))
	w.must(cmd.Process.Signal(syscall.SIGINT))
	eventually(t, func() bool { return strings.Contains(log.String(), "stopping") }, text("the answer"))
	go signalOn(cmd.Process, syscall.SIGINT)
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 1 || len(w.dead()) != 2 {
		t.Errorf("exit %d, %d left\n%s", code, len(w.dead()), log)
	}
}

// An entry that a replay has in work is not removed meanwhile: it is waited for, and what failed again there is not removed either.
func TestRemoveDuringReplay(t *testing.T) {
	w := newWorld(t)
	w.bury(2)
	open := make(chan struct{})
	w.app.on(func(c *call) reply { return reply{status: 422, gate: open} })
	replay := w.dlqCommand(w.environment(), "replay", "1")
	w.must(replay.Start())
	eventually(t, func() bool { return w.app.count() == 1 }, text("the call"))
	remove := w.dlqCommand(w.environment(), "rm", "--yes")
	out, log := &strings.Builder{}, &logLines{}
	remove.Stdout, remove.Stderr = out, log
	w.must(remove.Start())
	waits := fmt.Sprintf("1 of 2 entries, 1 removed, waiting for 1 entry that process %d on ", replay.Process.Pid)
	eventually(t, func() bool { return strings.Contains(log.String(), waits) }, text("the removal to wait"))
	close(open)
	_ = replay.Wait()
	_ = remove.Wait()
	if code := remove.ProcessState.ExitCode(); code != 1 || !strings.Contains(out.String(), "1 of 2 entries removed, 1 failed again") {
		t.Errorf("exit %d\n%s%s", code, out, log)
	}
	if es := w.dead(); len(es) != 1 || es[0].header.Get("Dlq-Replays") != "1" {
		t.Errorf("%+v", es)
	}
}

// What fails again stays in the DLQ, also where the entry that would be stored was there a while ago and is known by its id; and whatever a
// publisher says of replays.
func TestReplayKeepsTheLastCopy(t *testing.T) {
	w := newWorld(t)
	w.app.on(always(reply{status: 422}))
	bad := w.publish("orders.bad", "x")
	large := w.publish("orders.large", "x", "Dlq-Replays: 1073741824")
	w.running()
	w.balance()
	first := w.deadOf(bad)
	if s := w.dlq("replay", "--yes"); s.code != 1 {
		t.Fatalf("%+v", s)
	}
	second := w.deadOf(bad)
	// A replay that was killed before it was noted that the new entry is there leaves both.
	old := nats.NewMsg("dlq." + stream + "." + durable + ".orders.bad")
	old.Header, old.Data = maps.Clone(first.header), []byte("x")
	old.Header.Set("Nats-Msg-Id", "an earlier copy")
	ctx, cancel := within()
	defer cancel()
	_, err := w.js.PublishMsg(ctx, old)
	w.must(err)
	if s := w.dlq("rm", strconv.FormatUint(second.seq, 10), "--yes"); s.code != 0 {
		t.Fatalf("%+v", s)
	}
	for range 3 {
		if s := w.dlq("replay", "--yes", "--max-replays", "0"); s.code != 1 {
			t.Fatalf("%+v", s)
		}
	}
	for _, seq := range []uint64{bad, large} {
		if n := len(w.ledgerOfDead()[seq]); n != 1 {
			t.Errorf("%d entries of message %d", n, seq)
		}
	}
}

// A replay says that it is one, in each format and with batches too.
func TestReplayOfABatchSaysSo(t *testing.T) {
	for _, format := range []string{"raw", "cloudevents", "cloudevents-json"} {
		t.Run(format, func(t *testing.T) {
			w := newWorld(t)
			w.app.on(always(reply{status: 422}))
			w.publish("orders.bad", "x")
			w.running(batched(10, func(c *config.Consumer) { c.Format = format }))
			w.waitDone()
			before := w.app.count()
			w.app.on(always(reply{status: 200}))
			env := []string{"SIDECAR_CONSUMERS_0_FORMAT=" + format, "SIDECAR_CONSUMERS_0_BATCH_MAX_MESSAGES=10"}
			if s := w.dlqWith(w.environment(env...), "replay", "--yes"); s.code != 0 {
				t.Fatalf("%+v", s)
			}
			calls := w.app.all()[before:]
			if len(calls) != 1 || calls[0].header.Get("Dlq-Replays") != "1" || calls[0].header.Get("Sidecar-Batch") != "1" {
				t.Errorf("calls %+v", calls)
			}
		})
	}
}
