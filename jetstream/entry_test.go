package jetstream

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

func testLetters(conn *Conn) *DeadLetters {
	return NewDeadLetters(conn, DeadLetterConfig{
		Enabled: true, Stream: "{stream}_DLQ", Subject: "dlq.{stream}.{consumer}.{subject}", Create: true,
	}, "S", "d", quiet())
}

func letter(body []byte, h map[string][]string) DeadLetter {
	return DeadLetter{
		Message: &Message{Subject: "s.x", Sequence: 7, Stored: time.Unix(1700000000, 42), Header: h, Body: body},
		Reason:  "rejected", Status: 422, Error: "bad\nthing\x00\xff", Response: []byte("first\r\nsecond"), Deliveries: 3, FailedAt: time.Unix(1700000001, 0),
	}
}

func TestEntryHeaders(t *testing.T) {
	h := map[string][]string{
		"X-A": {"1", "2"}, "Nats-Msg-Id": {"order-1"}, "Nats-Rollup": {"all"}, "nats-ttl": {"1s"}, "Nats-Expected-Last-Sequence": {"9"},
		"Nats-Schedule": {"@at"}, "Nats-Batch-Id": {"b"}, "Nats-Incr": {"1"}, "Dlq-Reason": {"old"}, "Dlq-Replays": {"2"}, "bad name": {"x"},
	}
	msgs, dropped, err := testLetters(newConn(Config{}, quiet())).entries(letter([]byte("body"), h), 1<<20)
	if err != nil || len(msgs) != 1 || dropped != 1 {
		t.Fatalf("%d entries, %d dropped, %v", len(msgs), dropped, err)
	}
	got := msgs[0]
	want := nats.Header{
		"X-A": {"1", "2"}, "Nats-Msg-Id": {"S:d:7:1700000000000000042:2"}, "Dlq-Reason": {"rejected"}, "Dlq-Status": {"422"},
		"Dlq-Error": {"bad thing ?"}, "Dlq-Response": {"first  second"}, "Dlq-Stream": {"S"}, "Dlq-Consumer": {"d"}, "Dlq-Subject": {"s.x"},
		"Dlq-Sequence": {"7"}, "Dlq-Time-Stamp": {"2023-11-14T22:13:20.000000042Z"}, "Dlq-Msg-Id": {"order-1"}, "Dlq-Deliveries": {"3"},
		"Dlq-Failed-At": {"2023-11-14T22:13:21Z"}, "Dlq-Replays": {"2"},
	}
	if fmt.Sprint(got.Header) != fmt.Sprint(want) {
		t.Errorf("headers\n got %v\nwant %v", got.Header, want)
	}
	if got.Subject != "dlq.S.d.s.x" || string(got.Data) != "body" {
		t.Errorf("subject %q, body %q", got.Subject, got.Data)
	}
}

// The original id is in an entry as it was, or not at all: on a replay the app tells the message by it.
func TestEntryHasTheIDAsItWas(t *testing.T) {
	long := strings.Repeat("i", 60000)
	for _, c := range []struct {
		id             string
		limit, dropped int
		kept           bool
	}{
		{"order-1", 1 << 20, 0, true},
		{"id\x1b[31m \u00a0", 1 << 20, 0, true},
		{"id\xff", 1 << 20, 0, true},
		{strings.Repeat("i", 1500), 1 << 20, 0, true},
		{long, 1 << 20, 0, true},
		{long, 50000, 1, false},
		{"a\rb", 1 << 20, 1, false},
		{"blank at the end ", 1 << 20, 1, false},
		{"\tat the start", 1 << 20, 1, false},
	} {
		msgs, dropped, err := testLetters(newConn(Config{}, quiet())).entries(letter([]byte("body"), map[string][]string{"Nats-Msg-Id": {c.id}, "X-A": {"1"}}), c.limit)
		if err != nil || len(msgs) != 1 || dropped != c.dropped || msgs[0].Header.Get("X-A") != "1" {
			t.Errorf("%.20q: %d entries, %d dropped, %v", c.id, len(msgs), dropped, err)
			continue
		}
		if got, ok := msgs[0].Header[HeaderMsgID]; ok != c.kept || ok && got[0] != c.id {
			t.Errorf("%.20q is %.20q", c.id, got)
		}
	}
}

