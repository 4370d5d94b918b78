package test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	sidecarapp "github.com/jetsidecar/jetsidecar/internal/app"
	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/telemetry"
)

// option changes the configuration of a sidecar.
type option func(*config.Config)

// consumer is an option for the first consumer.
func consumer(change func(*config.Consumer)) option {
	return func(c *config.Config) { change(&c.Consumers[0]) }
}

// sidecar is a whole sidecar in this process.
type sidecar struct {
	t        *testing.T
	admin    adminClient
	log      *logLines
	patience time.Duration

	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// configuration is the default one, with this world's addresses and short times.
func (w *world) configuration(options ...option) *config.Config {
	cfg := config.Default()
	cfg.NATS.URLs = w.urls
	cfg.App.URL = w.app.url()
	cfg.App.Ready.Interval = 50 * time.Millisecond
	cfg.Admin.Listen = "127.0.0.1:0"
	cfg.ShutdownTimeout = 10 * time.Second
	cfg.Consumers = []config.Consumer{testConsumer()}
	for _, o := range options {
		o(&cfg)
	}
	return &cfg
}

func testConsumer() config.Consumer {
	c := config.DefaultConsumer()
	c.Breaker.Failures = 0 // on in the tests of the breaker: elsewhere many messages fail on purpose
	c.Stream, c.Durable = stream, durable
	c.Retry.Initial, c.Retry.Max = 10*time.Millisecond, 50*time.Millisecond
	c.Breaker.Failures = 0 // what fails on purpose is no outage
	return c
}

// sidecar runs a sidecar until the test's end.
func (w *world) sidecar(options ...option) *sidecar {
	w.t.Helper()
	s := &sidecar{t: w.t, log: &logLines{}, patience: w.patience, done: make(chan struct{})}
	log, flush, err := telemetry.NewLogger(s.log, "info", "json")
	w.must(err)
	a, err := sidecarapp.New(sidecarapp.Options{Config: w.configuration(options...), Version: "test", Log: log, StopGrace: 10 * time.Second})
	w.must(err)
	s.admin = adminClient(a.AdminAddr().String())
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() {
		defer close(s.done)
		s.err = a.Run(ctx)
		flush()
	}()
	w.t.Cleanup(func() {
		s.stop()
		if w.t.Failed() {
			w.t.Logf("the sidecar's log ends so:\n%s", s.log.end())
		}
	})
	return s
}

// stop stops the sidecar and returns what Run did.
func (s *sidecar) stop() error {
	s.cancel()
	select {
	case <-s.done:
		return s.err
	case <-time.After(s.patience):
		s.t.Error("the sidecar does not stop")
		return nil
	}
}

// running is a sidecar that is ready.
func (w *world) running(options ...option) *sidecar {
	w.t.Helper()
	s := w.sidecar(options...)
	s.waitReady()
	return s
}

func (s *sidecar) waitReady() {
	s.t.Helper()
	eventuallyWithin(s.t, s.patience, func() bool { return s.admin.status("/readyz") == 200 }, func() string { return "ready: " + s.admin.text("/readyz") })
}

// waitCheck waits until a check is failing, or well again, and returns its detail.
func (s *sidecar) waitCheck(name string, ok bool) string {
	s.t.Helper()
	detail := ""
	eventuallyWithin(s.t, s.patience, func() bool {
		c, found := s.admin.readiness().check(name)
		detail = c.Detail
		return found && c.OK == ok
	}, func() string {
		return "check " + name + " to be " + strconv.FormatBool(ok) + ": " + s.admin.text("/readyz")
	})
	return detail
}

// waitTold waits until a check is as wanted, and its detail has all the words in it: the first detail can be of something before.
func (s *sidecar) waitTold(name string, ok bool, words ...string) (detail string) {
	s.t.Helper()
	eventuallyWithin(s.t, s.patience, func() bool {
		c, found := s.admin.readiness().check(name)
		detail = c.Detail
		return found && c.OK == ok && !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(detail, word) })
	}, func() string {
		return fmt.Sprintf("check %s to be %t and to say %q: %s", name, ok, words, s.admin.text("/readyz"))
	})
	return detail
}

