package forward

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jetsidecar/jetsidecar/policy"
)

// aBatch is messages of several kinds.
func aBatch() []Message {
	at := time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)
	return []Message{
		{Stream: "ORDERS", Subject: "orders.new", Sequence: 1, Delivered: 1, MaxDeliver: 10, Pending: 5, Stored: at, Body: []byte(`{"a":1}`), Header: map[string][]string{"Nats-Msg-Id": {"one"}, "X": {"1", "2"}}},
		{Stream: "ORDERS", Subject: "orders.new", Sequence: 2, Delivered: 3, Stored: at.Truncate(time.Second), Body: []byte("\xff\x00")},
		{Stream: "ORDERS", Subject: "orders.\"odd\"", Sequence: 3, Delivered: 1, Stored: at.Add(time.Second), Body: nil},
		{Stream: "ORDERS", Subject: "e", Sequence: 4, Delivered: 1, Stored: at, Body: []byte("d"), Header: map[string][]string{"ce-id": {"own"}, "ce-source": {"/s"}, "ce-type": {"t"}}},
		{Stream: "ORDERS", Subject: "e", Sequence: 5, Delivered: 2, Stored: at, Header: map[string][]string{"Content-Type": {eventJSON}},
			Body: []byte(` {"specversion":"1.0","id":"own","source":"/s","type":"t","natsid":"forged","data":{"x":[1]}} `)},
	}
}

func TestBatchLines(t *testing.T) {
	want := []string{
		`{"id":"ORDERS:1:1772366400123456000","stream":"ORDERS","subject":"orders.new","sequence":1,"time_stamp":"2026-03-01T12:00:00.123456Z","num_delivered":1,"max_deliver":10,"num_pending":5,"idempotency_key":"one","headers":{"Nats-Msg-Id":["one"],"X":["1","2"]},"data":"{\"a\":1}"}`,
		`{"id":"ORDERS:2:1772366400000000000","stream":"ORDERS","subject":"orders.new","sequence":2,"time_stamp":"2026-03-01T12:00:00Z","num_delivered":3,"num_pending":0,"idempotency_key":"ORDERS:2:1772366400000000000","headers":{},"data_base64":"/wA="}`,
		`{"id":"ORDERS:3:1772366401123456000","stream":"ORDERS","subject":"orders.\"odd\"","sequence":3,"time_stamp":"2026-03-01T12:00:01.123456Z","num_delivered":1,"num_pending":0,"idempotency_key":"ORDERS:3:1772366401123456000","headers":{},"data":""}`,
	}
	lines, changed := appendLines(nil, aBatch()[:3])
	if got := string(lines); got != strings.Join(want, "\n")+"\n" || changed != 0 {
		t.Errorf("%s", got)
	}
}

func TestBatchEvents(t *testing.T) {
	body, _ := appendEvents(nil, aBatch())
	var events []map[string]any
	if err := json.Unmarshal(body, &events); err != nil || len(events) != 5 {
		t.Fatalf("%v: %s", err, body)
	}
	for i, want := range []struct{ id, natsid, subject string }{
		{"one", "ORDERS:1:1772366400123456000", "orders.new"}, {"ORDERS:2:1772366400000000000", "ORDERS:2:1772366400000000000", "orders.new"},
		{"ORDERS:3:1772366401123456000", "ORDERS:3:1772366401123456000", `orders."odd"`}, {"own", "ORDERS:4:1772366400123456000", "e"}, {"own", "ORDERS:5:1772366400123456000", "e"},
	} {
		if e := events[i]; e["id"] != want.id || e["natsid"] != want.natsid || e["natssubject"] != want.subject || e["specversion"] != "1.0" {
			t.Errorf("event %d: %v", i, e)
		}
	}
	if e := events[4]; e["natsnumdelivered"] != 2.0 || e["natsmaxdeliver"] != nil || e["natssequence"] != "5" || e["data"].(map[string]any)["x"] == nil {
		t.Errorf("%v", e)
	}
}

