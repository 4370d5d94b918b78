package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/jetsidecar/jetsidecar/internal/pipeline"
	"github.com/jetsidecar/jetsidecar/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// output is a sink that may be read while it is written to.
type output struct {
	mu     sync.Mutex
	b      bytes.Buffer
	writes int
	block  chan struct{} // if not nil, a write first waits for it
	err    error
}

func (o *output) Write(p []byte) (int, error) {
	if o.block != nil {
		<-o.block
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writes++
	if o.err != nil {
		return 0, o.err
	}
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// written is how many writes there were.
func (o *output) written() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.writes
}

func (o *output) lines() int { return strings.Count(o.String(), "\n") }

func logger(t testing.TB, w *output, level, format string) (*slog.Logger, func()) {
	t.Helper()
	log, done, err := NewLogger(w, level, format)
	if err != nil {
		t.Fatal(err)
	}
	return log, done
}

func TestNewLoggerRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, c := range []struct{ level, format string }{{"trace", "json"}, {"", "json"}, {"INFO", "json"}, {"info", "xml"}, {"info", ""}} {
		if _, _, err := NewLogger(&output{}, c.level, c.format); err == nil {
			t.Errorf("level %q, format %q: no error", c.level, c.format)
		}
	}
}

func TestLevel(t *testing.T) {
	for level, want := range map[string]int{"debug": 4, "info": 3, "warn": 2, "error": 1} {
		var w output
		log, done := logger(t, &w, level, "json")
		log.Debug("m")
		log.Info("m")
		log.Warn("m")
		log.Error("m")
		done()
		if w.lines() != want {
			t.Errorf("level %s: %d lines, want %d", level, w.lines(), want)
		}
	}
}

func TestFormat(t *testing.T) {
	for format, want := range map[string]string{"json": `"msg":"m"`, "auto": `"msg":"m"`, "text": `msg=m`} {
		var w output
		log, done := logger(t, &w, "info", format)
		log.Info("m")
		done()
		if !strings.Contains(w.String(), want) {
			t.Errorf("format %s: %q", format, w.String())
		}
	}
}

func TestAutoIsJSONIntoAFile(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	log, done, err := NewLogger(f, "info", "auto")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("m")
	done()
	if b, err := os.ReadFile(f.Name()); err != nil || !json.Valid(b) {
		t.Errorf("%q, %v", b, err)
	}
}

func TestDurationsAreSpelt(t *testing.T) {
	for _, format := range []string{"json", "text"} {
		var w output
		log, done := logger(t, &w, "info", format)
		log.With(slog.Duration("a", 1500*time.Millisecond)).WithGroup("g").
			Info("m", slog.Duration("b", time.Minute), slog.Group("h", slog.Duration("c", 2*time.Microsecond)))
		done()
		for _, want := range []string{"1.5s", "1m0s", "2µs"} {
			if !strings.Contains(w.String(), want) {
				t.Errorf("%s: no %s in %s", format, want, w.String())
			}
		}
	}
}

// line is what a consumer logs for a settled message.
func line(t *testing.T, level, format string, s *pipeline.Settled) string {
	t.Helper()
	var w output
	log, done := logger(t, &w, level, format)
	New(Options{Log: log}).Consumer("ORDERS", "worker").Settled(s)
	done()
	return w.String()
}

func TestSettledLine(t *testing.T) {
	s := &pipeline.Settled{
		Subject: "orders.new", Sequence: 7, Delivered: 2, Result: pipeline.ResultRetry, Reason: "", Status: 503,
		Error: "over <load>", Delay: 1500 * time.Millisecond, Duration: 2500 * time.Microsecond, Latency: time.Second,
	}
	rest := func(l string) string { // without the time, which comes first
		_, after, _ := strings.Cut(l, "Z")
		if after == "" {
			_, after, _ = strings.Cut(l, "level")
			after = "level" + after
		}
		return after
	}
	tail := `"subject":"orders.new","sequence":7,"delivered":2,"verdict":"retry","reason":"","status":503,"delay":"1.5s","duration":"2.5ms","error":"over <load>"}` + "\n"
	if l := line(t, "info", "json", s); !strings.HasSuffix(l, `"level":"INFO","msg":"settled","stream":"ORDERS","consumer":"worker",`+tail) {
		t.Errorf("json: %s", l)
	}
	want := `level=INFO msg=settled stream=ORDERS consumer=worker subject=orders.new sequence=7 delivered=2 verdict=retry reason="" status=503 delay=1.5s duration=2.5ms error="over <load>"` + "\n"
	if l := rest(line(t, "info", "text", s)); !strings.HasSuffix(l, want) {
		t.Errorf("text: %s", l)
	}
	s.Error = ""
	if l := line(t, "info", "json", s); strings.Contains(l, `"error"`) || !json.Valid([]byte(l)) {
		t.Errorf("without an error: %s", l)
	}
}

