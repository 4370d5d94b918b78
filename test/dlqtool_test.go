package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// said is what a command wrote, and its exit code.
type said struct {
	out, err string
	code     int
}

// dlq runs sidecar dlq with this world's configuration, to its end.
func (w *world) dlq(args ...string) said {
	w.t.Helper()
	return w.dlqWith(w.environment(), args...)
}

func (w *world) dlqWith(env []string, args ...string) said {
	w.t.Helper()
	cmd := w.dlqCommand(env, args...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	return said{out.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

func (w *world) dlqCommand(env []string, args ...string) *exec.Cmd {
	w.t.Helper()
	path, err := build()
	if err != nil {
		w.t.Fatalf("build: %v\n%s", err, path)
	}
	cmd := exec.Command(path, append([]string{"dlq"}, args...)...)
	cmd.Env = env
	return cmd
}

// ok runs a command that must exit 0.
func (w *world) dlqOK(args ...string) string {
	w.t.Helper()
	s := w.dlq(args...)
	if s.code != 0 {
		w.t.Fatalf("dlq %q exits %d:\n%s%s", args, s.code, s.out, s.err)
	}
	return s.out
}

// listed is what list --json writes.
type listed struct {
	DLQStream  string    `json:"dlq_stream"`
	Seq        uint64    `json:"seq"`
	Time       time.Time `json:"time"`
	Stream     string    `json:"stream"`
	Consumer   string    `json:"consumer"`
	Subject    string    `json:"subject"`
	Sequence   uint64    `json:"sequence"`
	Reason     string    `json:"reason"`
	Status     int       `json:"status"`
	Error      string    `json:"error"`
	Deliveries uint64    `json:"deliveries"`
	Replays    int       `json:"replays"`
	MsgID      string    `json:"msg_id"`
	Size       int64     `json:"size"`
	Part       string    `json:"part"`
}

func (w *world) list(args ...string) (all []listed) {
	w.t.Helper()
	return lines[listed](w.t, w.dlqOK(append([]string{"list", "--json"}, args...)...))
}

func lines[T any](t *testing.T, text string) (all []T) {
	t.Helper()
	for line := range strings.Lines(text) {
		var one T
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, one)
	}
	return all
}

func seqsOf(all []listed) (seqs []uint64) {
	for _, l := range all {
		seqs = append(seqs, l.Seq)
	}
	return seqs
}

// letter is the header of an entry as a sidecar stores it. The message has the sequence n in its stream.
func letter(n int, change ...func(nats.Header)) *nats.Msg {
	subject := fmt.Sprintf("orders.k%d", n%10)
	stored := time.Date(2026, 1, 2, 3, 4, 5, n, time.UTC)
	m := &nats.Msg{Subject: "dlq.ORDERS.worker." + subject, Data: fmt.Appendf(nil, `{"order":%d}`, n), Header: nats.Header{
		"Nats-Msg-Id": {fmt.Sprintf("ORDERS:worker:%d:%d", n, stored.UnixNano())},
		"Dlq-Reason":  {"rejected"}, "Dlq-Status": {"422"}, "Dlq-Error": {"no such customer"}, "Dlq-Stream": {stream}, "Dlq-Consumer": {durable},
		"Dlq-Subject": {subject}, "Dlq-Sequence": {strconv.Itoa(n)}, "Dlq-Time-Stamp": {stored.Format(time.RFC3339Nano)},
		"Dlq-Deliveries": {"1"}, "Dlq-Failed-At": {stored.Format(time.RFC3339Nano)}, "Content-Type": {"application/json"},
	}}
	for _, f := range change {
		f(m.Header)
	}
	return m
}

// bury stores entries 1 to n in a DLQ stream that is made for them.
func (w *world) bury(n int) {
	w.t.Helper()
	w.dlqOf(func(c *natsjs.StreamConfig) { c.AllowDirect, c.Duplicates = true, time.Hour })
	for i := range n {
		_, err := w.js.PublishMsgAsync(letter(i + 1))
		w.must(err)
		if (i+1)%1000 == 0 {
			w.allStored()
		}
	}
	w.allStored()
}

// allStored waits until what was published is stored: the client bounds what may be under way.
func (w *world) allStored() {
	w.t.Helper()
	select {
	case <-w.js.PublishAsyncComplete():
	case <-time.After(patience):
		w.t.Fatal("the entries are not stored")
	}
}

// buryOne stores one message in the DLQ stream and returns its sequence.
func (w *world) buryOne(m *nats.Msg) (seq uint64) {
	w.t.Helper()
	w.try("store an entry", func(ctx context.Context) error {
		ack, err := w.js.PublishMsg(ctx, m)
		if err == nil {
			seq = ack.Sequence
		}
		return err
	})
	return seq
}

// What the tools say of an entry that a sidecar stored.
func TestDLQListShowStats(t *testing.T) {
	w := newWorld(t)
	w.app.on(always(reply{status: 422, header: map[string]string{"Sidecar-Reason": "no such customer"}, body: `{"field":"customer"}`}))
	seq := w.publish("orders.eu.new", `{"a": [1, 2]}`, "Nats-Msg-Id: id-1", "X-Many: one", "X-Many: two", "Content-Type: application/json")
	w.running()
	w.waitDead(1)
	bin := w.publish("orders.us", "\x00\xff\x1b[31m")
	w.balance()

	raw := lines[map[string]any](t, w.dlqOK("list", "--json", "--subject", "orders.eu.>"))
	if len(raw) != 1 {
		t.Fatalf("%v", raw)
	}
	want := []string{"dlq_stream", "seq", "time", "stream", "consumer", "subject", "sequence", "reason", "status", "error", "deliveries", "replays", "msg_id", "size"}
	for _, name := range want {
		if _, ok := raw[0][name]; !ok {
			t.Errorf("%s is missing", name)
		}
		delete(raw[0], name)
	}
	if len(raw[0]) > 0 {
		t.Errorf("too much: %v", raw[0])
	}
	e := w.list("--subject", "orders.eu.*")[0]
	if e.DLQStream != dlq || e.Stream != stream || e.Consumer != durable || e.Sequence != seq || e.Reason != "rejected" || e.Status != 422 ||
		e.Error != "no such customer" || e.Deliveries != 1 || e.Replays != 0 || e.MsgID != "id-1" || e.Size != 13 || time.Since(e.Time) > time.Minute {
		t.Errorf("%+v", e)
	}

	var shown struct {
		listed
		Headers map[string][]string `json:"headers"`
		Base64  []byte              `json:"body_base64"`
		Body    *string             `json:"body"`
	}
	w.must(json.Unmarshal([]byte(w.dlqOK("show", strconv.FormatUint(e.Seq, 10), "--json")), &shown))
	if shown.listed != e || string(shown.Base64) != `{"a": [1, 2]}` || shown.Body == nil || *shown.Body != `{"a": [1, 2]}` || !slices.Equal(shown.Headers["X-Many"], []string{"one", "two"}) {
		t.Errorf("%+v", shown)
	}
	text := w.dlqOK("show", strconv.FormatUint(e.Seq, 10))
	for _, part := range []string{"entry 1 of ORDERS_DLQ", "reason      rejected", `response    {"field":"customer"}`, "X-Many: two", "body: 13 bytes, JSON\n{\n  \"a\": [\n    1,\n"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
	other := w.deadOf(bin).seq
	shown.Body = nil
	w.must(json.Unmarshal([]byte(w.dlqOK("show", "--json", strconv.FormatUint(other, 10))), &shown))
	if text := w.dlqOK("show", strconv.FormatUint(other, 10)); shown.Body != nil || !strings.Contains(text, "binary\n00000000  00 ff 1b 5b") {
		t.Errorf("body %v, shown\n%s", shown.Body, text)
	}
	if raw := w.dlqOK("show", strconv.FormatUint(other, 10), "--raw"); raw != "\x00\xff\x1b[31m" {
		t.Errorf("%q", raw)
	}
	if s := w.dlq("show", "99"); s.code != 1 || !strings.Contains(s.err, "no message 99") {
		t.Errorf("%+v", s)
	}

	var stats struct {
		Entries, Bytes int
		Oldest, Newest time.Time
		Groups         []struct {
			Consumer, Subject, Reason string
			Status, Count             int
			Oldest, Newest            time.Time
		}
	}
	w.must(json.Unmarshal([]byte(w.dlqOK("stats", "--json")), &stats))
	if stats.Entries != 2 || stats.Bytes != 20 || len(stats.Groups) != 2 || !stats.Oldest.Equal(e.Time) || stats.Groups[0].Subject != "orders.eu.new" ||
		stats.Groups[0].Count != 1 || stats.Groups[0].Status != 422 || stats.Groups[0].Consumer != durable || stats.Groups[0].Reason != "rejected" {
		t.Errorf("%+v", stats)
	}
}

func TestDLQFilters(t *testing.T) {
	w := newWorld(t)
	w.bury(40)
	other := letter(41, func(h nats.Header) {
		h["Dlq-Consumer"], h["Dlq-Subject"], h["Dlq-Reason"] = []string{"billing"}, []string{"orders.eu.new"}, []string{"max_deliver"}
		h.Del("Dlq-Status")
	})
	other.Subject = "dlq.ORDERS.billing.orders.eu.new"
	w.buryOne(other)
	long := "orders." + strings.Repeat("long.", 800) + "x"
	hashed := letter(42, func(h nats.Header) { h["Dlq-Subject"] = []string{long} })
	hashed.Subject = "dlq.ORDERS.worker._long.0123456789abcdef"
	w.buryOne(hashed)
	at := w.list("--seq", "20")[0].Time.Format(time.RFC3339Nano)
	for _, c := range []struct {
		args string
		want []uint64
	}{
		{"--seq 3-5", []uint64{3, 4, 5}},
		{"--seq 41-", []uint64{42}},
		{"--seq -2", []uint64{1, 2}},
		{"--seq 7", []uint64{7}},
		{"--limit 3", []uint64{1, 2, 3}},
		{"--subject orders.k3", []uint64{3, 13, 23, 33}},
		{"--subject orders.k3 --limit 2", []uint64{3, 13}},
		{"--subject orders.*.*", nil},
		{"--subject orders.*.* --consumer billing", []uint64{41}},
		{"--subject orders.eu.> --consumer billing", []uint64{41}},
		{"--subject orders.long.>", []uint64{42}},
		{"--subject >  --seq 40-", []uint64{40, 42}},
		{"--consumer billing", []uint64{41}},
		{"--consumer worker --seq 40-", []uint64{40, 42}},
		{"--consumer nobody", nil},
		{"--reason max_deliver --consumer billing", []uint64{41}},
		{"--status none --consumer billing", []uint64{41}},
		{"--status 422 --seq 39-41", []uint64{39, 40}},
		{"--until " + at + " --seq 18-", []uint64{18, 19}},
		{"--since " + at + " --seq -21", []uint64{20, 21}},
		{"--since 1h --limit 1", []uint64{1}},
		{"--until 1h", nil},
		{"--stream ORDERS_DLQ --seq 1", []uint64{1}},
	} {
		if got := seqsOf(w.list(strings.Fields(c.args)...)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.args, got, c.want)
		}
	}
	if s := w.dlq("list", "--stream", "ORDERS"); s.code != 2 || !strings.Contains(s.err, `flag --stream: "ORDERS" is no DLQ stream`) {
		t.Errorf("%+v", s)
	}
}

// A DLQ stream that is not there holds nothing, but whoever asks in the wrong account or domain is told that it is not there.
func TestDLQThatDoesNotExist(t *testing.T) {
	w := newWorld(t)
	for _, args := range []string{"list", "list --json", "stats", "rm --yes", "replay --to stream --yes"} {
		if s := w.dlq(strings.Fields(args)...); s.code != 0 || !strings.Contains(s.err, "stream ORDERS_DLQ does not exist") {
			t.Errorf("%s: %+v", args, s)
		}
	}
	w.bury(1)
	if s := w.dlq("list", "--seq", "9"); s.code != 0 || strings.Contains(s.err, "does not exist") {
		t.Errorf("%+v", s)
	}
}

// A DLQ stream that is named and is not there is no selection: with a sequence, or by --stream.
func TestDLQThatIsNamedAndDoesNotExist(t *testing.T) {
	w := newWorld(t)
	s := w.sidecar(consumer(func(c *config.Consumer) { c.DLQ.Create = false }), func(c *config.Config) { c.Admin.Token = "secret" })
	s.waitCheck("nats", true)
	for _, where := range []string{"", " --token secret --admin " + string(s.admin)} {
		for _, args := range []string{"rm 1", "replay 1", "rm --stream ORDERS_DLQ --yes", "replay --stream ORDERS_DLQ --yes", "rm --stream ORDERS_DLQ --dry-run"} {
			if s := w.dlq(strings.Fields(args + where)...); s.code != 1 || s.out != "" || !strings.Contains(s.err, "stream ORDERS_DLQ does not exist") {
				t.Errorf("%s%s: %+v", args, where, s)
			}
		}
		for _, args := range []string{"rm --yes", "list --stream ORDERS_DLQ", "stats --stream ORDERS_DLQ"} {
			if s := w.dlq(strings.Fields(args + where)...); s.code != 0 || !strings.Contains(s.err, "stream ORDERS_DLQ does not exist") {
				t.Errorf("%s%s: %+v", args, where, s)
			}
		}
	}
}

// A sequence names an entry by either part of it. What it does not name is not done, and said.
func TestDLQSequences(t *testing.T) {
	w := newWorld(t)
	s := w.running(func(c *config.Config) { c.Admin.Token = "secret" })
	for i, where := range []string{"", " --token secret --admin " + string(s.admin)} {
		base := w.buryOne(letter(100*i+1)) - 1
		w.buryOne(&nats.Msg{Subject: "dlq.ORDERS.worker.x"}) // no dead letter
		for n := range 4 {
			part := fmt.Sprintf("%d/2", n%2+1)
			w.buryOne(letter(100*i+3+n/2, func(h nats.Header) { h["Dlq-Part"], h["Nats-Msg-Id"] = []string{part}, nil }))
		}
		at := func(n uint64) string { return strconv.FormatUint(base+n, 10) }
		for _, c := range []struct {
			args string
			code int
			says string
		}{
			{"rm 999", 1, "stream ORDERS_DLQ has no message 999"},
			{"replay 999 --to stream", 1, "stream ORDERS_DLQ has no message 999"},
			{"rm " + at(2), 1, "message " + at(2) + " of ORDERS_DLQ is no dead letter: it is left"},
			{"rm " + at(1) + " --reason max_age", 1, "entry " + at(1) + " does not match the filters"},
			{"rm --reason max_age", 0, "no entry is selected"},
			{"rm " + at(4) + " --dry-run", 0, at(3) + "  "}, // named by its first part
			{"rm " + at(4), 0, "1 of 1 entry removed"},
			{"replay " + at(6), 0, "1 of 1 entry replayed"},
			{"rm " + at(6), 1, "stream ORDERS_DLQ has no message " + at(6)},
			{"rm " + at(1), 0, "1 of 1 entry removed"},
		} {
			if s := w.dlq(strings.Fields(c.args + where)...); s.code != c.code || !strings.Contains(s.out+s.err, c.says) {
				t.Errorf("%s%s: %+v", c.args, where, s)
			}
		}
		if es := w.dead(); es[len(es)-1].seq != base+2 {
			t.Errorf("%d is the last that is left, not what is no dead letter", es[len(es)-1].seq)
		}
	}
}

// Messages in the DLQ stream that are no dead letters, and headers that could be taken for something else, break nothing.
func TestDLQForeignMessages(t *testing.T) {
	w := newWorld(t)
	w.bury(3)
	for _, h := range []nats.Header{
		{}, {"Dlq-Reason": {"rejected"}}, {"Dlq-Stream": {"X"}, "Dlq-Consumer": {"y"}, "Dlq-Sequence": {"-1"}},
		{"Status": {"404"}, "Description": {"No Messages"}}, {"Status": {"409"}, "Description": {"Consumer Deleted"}},
	} {
		w.buryOne(&nats.Msg{Subject: "dlq.ORDERS.worker.x", Header: h})
	}
	poison := letter(4, func(h nats.Header) {
		h["Status"], h["Description"], h["Nats-Msg-Size"], h["Nats-Sequence"] = []string{"409"}, []string{"Consumer Deleted"}, []string{"7"}, []string{"1"}
	})
	poison.Data = nil
	w.buryOne(poison)
	w.rawPublishTo("dlq.ORDERS.worker.y", "nonsense\r\n\r\n", "body")
	w.buryOne(letter(5))

	if got := seqsOf(w.list()); !slices.Equal(got, []uint64{1, 2, 3, 9, 11}) {
		t.Errorf("%v", got)
	}
	if out := w.dlqOK("stats"); !strings.Contains(out, "5 entries, 44 bytes") || !strings.Contains(out, "6 messages there that are no dead letters") {
		t.Error(out)
	}
	if out := w.dlqOK("show", "4"); !strings.Contains(out, "this is no dead letter") {
		t.Error(out)
	}
	if out := w.dlqOK("replay", "--rate", "0", "--yes"); !strings.Contains(out, "5 of 5 entries replayed") {
		t.Error(out)
	}
	if n := len(w.dead()); n != 6 {
		t.Errorf("%d messages are left, of 6 that are no dead letters", n)
	}
	if out := w.dlqOK("rm", "--yes"); !strings.Contains(out, "no entry is selected") {
		t.Error(out)
	}
}

// The entries of a consumer that is not in the configuration are left, and told, unless it is named.
func TestDLQOfOtherConsumers(t *testing.T) {
	w := newWorld(t)
	w.bury(2)
	other := func(h nats.Header) { h["Dlq-Consumer"] = []string{"batch-2"} }
	for n := 3; n <= 5; n++ {
		m := letter(n, other)
		m.Subject = strings.Replace(m.Subject, durable, "batch-2", 1)
		w.buryOne(m)
	}
	w.buryOne(&nats.Msg{Subject: "dlq.ORDERS.worker.x"})
	s := w.running()

	const told = "3 entries of other consumers are not counted: --consumer batch-2"
	for _, at := range [][]string{nil, {"--admin", string(s.admin)}} {
		run := func(args ...string) said { return w.dlq(append(args, at...)...) }
		if got := run("list", "--json"); len(lines[listed](t, got.out)) != 2 || !strings.Contains(got.err, told) {
			t.Errorf("%v: %+v", at, got)
		}
		if got := run("stats"); !strings.Contains(got.out, "2 entries, ") || !strings.Contains(got.out, told) || !strings.Contains(got.out, "1 message there that are no") {
			t.Errorf("%v: %+v", at, got)
		}
		var st struct {
			Entries, Foreign, Others int
			OtherConsumers           []string `json:"other_consumers"`
		}
		if got := run("stats", "--json"); json.Unmarshal([]byte(got.out), &st) != nil || st.Entries != 2 || st.Foreign != 1 || st.Others != 3 || len(st.OtherConsumers) != 1 {
			t.Errorf("%v: %+v", at, got)
		}
		if got := run("show", "3"); got.code != 0 || !strings.Contains(got.out, "a consumer that is not in the configuration") {
			t.Errorf("%v: %+v", at, got)
		}
		for _, args := range [][]string{{"rm", "3"}, {"rm", "3", "--dry-run"}, {"replay", "3"}, {"replay", "3", "--to", "stream"}} {
			if got := run(args...); got.code != 1 || !strings.Contains(got.err, "is of consumer batch-2 of stream ORDERS") || !strings.Contains(got.err, "--consumer batch-2") {
				t.Errorf("%v %v: %+v", args, at, got)
			}
		}
		if got := run("list", "--json", "--consumer", "batch-2"); len(lines[listed](t, got.out)) != 3 || got.err != "" {
			t.Errorf("%v: %+v", at, got)
		}
	}
	if got := w.dlqOK("rm", "--yes"); !strings.Contains(got, "2 of 2 entries removed") {
		t.Error(got)
	}
	if got := w.dlqOK("rm", "3", "--consumer", "batch-2", "--admin", string(s.admin)); !strings.Contains(got, "1 of 1 entry removed") {
		t.Error(got)
	}
	if got := w.dlqOK("rm", "--yes", "--consumer", "batch-2"); !strings.Contains(got, "2 of 2 entries removed") {
		t.Error(got)
	}
}

// Where there is no terminal a long subject does not make every row as long.
func TestDLQLongSubjects(t *testing.T) {
	w := newWorld(t)
	w.bury(1)
	long := "orders." + strings.Repeat("x", 1800)
	w.buryOne(letter(2, func(h nats.Header) { h["Dlq-Subject"] = []string{long} }))
	for _, command := range []string{"list", "stats"} {
		out := w.dlqOK(command)
		if !strings.Contains(out, "  "+long[:57]+"...  ") {
			t.Errorf("the subject is not cut: %s", out)
		}
		for line := range strings.Lines(out) {
			if len(line) > 250 {
				t.Errorf("%d characters: %s", len(line), line)
			}
		}
		if out := w.dlqOK(command, "--json"); !strings.Contains(out, long) {
			t.Errorf("%s --json has not all of it", command)
		}
	}
	if out := w.dlqOK("show", "2"); !strings.Contains(out, long) {
		t.Error("show has not all of it")
	}
}

// Nothing of a message reaches a terminal, or what is piped to one, as a command.
func TestDLQEscapes(t *testing.T) {
	w := newWorld(t)
	w.bury(0)
	hostile := "\x1b]0;owned\x07\x1b[2J\u202e\u009b31m\xff"
	m := letter(1, func(h nats.Header) {
		for _, name := range []string{"Dlq-Error", "Dlq-Response", "Dlq-Subject", "Dlq-Consumer", "Dlq-Msg-Id", "X-Own", "Dlq-Reason"} {
			h[name] = []string{hostile}
		}
	})
	m.Data = []byte("{\"a\": \"" + strings.ReplaceAll(hostile, "\xff", "") + "\"} ")
	w.buryOne(m)
	for _, args := range [][]string{{"list"}, {"list", "--json"}, {"show", "1"}, {"show", "1", "--json"}, {"stats"}, {"stats", "--json"}, {"replay"}} {
		s := w.dlq(args...)
		for _, bad := range []string{"\x1b", "\x07", "\u202e", "\u009b", "\xff"} {
			if strings.Contains(s.out+s.err, bad) {
				t.Errorf("%v writes %q: %q", args, bad, s.out+s.err)
			}
		}
	}
}

func TestDLQRemove(t *testing.T) {
	w := newWorld(t)
	w.bury(20)
	if s := w.dlq("rm", "--seq", "1-3"); s.code != 2 || !strings.Contains(s.err, "Remove 3 entries?") || !strings.Contains(s.err, "--yes") || len(w.dead()) != 20 {
		t.Errorf("%+v, %d left", s, len(w.dead()))
	}
	if out := w.dlqOK("rm", "--seq", "1-3", "--dry-run"); strings.Count(out, "\n") != 4 || len(w.dead()) != 20 {
		t.Errorf("%s, %d left", out, len(w.dead()))
	}
	if out := w.dlqOK("rm", "2"); !strings.Contains(out, "1 of 1 entry removed") {
		t.Error(out)
	}
	if out := w.dlqOK("rm", "--subject", "orders.k3", "--yes"); !strings.Contains(out, "2 of 2 entries removed") {
		t.Error(out)
	}
	var report struct{ Selected, Done, Kept int }
	w.must(json.Unmarshal([]byte(w.dlqOK("rm", "--seq", "10-", "--yes", "--json")), &report))
	if report.Selected != 10 || report.Done != 10 {
		t.Errorf("%+v", report)
	}
	if got := seqsOf(w.list()); !slices.Equal(got, []uint64{1, 4, 5, 6, 7, 8, 9}) {
		t.Errorf("%v are left", got)
	}
	if n := w.app.count(); n != 0 {
		t.Errorf("%d calls", n)
	}
}

// A large queue is listed, counted, replayed and removed whole.
func TestDLQManyEntries(t *testing.T) {
	const n = 10_000
	w := newWorld(t)
	w.bury(n)
	all := w.list()
	for i, e := range all {
		if e.Seq != uint64(i+1) || e.Sequence != uint64(i+1) {
			t.Fatalf("entry %d is %+v", i, e)
		}
	}
	if out := w.dlqOK("stats"); len(all) != n || !strings.Contains(out, "10000 entries") || !strings.Contains(out, "1000  worker    orders.k7") {
		t.Errorf("%d listed\n%s", len(all), out)
	}
	if out := w.dlqOK("replay", "--seq", "-1000", "--rate", "0", "--concurrency", "8", "--yes"); !strings.Contains(out, "1000 of 1000 entries replayed") || w.app.count() != 1000 {
		t.Errorf("%d calls\n%s", w.app.count(), out)
	}
	if out := w.dlqOK("rm", "--yes"); !strings.Contains(out, "9000 of 9000 entries removed") || len(w.dead()) != 0 {
		t.Errorf("%d left\n%s", len(w.dead()), out)
	}
}