// FuzzBatchLine holds that a line is JSON, and has the message byte for byte.
func FuzzBatchLine(f *testing.F) {
	f.Add("orders.new", "X-Name", "value", []byte("body"), uint64(1), int64(1))
	f.Add("a\n\"\xff", "\x00", "\\u0000\u2028", []byte("\xed\xa0\x80\r\n"), uint64(1<<63), int64(-5))
	f.Add("0", "\xdd", "\x9d", []byte("0"), uint64(87), int64(1)) // neither is UTF-8, and both together are
	f.Fuzz(func(t *testing.T, subject, name, value string, body []byte, n uint64, at int64) {
		m := Message{Stream: subject, Subject: subject, Sequence: n, Delivered: n, MaxDeliver: n, Pending: n, Stored: time.Unix(0, at), Header: map[string][]string{name: {value, value}}, Body: body}
		line, _ := appendLines(nil, []Message{m, m})
		lines := strings.Split(string(line), "\n")
		if len(lines) != 3 || lines[0] != lines[1] || !utf8.Valid(line) {
			t.Fatalf("%q", line)
		}
		var got struct {
			Subject    string
			Sequence   uint64
			TimeStamp  time.Time `json:"time_stamp"`
			Headers    map[string][]string
			Data       *string
			DataBase64 *string `json:"data_base64"`
		}
		if err := json.Unmarshal([]byte(lines[0]), &got); err != nil {
			t.Fatalf("%v: %q", err, lines[0])
		}
		var read string
		if got.Data != nil {
			read = *got.Data
		} else {
			b, err := base64.StdEncoding.DecodeString(*got.DataBase64)
			if read = string(b); err != nil {
				t.Fatal(err)
			}
		}
		if read != string(body) || (got.Data != nil) != utf8.Valid(body) || got.Sequence != n || !got.TimeStamp.Equal(m.Stored) || utf8.ValidString(subject) && got.Subject != subject {
			t.Fatalf("%+v of %+v", got, m)
		}
		if utf8.ValidString(name) && utf8.ValidString(value) && !slices.Equal(got.Headers[name], []string{value, value}) {
			t.Fatalf("headers %v", got.Headers)
		}
	})
}

// No two ids become one: what no JSON text can carry falls back to what tells each message from all others, and is counted where it is a header.
func TestBatchItemIDsThatAreNotUTF8(t *testing.T) {
	ms := []Message{
		{Stream: "S", Sequence: 1, Stored: time.Unix(1, 0), Header: map[string][]string{headerMsgID: {"order-\xe4"}, "A": {"ok", "\xff"}}},
		{Stream: "S", Sequence: 2, Stored: time.Unix(1, 0), Header: map[string][]string{headerMsgID: {"order-\xf6"}}},
		{Stream: "S", Sequence: 3, Stored: time.Unix(1, 0), Header: map[string][]string{headerMsgID: {"order-\u00f6"}}},
	}
	lines, changed := appendLines(nil, ms)
	var keys []string
	for line := range bytes.Lines(lines) {
		var item struct {
			Key string `json:"idempotency_key"`
		}
		if err := json.Unmarshal(line, &item); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, item.Key)
	}
	if want := []string{"S:1:1000000000", "S:2:1000000000", "order-\u00f6"}; !slices.Equal(keys, want) || changed != 3 {
		t.Errorf("keys %q, %d values changed", keys, changed)
	}
}