func TestSettledLevelAndWord(t *testing.T) {
	for _, c := range []struct {
		result pipeline.Result
		reason policy.Reason
		level  string
	}{
		{pipeline.ResultAck, "", "INFO"},
		{pipeline.ResultDrop, "", "INFO"},
		{pipeline.ResultDuplicate, "", "INFO"},
		{pipeline.ResultRetry, "", "INFO"},
		{pipeline.ResultDLQ, policy.ReasonMaxDeliver, "WARN"},
	} {
		t.Run(string(c.result), func(t *testing.T) {
			var got struct{ Level, Msg, Verdict, Reason string }
			l := line(t, "debug", "json", &pipeline.Settled{Result: c.result, Reason: c.reason})
			if err := json.Unmarshal([]byte(l), &got); err != nil {
				t.Fatal(err)
			}
			if got.Level != c.level || got.Msg != "settled" || got.Verdict != string(c.result) || got.Reason != string(c.reason) {
				t.Error(l)
			}
			quiet := line(t, "error", "json", &pipeline.Settled{Result: c.result})
			if quiet != "" {
				t.Errorf("at level error: %s", quiet)
			}
		})
	}
}

func TestErrorIsBounded(t *testing.T) {
	l := line(t, "info", "json", &pipeline.Settled{Result: pipeline.ResultAck, Error: strings.Repeat("x", 100000)})
	if len(l) > 2000 || !strings.Contains(l, strings.Repeat("x", maxLogged)) {
		t.Errorf("a line of %d bytes", len(l))
	}
}

// hostile are texts that must not reach a terminal as they are.
var hostile = []string{
	"a\nb", "a\r\nlevel=ERROR msg=forged", "\x1b[2J\x1b]0;title\x07", "del\x7f", "\x00", "\xff\xfe", "cut \xe2\x82",
	"\u009b31m", "\u0085next", "\u202eltr", "\u2028", "\u200b", "\ufeff", "\U000e0001tag", "\t", `"}` + "\n{", "\ufffd",
}

func TestNothingRawReachesTheOutput(t *testing.T) {
	for _, format := range []string{"json", "text"} {
		for _, text := range hostile {
			var w output
			log, done := logger(t, &w, "info", format)
			c := New(Options{Log: log}).Consumer("S"+text, "c")
			c.Settled(&pipeline.Settled{Subject: text, Result: pipeline.ResultAck, Error: text, Reason: policy.Reason(text)})
			log.Info(text, text, errors.New(text), "struct", struct{ A string }{text}, "bytes", []byte(text))
			done()
			safe(t, format+" "+text, w.String(), 2)
			if format == "json" {
				for l := range strings.Lines(w.String()) {
					if !json.Valid([]byte(l)) {
						t.Errorf("%q: not JSON: %s", text, l)
					}
				}
			}
		}
	}
}

func TestJSONKeepsWhatIsEscaped(t *testing.T) {
	text := "ünï \U0001f600 \u009b31m \u202e \U000e0001 \x7f\n"
	var got struct{ Subject string }
	if err := json.Unmarshal([]byte(line(t, "info", "json", &pipeline.Settled{Subject: text})), &got); err != nil || got.Subject != text {
		t.Errorf("%q, %v", got.Subject, err)
	}
	if l := line(t, "info", "text", &pipeline.Settled{Subject: "ünï"}); !strings.Contains(l, "ünï") {
		t.Errorf("plain letters are escaped: %s", l)
	}
}

func safe(t *testing.T, name, out string, lines int) {
	t.Helper()
	if n := strings.Count(out, "\n"); n != lines || !strings.HasSuffix(out, "\n") {
		t.Errorf("%q: %d lines, want %d: %q", name, n, lines, out)
	}
	if !utf8.ValidString(out) {
		t.Errorf("%q: not UTF-8: %q", name, out)
	}
	for _, r := range out {
		if r != '\n' && (r < ' ' || r >= 0x7f && r < 0xa0 || strings.ContainsRune("\u202e\u2028\u200b\ufeff\U000e0001", r)) {
			t.Errorf("%q: %U reaches the output: %q", name, r, out)
		}
	}
}

func FuzzLine(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, format := range []string{"json", "text"} {
			l := line(t, "info", format, &pipeline.Settled{Subject: text, Error: text})
			safe(t, format, l, 1)
			if format == "json" && !json.Valid([]byte(l)) {
				t.Errorf("not JSON: %s", l)
			}
		}
	})
}

func TestLinesAreWrittenByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w output
		log, done := logger(t, &w, "info", "json")
		defer done()
		for round := range 3 {
			log.Info("first")
			time.Sleep(60 * time.Millisecond)
			log.Info("second")
			time.Sleep(39 * time.Millisecond)
			synctest.Wait()
			if w.written() != round {
				t.Fatalf("round %d: written before 100 ms", round)
			}
			time.Sleep(time.Millisecond)
			synctest.Wait()
			if w.written() != round+1 || w.lines() != 2*(round+1) {
				t.Fatalf("round %d: %d writes, %d lines after 100 ms", round, w.written(), w.lines())
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if w.written() != round+1 {
				t.Fatalf("round %d: written without lines", round)
			}
		}
	})
}

func TestWarningsAreWrittenAtOnce(t *testing.T) {
	for _, level := range []slog.Level{slog.LevelWarn, slog.LevelError} {
		synctest.Test(t, func(t *testing.T) {
			var w output
			log, done := logger(t, &w, "info", "json")
			defer done()
			log.Info("before")
			log.Log(t.Context(), level, "now")
			if w.lines() != 2 {
				t.Errorf("%v: %d lines, want 2", level, w.lines())
			}
		})
	}
}

func TestAFullBufferIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w output
		log, done := logger(t, &w, "info", "json")
		const lines = 1000
		for range lines {
			log.Info(strings.Repeat("x", 200))
		}
		synctest.Wait()
		if got := len(w.String()); got < 2*sinkSize {
			t.Errorf("%d bytes written before the time", got)
		}
		log.Info(strings.Repeat("y", 3*sinkSize)) // one line of its own
		done()
		if w.lines() != lines+1 {
			t.Errorf("%d lines, want %d", w.lines(), lines+1)
		}
	})
}

func TestCloseWritesTheRest(t *testing.T) {
	var w output
	log, done := logger(t, &w, "info", "json")
	log.Info("m")
	done()
	if w.lines() != 1 {
		t.Errorf("%d lines after closing, want 1", w.lines())
	}
	log.Info("late")
	if w.lines() != 2 {
		t.Errorf("a line after closing is not written at once")
	}
	done()
}

func TestASinkThatTakesNothingCostsLinesNotTime(t *testing.T) {
	for _, format := range []string{"json", "text"} {
		synctest.Test(t, func(t *testing.T) {
			w := output{block: make(chan struct{})}
			log, done := logger(t, &w, "info", format)
			start := time.Now()
			const calls = 2000
			for range calls {
				log.Info(strings.Repeat("x", 200))
			}
			log.Error("urgent")
			done()
			if d := time.Since(start); d > 2*stallLimit {
				t.Errorf("logging took %v", d)
			}
			close(w.block)
			synctest.Wait() // closed: nothing waits for the timer
			if !strings.Contains(w.String(), "log lines were lost") {
				t.Error("nothing says that lines were lost")
			}
			lost := countOf(t, format, w.String())
			if kept := w.lines() - 1; lost == 0 || kept+lost != calls+1 {
				t.Errorf("%d lines kept, %d said to be lost, of %d", kept, lost, calls+1)
			}
			log.Error("again")
			if !strings.Contains(w.String(), "again") {
				t.Error("the log does not go on")
			}
		})
	}
}

// countOf sums what the lines about lost lines say.
func countOf(t *testing.T, format, out string) int {
	t.Helper()
	sum := 0
	for l := range strings.Lines(out) {
		if !strings.Contains(l, "log lines were lost") {
			continue
		}
		digits := "0"
		for _, r := range l[strings.Index(l, "count"):] {
			if r >= '0' && r <= '9' {
				digits += string(r)
			}
		}
		var n int
		if err := json.Unmarshal([]byte(strings.TrimLeft(digits, "0")), &n); err != nil {
			t.Fatal(err)
		}
		if format == "json" && !json.Valid([]byte(l)) {
			t.Errorf("not JSON: %s", l)
		}
		sum += n
	}
	return sum
}

func TestASinkThatIsSlowLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &slow{}
		log, done, err := NewLogger(w, "info", "json")
		if err != nil {
			t.Fatal(err)
		}
		for range 2000 { // one after the other: slog holds a mutex while it waits for the sink, and so stops the time of a bubble
			log.Info(strings.Repeat("x", 200))
		}
		done()
		if n := bytes.Count(w.b, []byte("\n")); n != 2000 {
			t.Errorf("%d lines, want 2000", n)
		}
	})
}

// slow takes for a write almost as long as is waited for one.
type slow struct{ b []byte }