// waitMetric waits until a metric's value is as wanted.
func (s *sidecar) waitMetric(series string, is func(float64) bool) {
	s.t.Helper()
	eventuallyWithin(s.t, s.patience, func() bool { return is(s.admin.metric(series)) }, func() string {
		return series + ", which is " + strconv.FormatFloat(s.admin.metric(series), 'g', -1, 64)
	})
}

func atLeast(n float64) func(float64) bool { return func(v float64) bool { return v >= n } }

// adminClient speaks to an admin listener at an address.
type adminClient string

var adminHTTP = http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}

func (a adminClient) get(path string) (int, string) {
	resp, err := adminHTTP.Get("http://" + string(a) + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

func (a adminClient) status(path string) int {
	code, _ := a.get(path)
	return code
}

func (a adminClient) text(path string) string {
	_, body := a.get(path)
	return body
}

type readiness struct {
	Ready  bool    `json:"ready"`
	Checks []check `json:"checks"`
}

type check struct {
	Name, Stream, Consumer, Detail string
	OK                             bool
}

func (a adminClient) readiness() (r readiness) {
	_ = json.Unmarshal([]byte(a.text("/readyz")), &r)
	return r
}

func (r readiness) check(name string) (check, bool) {
	for _, c := range r.Checks {
		if c.Name == name {
			return c, true
		}
	}
	return check{}, false
}

// metric is the sum of the series that start so: a name, or a name with the start of its labels. -1 if there is none.
func (a adminClient) metric(series string) float64 { return metricOf(a.text("/metrics"), series) }

// metricOf is that sum in a text.
func metricOf(text, series string) float64 {
	sum, found := 0.0, false
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, series)
		if !ok || !strings.ContainsAny(rest[:1], "{} ,") {
			continue
		}
		fields := strings.Fields(line)
		if v, err := strconv.ParseFloat(fields[len(fields)-1], 64); err == nil {
			sum, found = sum+v, true
		}
	}
	if !found {
		return -1
	}
	return sum
}

// verdicts is the number of messages settled so.
func (a adminClient) verdicts(word string) float64 {
	return a.metric(`sidecar_messages_total{consumer="worker",stream="ORDERS",verdict="` + word + `"`)
}

// counted waits until sidecars count so many messages as settled so, and returns how many they do. One is counted when its ack was sent, so
// that the server may know of it before.
func counted(t *testing.T, word string, n float64, sidecars ...*sidecar) (all float64) {
	t.Helper()
	eventually(t, func() bool {
		all = 0
		for _, s := range sidecars {
			all += max(s.admin.verdicts(word), 0)
		}
		return all >= n
	}, func() string { return fmt.Sprintf("%v messages to be counted as %s, which are %v", n, word, all) })
	return all
}

// logLines is a log in memory.
type logLines struct {
	mu      sync.Mutex
	buf     bytes.Buffer
	read    int // bytes of buf that are decoded
	decoded []map[string]any
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// end is what was logged last.
func (l *logLines) end() string {
	text := l.String()
	return text[max(0, len(text)-4000):]
}

// decode decodes what came since the last time, whole lines only.
func (l *logLines) decode() []map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	fresh := l.buf.Bytes()[l.read:]
	fresh = fresh[:bytes.LastIndexByte(fresh, '\n')+1]
	l.read += len(fresh)
	for line := range bytes.Lines(fresh) {
		var m map[string]any
		if json.Unmarshal(line, &m) == nil {
			l.decoded = append(l.decoded, m)
		}
	}
	return slices.Clip(l.decoded)
}

// lines are the lines with a message, decoded.
func (l *logLines) lines(msg string) []map[string]any {
	var all []map[string]any
	for _, m := range l.decode() {
		if m["msg"] == msg {
			all = append(all, m)
		}
	}
	return all
}

// settled are the lines of a message that was settled.
func (l *logLines) settled(seq uint64) []map[string]any {
	var all []map[string]any
	for _, m := range l.lines("settled") {
		if m["sequence"] == float64(seq) {
			all = append(all, m)
		}
	}
	return all
}

// waitSettled waits for so many lines of a message.
func (l *logLines) waitSettled(t *testing.T, seq uint64, n int) []map[string]any {
	t.Helper()
	eventually(t, func() bool { return len(l.settled(seq)) >= n }, func() string { return "log lines of a settled message:\n" + l.String() })
	return l.settled(seq)
}