// What does not fit is left out in order: response, error, original headers from the largest on; then the body is halved.
func TestEntryFits(t *testing.T) {
	big := strings.Repeat("h", 30000)
	for _, c := range []struct {
		name                  string
		body                  int
		header                map[string][]string
		limit                 int
		parts, dropped        int
		response, error, kept bool
	}{
		{"all fits", 1000, map[string][]string{"X-A": {"1"}}, 3000, 1, 0, true, true, true},
		{"without the response", 1000, map[string][]string{"X-A": {"1"}}, -1, 1, 1, false, true, true},
		{"without the error", 1000, map[string][]string{"X-A": {"1"}}, -30, 1, 2, false, false, true},
		{"without headers", 1000, map[string][]string{"X-A": {strings.Repeat("a", 500)}}, 1400, 1, 3, false, false, false},
		{"the largest header goes first", 1000, map[string][]string{"X-A": {"1"}, "X-B": {strings.Repeat("b", 500)}}, 1500, 1, 3, false, false, true},
		{"a header block too large for JetStream", 10, map[string][]string{"X-A": {"1"}, "X-B": {big}, "X-C": {big}, "X-D": {big}}, 1 << 20, 1, 3, false, false, true},
		{"two parts", 1000, map[string][]string{"X-A": {"1"}}, 1000, 2, 0, true, true, true},
		{"two parts, without the response", 1000, map[string][]string{"X-A": {"1"}}, 830, 2, 1, false, true, true},
		{"two parts, without both", 1000, map[string][]string{"X-A": {"1"}}, 805, 2, 2, false, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := bytes.Repeat([]byte("0123456789"), c.body/10)
			if c.limit < 0 { // below the size of the whole entry
				whole, _, _ := testLetters(newConn(Config{}, quiet())).entries(letter(body, c.header), 1<<20)
				c.limit += headerSize(whole[0].Header) + len(body)
			}
			msgs, dropped, err := testLetters(newConn(Config{}, quiet())).entries(letter(body, c.header), c.limit)
			if err != nil || len(msgs) != c.parts || dropped != c.dropped {
				t.Fatalf("%d entries, %d dropped, %v", len(msgs), dropped, err)
			}
			var joined []byte
			for i, m := range msgs {
				joined = append(joined, m.Data...)
				if size := headerSize(m.Header) + len(m.Data); size > c.limit || headerSize(m.Header) > maxHeaderBlock {
					t.Errorf("entry %d has %d bytes, the limit is %d", i, size, c.limit)
				}
				if c.parts == 2 {
					part := fmt.Sprintf("%d/2", i+1)
					if m.Header.Get(HeaderPart) != part || !strings.HasSuffix(m.Header.Get(natsjs.MsgIDHeader), ":"+part) {
						t.Errorf("entry %d: %v", i, m.Header)
					}
				}
			}
			if !bytes.Equal(joined, body) {
				t.Error("the body is changed")
			}
			h := msgs[0].Header
			if has(h, HeaderResponse) != c.response || has(h, HeaderError) != c.error || has(h, "X-A") != c.kept {
				t.Errorf("headers %v", h)
			}
		})
	}
	if _, _, err := testLetters(newConn(Config{}, quiet())).entries(letter(make([]byte, 1000), nil), 300); !errors.Is(err, ErrDeadLetterTooLarge) {
		t.Errorf("no room at all: %v", err)
	}
}

// What is left out of an entry leaves the values of a name in their order.
func TestEntryKeepsTheOrderOfValues(t *testing.T) {
	first := "much longer than the others"
	msgs, dropped, err := testLetters(newConn(Config{}, quiet())).entries(letter(nil, map[string][]string{
		"X-A": {first, "second", "the third"}, "X-B": {"1", strings.Repeat("b", maxHeaderBlock), "2"},
	}), 1<<20)
	if err != nil || len(msgs) != 1 || dropped != 3 { // the response and the error too
		t.Fatalf("%d entries, %d dropped, %v", len(msgs), dropped, err)
	}
	h := msgs[0].Header
	if a, b := h["X-A"], h["X-B"]; !slices.Equal(a, []string{first, "second", "the third"}) || !slices.Equal(b, []string{"1", "2"}) {
		t.Errorf("%q, %q", a, b)
	}
}