func (s *slow) Write(p []byte) (int, error) {
	time.Sleep(stallLimit - time.Millisecond)
	s.b = append(s.b, p...)
	return len(p), nil
}

func TestASinkThatFailsStopsNothing(t *testing.T) {
	w := output{err: errors.New("no space left on device")}
	log, done := logger(t, &w, "info", "json")
	for range 1000 {
		log.Info(strings.Repeat("x", 200))
	}
	log.Error("urgent")
	done()
	if w.written() < 2 {
		t.Errorf("%d writes, want one for each full buffer", w.written())
	}
}

// What a sink lost while it failed is counted, and told when it works again.
func TestASinkThatFailedSaysWhatIsLost(t *testing.T) {
	w := output{err: errors.New("broken pipe")}
	log, done := logger(t, &w, "info", "json")
	for range 1000 {
		log.Info(strings.Repeat("x", 200))
	}
	log.Error("urgent")
	w.mu.Lock()
	w.err = nil
	w.mu.Unlock()
	log.Error("again")
	done()
	if lost := countOf(t, "json", w.String()); lost != 1001 || !strings.Contains(w.String(), "again") {
		t.Errorf("%d lines said to be lost of 1001, and then:\n%s", lost, w.String())
	}
}

func TestConcurrentLinesStayWhole(t *testing.T) {
	var w output
	log, done := logger(t, &w, "info", "json")
	c := New(Options{Log: log}).Consumer("S", "c")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 500 {
				r := pipeline.ResultAck
				if (i+j)%50 == 0 {
					r = pipeline.ResultDLQ
				}
				c.Settled(&pipeline.Settled{Subject: "s\x1b", Result: r})
			}
		})
	}
	wg.Wait()
	done()
	n := 0
	for l := range strings.Lines(w.String()) {
		n++
		if !json.Valid([]byte(l)) {
			t.Fatalf("not JSON: %s", l)
		}
	}
	if n != 4000 {
		t.Errorf("%d lines, want 4000", n)
	}
}

// The line that is written without slog is slog's, byte for byte.
func sameLine(t *testing.T, stream, durable string, s *pipeline.Settled) {
	t.Helper()
	now := time.Unix(1_700_000_000, int64(s.Sequence%1e9))
	level := slog.LevelInfo
	if s.Result == pipeline.ResultDLQ {
		level = slog.LevelWarn
	}
	var lean, full output
	log, done := logger(t, &lean, "info", "json")
	c := New(Options{Log: log}).Consumer(stream, durable)
	if c.lines == nil {
		t.Fatal("a JSON log is left to slog")
	}
	wrote := c.lines.write(now, level, s)
	done()
	log, done = logger(t, &full, "info", "json")
	New(Options{Log: log}).Consumer(stream, durable).line(context.Background(), now, level, s)
	done()
	if wrote && lean.String() != full.String() {
		t.Errorf("got  %s\nwant %s", lean.String(), full.String())
	}
	if !wrote && lean.String() != "" {
		t.Errorf("a line that is left to slog is written too: %s", lean.String())
	}
}

func TestLeanLineIsSlogs(t *testing.T) {
	for _, s := range []pipeline.Settled{
		{},
		{Subject: "orders.new", Sequence: 1, Delivered: 1, Result: pipeline.ResultAck, Status: 200, Duration: 1234567},
		{Subject: "a b <&> '", Sequence: 1<<64 - 1, Delivered: 1 << 63, Result: pipeline.ResultRetry, Status: -1, Delay: -time.Second, Error: "over <load>"},
		{Subject: `a"b\c`, Result: pipeline.ResultDLQ, Reason: policy.ReasonMaxDeliver, Error: strings.Repeat("x", 2000)},
		{Subject: "ä", Error: "\x00\xff\u2028"},
		{Subject: "s", Result: pipeline.ResultDLQ, Reason: policy.ReasonMaxAge, Error: strings.Repeat("ä", 1000)},
	} {
		sameLine(t, "ORDERS", "worker", &s)
		sameLine(t, "a\"\u2028b", "", &s)
	}
}

func FuzzLeanLine(f *testing.F) {
	for _, s := range hostile {
		f.Add(s, s, uint64(1), 200, int64(1))
	}
	f.Add("orders.new", "gone", uint64(1)<<40, 503, int64(1500*time.Millisecond))
	f.Fuzz(func(t *testing.T, subject, cause string, n uint64, status int, delay int64) {
		s := &pipeline.Settled{Subject: subject, Error: cause, Sequence: n, Delivered: n / 2, Status: status,
			Result: pipeline.ResultRetry, Delay: time.Duration(delay), Duration: time.Duration(delay / 3)}
		sameLine(t, "S", "c", s)
	})
}