// An answer that is coded, although that was not asked for, is read if it can be, and else acks nothing.
func TestBatchAnswerThatIsCoded(t *testing.T) {
	zip := func(text string) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write([]byte(text))
		_ = w.Close()
		return b.String()
	}
	results := `{"results":[{"id":"ORDERS:1:1772366400123456000","action":"dlq","reason":"no"}]}`
	for name, c := range map[string]struct {
		coding, body string
		want         policy.Verdict // of the first; 0: what the status says
		others       policy.Verdict
	}{
		"results":             {"gzip", zip(results), policy.DLQ, 0},
		"results, old name":   {"X-GZIP", zip(results), policy.DLQ, 0},
		"other text":          {"gzip", zip("thanks"), 0, 0},
		"large":               {"gzip", zip(`{"log":"` + strings.Repeat("x", readBytes) + `"}`), 0, policy.Retry},
		"not coded after all": {"gzip", results, 0, policy.Retry},
		"cut off":             {"gzip", zip(results)[:40], 0, policy.Retry},
		"another":             {"br", "????", 0, policy.Retry},
		"several":             {"gzip, br", "????", 0, policy.Retry},
		"identity":            {"identity", results, policy.DLQ, 0},
		"no body":             {"br", "", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Accept-Encoding") != "identity" {
					t.Errorf("asked for %q", r.Header.Values("Accept-Encoding"))
				}
				w.Header().Set("Content-Encoding", c.coding)
				_, _ = io.WriteString(w, c.body)
			}))
			defer app.Close()
			client := newClient(t, nil, func(s *setup) { s.config.URL = app.URL })
			r := client.ForwardBatch(t.Context(), target(t, client, http.MethodPost), aBatch())
			var first policy.Verdict
			if r.Items != nil {
				first = r.Items[0].Action
			}
			if r.Status != 200 || first != c.want || r.Action != c.others || (r.Error != "") != (c.others != 0) {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestBatchResults(t *testing.T) {
	ms := aBatch()
	id := func(i int) string {
		return `"` + "ORDERS:" + string(rune('0'+i)) + ":" + []string{"", "1772366400123456000", "1772366400000000000"}[i] + `"`
	}
	for name, tc := range map[string]struct {
		format Format
		body   string
		want   string // verdict and reason of each message
		doubt  bool
	}{
		"nothing":           {Raw, "", "", false},
		"not about results": {Raw, `{"data":{"result":1}}`, "", false},
		"deeper":            {Raw, `{"data":{"results":[{"id":1}]}}`, "", false},
		"verdicts":          {Raw, `{"results":[{"id":` + id(1) + `,"action":" RETRY ","reason":"busy"},{"id":` + id(2) + `,"action":"drop"}]}`, "retry busy,drop ,none ,none ,none ", false},
		"twice":             {Raw, `{"results":[{"id":` + id(1) + `,"action":"dlq"},{"id":` + id(1) + `,"action":"ack"},{"id":` + id(2) + `,"action":"dlq"},{"id":` + id(2) + `,"action":"retry"}]}`, "dlq ,retry ,none ,none ,none ", false},
		"no action":         {Raw, `{"results":[{"id":` + id(1) + `}]}`, `retry unknown action "",none ,none ,none ,none `, false},
		"action a number":   {Raw, `{"results":[{"id":` + id(1) + `,"action":1}]}`, `retry unknown action "1",none ,none ,none ,none `, false},
		"reason an object":  {Raw, `{"results":[{"id":` + id(1) + `,"action":"ack","reason":{"a":1}}]}`, `ack {"a":1},none ,none ,none ,none `, false},
		"unknown":           {Raw, `{"results":[{"id":"x","action":"dlq"},{"id":` + id(1) + `,"action":"ack"}]}`, `ack ,none ,none ,none ,none `, true},
		"no id":             {Raw, `{"results":[{"action":"dlq"}]}`, `none ,none ,none ,none ,none `, true},
		"unknown done":      {Raw, `{"results":[{"id":"x","action":"ack"}]}`, `none ,none ,none ,none ,none `, false},
		"null":              {Raw, `{"results":null}`, "", false},
		"empty":             {Raw, `{"results":[]}`, "", false},
		"an object":         {Raw, `{"results":{"inserted":500}}`, "", false},
		"a text":            {Raw, `{"results":"failed"}`, "", false},
		"numbers":           {Raw, `{"results":[4,null,[{"action":"dlq"}]]}`, "", false},
		"the app's own":     {Raw, `{"results":[{"id":17,"status":"created"},{"id":"x","result":{"action":"dlq"}},{"id":"y","action":null}]}`, "", false},
		"its own numbers":   {CloudEvents, `{"results":[{"id":1,"status":"created"}]}`, "", false},
		"own among ours":    {Raw, `{"results":[{"id":"x"},4,{"id":` + id(1) + `,"action":"ack"},{}]}`, `ack ,none ,none ,none ,none `, false},
		"cut off":           {Raw, `{"results":[`, "", false},
		"cut off, own":      {Raw, `{"results":[{"id":17,"status":"created"},{"id":"x","nested":[{"action":"dlq"}]},{"id":18,"st`, "", false},
		"cut off, action":   {Raw, `{"results":[{"id":17,"n":{"a":[1]},"action":"re`, "", true},
		"cut off, an id":    {Raw, `{"n":[{}],"Results":[1,[2],{"ID":` + id(1), "", true},
		"cut off, event id": {CloudEvents, `{"results":[{"id":"one",`, "", true},
		"cut off in an id":  {Raw, `{"results":[{"id":"ORDERS:1:17`, "", false},
		"cut off later":     {Raw, `{"results":[{"id":` + id(2) + `,"action":"ack"}],"took":`, "", true},
		"more than JSON":    {Raw, `{"results":[{"id":` + id(2) + `,"action":"dlq"}]} done`, "", true},
		"a second value":    {Raw, `{"ok":1}` + "\n" + `{"results":[{"id":` + id(2) + `,"action":"retry"}]}`, "", true},
		"a value at once":   {Raw, `{"ok":1}{"results":[{"id":` + id(2) + `}]}`, "", true},
		"a third, cut off":  {Raw, `[1] "x" {"results":[{"n":1e999,"action":"re`, "", true},
		"own values":        {Raw, `{"results":[{"id":17,"status":"created"}]}` + "\n" + `{"action":"none"} [{"results":[{"action":"dlq"}]}]`, "", false},
		"a list":            {Raw, `[{"results":[{"id":` + id(2) + `,"action":"retry"}]}]`, "", false},
		"a text of it":      {Raw, `"the \"results\": {\"action\": 1}"`, "", false},
		"behind a prefix":   {Raw, ")]}'\n" + `{"results":[{"id":` + id(2) + `}]}`, "", true},
		"called":            {Raw, `answer({"took":1,"results":[{"id":` + id(2) + `,"action":"dlq"}]});`, "", true},
		"behind a value":    {Raw, `2 done {"results":[{"id":` + id(2) + `,"action":"dlq"}]}`, "", true},
		"prefix, own":       {Raw, `done: {"results":[{"id":17,"status":"created"}]}`, "", false},
		"prefix, no object": {Raw, `see "results" and "action"`, "", false},
		"a page":            {Raw, `<script>x = {"results":[]}</script>`, "", false},
		"large, prefix":     {Raw, ")]}'\n" + `{"results":[{"id":` + id(2) + `,"action":"dlq"}],"log":"` + strings.Repeat("x", readBytes), "", true},
		"large, page":       {Raw, `<a>{"action":"x"}` + strings.Repeat("x", readBytes), "", false},
		"not ours, broken":  {Raw, `{"results":{"inserted":500},}`, "", false},
		"broken before":     {Raw, `{"note":"said "hi"","results":[{"id":` + id(2) + `,"action":"dlq"}]}`, "", true},
		"large":             {Raw, `{"results":[{"id":` + id(2) + `,"action":"dlq"}],"log":"` + strings.Repeat("x", readBytes), "", true},
		"large, later":      {Raw, `{"log":"` + strings.Repeat("x", readBytes) + `"`, "", true},
		"large, the first":  {Raw, `{"results":[{"reason":"` + strings.Repeat("x", readBytes), "", true},
		"large, no object":  {Raw, "<html>" + strings.Repeat("x", readBytes), "", false},
		"large, none":       {Raw, `{"results":[],"log":"` + strings.Repeat("x", readBytes) + `"`, "", false},
		"large, text":       {Raw, `{"results":"fine","log":"` + strings.Repeat("x", readBytes) + `"`, "", false},
		"large, own":        {Raw, `{"results":[` + strings.Repeat(`{"id":17,"status":"created"},`, readBytes/20), "", false},
		"with a mark":       {Raw, "\ufeff" + ` {"results":[{"action"`, "", true},
		"message id in raw": {Raw, `{"results":[{"id":"one","action":"dlq"}]}`, `none ,none ,none ,none ,none `, true},
		"event id":          {CloudEvents, `{"results":[{"id":"one","action":"dlq"}]}`, `dlq ,none ,none ,none ,none `, false},
		"nats id":           {CloudEvents, `{"results":[{"id":` + id(2) + `,"action":"dlq"}]}`, `none ,dlq ,none ,none ,none `, false},
		"id of two events":  {CloudEventsJSON, `{"results":[{"id":"own","action":"drop"}]}`, `none ,none ,none ,retry ,retry `, false},
	} {
		items, doubt := results([]byte(tc.body), func() map[string][]int { return idsOf(tc.format, ms) }, len(ms))
		var got []string
		var unclear bool
		for _, i := range items {
			got = append(got, i.Action.String()+" "+i.Reason)
			unclear = unclear || i.Error != ""
		}
		if strings.Join(got, ",") != tc.want || (doubt != "") != tc.doubt {
			t.Errorf("%s: %q, doubt %q", name, got, doubt)
		}
		if want := name == "twice" || name == "id of two events"; unclear != want {
			t.Errorf("%s: unclear %v", name, unclear)
		}
	}
}

// What an answer says of a message more than once, or not clearly, is told with the message, beside the reason that the app gave.
func TestBatchResultsThatAreNotClear(t *testing.T) {
	one := `{"id":"one","action":"ack"}`
	for body, want := range map[string]string{
		one:                                   "ack ",
		one + "," + one:                       "ack ",
		one + `,{"id":"one","action":"drop"}`: "drop the results of the batch name the message twice, with different actions",
		`{"id":"one","action":"retry","reason":"busy"},` + one: "retry the results of the batch name the message twice, with different actions: busy",
		`{"id":"own","action":"dlq","reason":"bad"},` + one:    "ack ",
	} {
		items, _ := results([]byte(`{"results":[`+body+`]}`), func() map[string][]int { return idsOf(CloudEvents, aBatch()) }, len(aBatch()))
		if got := items[0].Action.String() + " " + items[0].Error; got != want {
			t.Errorf("%s: %q", body, got)
		}
		if shared := items[3]; shared.Kind != 0 && (shared.Action != policy.Retry || shared.Error != "the id is that of several messages of the batch: bad") {
			t.Errorf("%s: %+v", body, shared)
		}
	}
}

func TestBatchRetryAfter(t *testing.T) {
	for text, want := range map[string]time.Duration{`3`: 3 * time.Second, `0.5`: time.Second / 2, `"7"`: 7 * time.Second, `-1`: 0, `"soon"`: 0, `null`: 0, `1e30`: 1<<63 - 1, `{}`: 0} {
		if got := readResult(json.RawMessage(`{"id":"x","action":"retry","retry_after":` + text + `}`)).outcome.RetryAfter; got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// FuzzResults holds that no answer is too odd, and that one which names something never leaves it done against its word.
func FuzzResults(f *testing.F) {
	ms := aBatch()
	f.Add([]byte(`{"results":[{"id":"ORDERS:1:1772366400123456000","action":"retry","reason":"x","retry_after":1}]}`))
	f.Add([]byte(`{"results":[1,null,[],{"id":{}}]}`))
	f.Add([]byte(`{"results":[{"n":1e999,"id":"one"},{"action":null}]}`))
	f.Add([]byte(`{"ok":1} [2] {"results":[{"id":"one","action":"dlq"}]} end`))
	f.Fuzz(func(t *testing.T, body []byte) {
		items, _ := results(body, func() map[string][]int { return idsOf(CloudEvents, ms) }, len(ms))
		for _, i := range items {
			if i.Kind != 0 && (i.Kind != policy.Answered || i.Action == 0 || len(i.Reason) > keptBytes || i.RetryAfter < 0) {
				t.Fatalf("%+v", i)
			}
		}
		if items == nil || len(body) > readBytes/2 {
			return
		}
		for _, before := range []string{"{\"ok\":1}\n", "[{}]", ")]}'\n", "done: "} { // what it says is not lost behind something else
			if items, doubt := results(append([]byte(before), body...), func() map[string][]int { return idsOf(CloudEvents, ms) }, len(ms)); items != nil || doubt == "" {
				t.Fatalf("behind %q: %+v", before, items)
			}
		}
	})
}

// What makes no sense in a header is no reason to be silent about what makes none in a body.
func TestEachKindOfNonsenseIsLogged(t *testing.T) {
	var log bytes.Buffer
	answer := `{"results":[{"id":"other","action":"dlq"},{"id":"own","action":"drop"}]}`
	n := &network{accept: always("HTTP/1.1 200 OK\r\nSidecar-Action: nak\r\nContent-Length: " + strconv.Itoa(len(answer)) + "\r\n\r\n" + answer)}
	client := newClient(t, n, func(s *setup) { s.options.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	to := target(t, client, http.MethodPost).In(CloudEvents).Batched()
	for range 3 {
		client.ForwardBatch(t.Context(), to, aBatch())
	}
	for _, what := range []string{"unknown sidecar-action", "results that make no sense", "results that are not clear"} {
		if said := log.String(); strings.Count(said, what) != 1 {
			t.Errorf("of %q logged %q", what, said)
		}
	}
}