func has(h nats.Header, name string) bool { return len(h[name]) > 0 }

func TestEntrySubjectTooLong(t *testing.T) {
	dl := letter(nil, nil)
	dl.Message.Subject = strings.Repeat("a.", 1800) + "z"
	msgs, _, err := testLetters(newConn(Config{}, quiet())).entries(dl, 1<<20)
	if err != nil || len(msgs[0].Subject) > maxSubject || msgs[0].Header.Get(HeaderSubject) != dl.Message.Subject {
		t.Errorf("subject of %d bytes, %v", len(msgs[0].Subject), err)
	}
}

// Whatever a publisher and the app wrote, an entry can be published, fits, and has its mandatory headers.
func FuzzEntry(f *testing.F) {
	f.Add("X-A", "value", "error", []byte("response"), []byte("body"), "s.x", 2000)
	f.Add("Nats-Rollup", "all", "a\r\nb: c", []byte{0xff, 0, 10}, []byte{}, "s.x.y", 900)
	f.Add("bad name", "\r\nX: y", "", []byte(nil), bytes.Repeat([]byte("x"), 3000), "s", 2500)
	f.Fuzz(func(t *testing.T, name, value, text string, response, body []byte, subject string, limit int) {
		dl := letter(body, map[string][]string{name: {value, value}, "X-Other": {value}})
		dl.Error, dl.Response, dl.Message.Subject = text, response, subject
		limit = max(limit, 0)
		msgs, _, err := testLetters(newConn(Config{}, quiet())).entries(dl, limit)
		if err != nil {
			return
		}
		var joined []byte
		for _, m := range msgs {
			joined = append(joined, m.Data...)
			if headerSize(m.Header)+len(m.Data) > limit {
				t.Fatalf("%d bytes, the limit is %d", headerSize(m.Header)+len(m.Data), limit)
			}
			for _, n := range []string{HeaderReason, HeaderStream, HeaderConsumer, HeaderSequence, natsjs.MsgIDHeader} {
				if !has(m.Header, n) {
					t.Fatalf("no %s", n)
				}
			}
			for n, vs := range m.Header {
				if isCommand(n) && n != natsjs.MsgIDHeader {
					t.Fatalf("%s commands the server", n)
				}
				if v := vs[0]; strings.HasPrefix(n, "Dlq-") && n != HeaderSubject && (len(v) > maxText || strings.ContainsAny(v, "\r\n\x00") || !utf8.ValidString(v)) {
					t.Fatalf("%s: %q", n, v)
				}
			}
		}
		if !bytes.Equal(joined, body) {
			t.Fatal("the body is changed")
		}
	})
}

func TestSubjectPatterns(t *testing.T) {
	for _, c := range []struct {
		a, b              string
		includes, overlap bool
	}{
		{"a.b", "a.b", true, true}, {"a.*", "a.b", true, true}, {"a.b", "a.*", false, true}, {"a.>", "a.b.c", true, true},
		{"a.>", "a", false, false}, {">", "a", true, true}, {"a.*.c", "a.b.*", false, true}, {"a.*", "a.>", false, true},
		{"a.>", "a.>", true, true}, {"a.>", "a.*.>", true, true}, {"a.*.>", "a.>", false, true}, {"a", "b", false, false},
		{"a.b", "a.b.c", false, false}, {"dlq.S.*.>", "dlq.S.d.>", true, true}, {"*", "a", true, true}, {"*.b", "a.c", false, false},
	} {
		if got := includes(c.a, c.b); got != c.includes {
			t.Errorf("includes(%s, %s) = %v", c.a, c.b, got)
		}
		if got := overlap(c.a, c.b); got != c.overlap {
			t.Errorf("overlap(%s, %s) = %v", c.a, c.b, got)
		}
		if got := overlap(c.b, c.a); got != c.overlap {
			t.Errorf("overlap(%s, %s) = %v", c.b, c.a, got)
		}
	}
}

func TestPutStoresOnce(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	d := testLetters(b.conn)
	if err := d.Ensure(b.ctx); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := d.Put(b.ctx, letter([]byte("body"), map[string][]string{"X-A": {"1"}})); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := b.js.Stream(b.ctx, "S_DLQ")
	if err != nil {
		t.Fatal(err)
	}
	c, n := stream.CachedInfo().Config, stream.CachedInfo().State.Msgs
	if n != 1 {
		t.Errorf("%d entries", n)
	}
	if c.Storage != natsjs.FileStorage || c.Discard != natsjs.DiscardNew || !c.AllowDirect || c.Duplicates != time.Hour || c.MaxAge != 0 || fmt.Sprint(c.Subjects) != "[dlq.S.*.>]" {
		t.Errorf("stream %+v", c)
	}
}

func TestEnsureAddsSubjects(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.must(b.js.CreateStream(b.ctx, natsjs.StreamConfig{Name: "S_DLQ", Subjects: []string{"dlq.S.d.>", "other"}, Duplicates: time.Minute}))
	d := testLetters(b.conn)
	if err := d.Ensure(b.ctx); err != nil {
		t.Fatal(err)
	}
	info, err := b.conn.streamInfo(b.ctx, "S_DLQ")
	if err != nil || fmt.Sprint(info.Config.Subjects) != "[other dlq.S.*.>]" || info.Config.Duplicates != time.Minute {
		t.Errorf("%v, %v", info.Config.Subjects, err)
	}
}

func TestEnsureSaysWhatIsWrong(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	d := testLetters(b.conn)
	d.cfg.Create = false
	check := func(want string) {
		t.Helper()
		err := d.Ensure(b.ctx)
		ok, detail, _ := d.State()
		if want == "" != (err == nil) || ok != (err == nil) || err != nil && (!strings.Contains(err.Error(), want) || !strings.Contains(detail, want)) {
			t.Errorf("want %q, got %v, %v, %q", want, err, ok, detail)
		}
	}
	check("does not exist")
	b.must(b.js.CreateStream(b.ctx, natsjs.StreamConfig{Name: "S_DLQ", Subjects: []string{"other"}}))
	check("does not listen on dlq.S.*.>")
	b.must(b.js.UpdateStream(b.ctx, natsjs.StreamConfig{Name: "S_DLQ", Subjects: []string{"dlq.>"}, MaxMsgs: 1, Discard: natsjs.DiscardNew}))
	check("")
	_, err := d.Put(b.ctx, letter(nil, nil))
	b.must(nil, err)
	check("full: 1 entries")
	second := letter(nil, nil)
	second.Message.Sequence++
	if _, err := d.Put(b.ctx, second); err == nil || !strings.Contains(err.Error(), "maximum messages exceeded") {
		t.Errorf("a full stream took it: %v", err)
	}
}

// An entry that was removed is stored again when its message is dead-lettered again, although the server still knows its id.
func TestRemovedEntryIsStoredAgain(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	d := testLetters(b.conn)
	b.must(nil, d.Ensure(b.ctx))
	put := func() uint64 {
		t.Helper()
		seq, _, err := d.PutAt(b.ctx, letter([]byte("body"), nil))
		b.must(nil, err)
		m, err := b.conn.Stored(b.ctx, "S_DLQ", seq)
		b.must(nil, err)
		if m == nil || string(m.Body) != "body" {
			t.Fatalf("entry %d is not there", seq)
		}
		return seq
	}
	first := put()
	if again := put(); again != first {
		t.Errorf("stored at %d and at %d", first, again)
	}
	for range 3 {
		b.must(b.conn.RemoveStored(b.ctx, "S_DLQ", first))
		second := put()
		if again := put(); second == first || again != second {
			t.Errorf("stored at %d, then at %d and at %d", first, second, again)
		}
		first = second
	}
}

// A count of replays that nobody can have made is a publisher's own, and none.
func TestReplaysOf(t *testing.T) {
	for value, want := range map[string]int{"": 0, "3": 3, "1000000": 1000000, "1000001": 0, "1073741824": 0, "9223372036854775807": 0, "-1": 0, "x": 0} {
		if got := ReplaysOf(map[string][]string{HeaderReplays: {value}}); got != want {
			t.Errorf("%q is %d, want %d", value, got, want)
		}
	}
}
