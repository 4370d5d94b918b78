package test

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

// receiver is a real HTTP server that alerts are posted to.
type receiver struct {
	t       *testing.T
	address string
	server  *http.Server
	done    chan struct{}

	mu     sync.Mutex
	posts  []string
	answer int
}

const receiverSecret = "hunter2"

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	port, err := localnats.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{t: t, address: net.JoinHostPort("127.0.0.1", jsonText(port)), answer: 200}
	t.Cleanup(r.down)
	return r
}

func jsonText(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

func (r *receiver) up() {
	r.t.Helper()
	listener, err := localnats.Listen("tcp", r.address)
	if err != nil {
		r.t.Fatal(err)
	}
	r.server, r.done = &http.Server{Handler: r, ReadHeaderTimeout: patience}, make(chan struct{})
	go func() { defer close(r.done); _ = r.server.Serve(listener) }()
}

func (r *receiver) down() {
	if r.server != nil {
		_ = r.server.Close()
		<-r.done
		r.server = nil
	}
}

// ServeHTTP takes an alert.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	if req.Method == http.MethodPost && req.Header.Get("Content-Type") == "application/json" && req.URL.Path == "/"+receiverSecret {
		r.posts = append(r.posts, string(body))
	}
	w.WriteHeader(r.answer)
}

// got are the posts so far.
func (r *receiver) got() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.posts...)
}

func (r *receiver) wait(n int) []string {
	r.t.Helper()
	eventually(r.t, func() bool { return len(r.got()) >= n }, func() string { return "alerts: " + jsonText(r.got()) })
	return r.got()
}

// alerting is a sidecar that posts alerts above two entries.
func (w *world) alerting(r *receiver, format string) *sidecar {
	w.t.Helper()
	w.app.on(always(reply{status: 422}))
	return w.running(consumer(func(c *config.Consumer) {
		c.DLQ.AlertDepth, c.DLQ.AlertFormat, c.DLQ.AlertURL = 2, format, "http://user:"+receiverSecret+"@"+r.address+"/"+receiverSecret
	}))
}

// empty removes all entries of the DLQ, as a tool would.
func (w *world) empty() {
	w.t.Helper()
	w.purgeOf(dlq)
}

func (w *world) crossing(s *sidecar) {
	w.t.Helper()
	for range 5 {
		w.publish("orders.bad", "x")
	}
	w.waitDead(5)
	s.waitMetric("sidecar_dlq_alert", func(v float64) bool { return v == 1 })
}

func (w *world) recovery(s *sidecar) {
	w.t.Helper()
	w.empty()
	s.waitMetric("sidecar_dlq_alert", func(v float64) bool { return v == 0 })
}

// posted is an alert in the default format.
type posted struct {
	Status    string
	Stream    string
	Consumer  string
	DLQStream string `json:"dlq_stream"`
	Depth     int
	Threshold int
	Reasons   map[string]int
	Time      time.Time
}

// One crossing is one alert, however many entries follow, and one recovery ends it.
func TestAlert(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(t)
	r.up()
	s := w.alerting(r, "json")
	if s.admin.metric("sidecar_dlq_alert") != 0 {
		t.Error("an alert without entries")
	}
	for range 2 {
		w.publish("orders.bad", "x")
	}
	w.waitDead(2)
	w.crossing(s)
	firing := parsed(t, r.wait(1)[0])
	for range 5 {
		w.publish("orders.bad", "x")
	}
	w.waitDead(12)
	w.recovery(s)
	resolved := parsed(t, r.wait(2)[1])
	if firing.Depth < 3 || firing.Reasons["rejected"] < 3 || firing.Reasons["rejected"] > 12 || time.Since(firing.Time) > time.Hour {
		t.Errorf("%+v", firing)
	}
	for _, a := range []struct {
		got    posted
		status string
	}{{firing, "firing"}, {resolved, "resolved"}} {
		g := a.got
		if g.Status != a.status || g.Stream != stream || g.Consumer != durable || g.DLQStream != dlq || g.Threshold != 2 {
			t.Errorf("%s: %+v", a.status, g)
		}
	}
	if resolved.Depth != 0 || len(resolved.Reasons) != 0 && resolved.Reasons["rejected"] == 0 {
		t.Errorf("%+v", resolved)
	}
	w.must(s.stop())
	if n := len(r.got()); n != 2 {
		t.Errorf("%d alerts: %v", n, r.got())
	}
	if n := len(s.log.lines("the dlq has more entries than alert_depth")); n != 1 {
		t.Errorf("%d log lines of one alert", n)
	}
	if strings.Contains(s.log.String(), receiverSecret) {
		t.Error("the receiver's URL is in the log")
	}
}

func parsed(t *testing.T, post string) (p posted) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader([]byte(post)))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		t.Fatalf("%s: %v", post, err)
	}
	return p
}

// The alert waits for a receiver that is away or fails; messages do not, and no secret is told.
func TestAlertReceiverAway(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(t)
	s := w.alerting(r, "json")
	w.crossing(s)
	const complaint = "the alert receiver did not take the alert, it is posted again"
	eventually(t, func() bool { return len(s.log.lines(complaint)) == 1 }, text("a complaint"))
	w.app.on(always(reply{status: 200}))
	w.publish("orders.good", "x")
	eventually(t, func() bool { return s.admin.verdicts("ack") == 1 }, text("a message to flow"))
	r.up()
	if a := parsed(t, r.wait(1)[0]); a.Status != "firing" {
		t.Errorf("%+v", a)
	}
	if strings.Contains(s.log.String(), receiverSecret) || strings.Contains(s.log.String(), r.address) {
		t.Error("the receiver's URL is in the log")
	}
}

func TestAlertSlack(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(t)
	r.up()
	s := w.alerting(r, "slack")
	w.crossing(s)
	r.wait(1)
	w.recovery(s)
	for i, post := range r.wait(2) {
		var hook map[string]string
		if err := json.Unmarshal([]byte(post), &hook); err != nil || len(hook) != 1 || !strings.Contains(hook["text"], dlq) {
			t.Errorf("%s: %v", post, err)
		}
		if resolved := strings.HasPrefix(hook["text"], "Resolved"); resolved != (i == 1) {
			t.Errorf("post %d: %s", i+1, hook["text"])
		}
	}
}

// An Alertmanager sees one alert that ends: the same labels, and an end that is in the future first and past then.
func TestAlertAlertmanager(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(t)
	r.up()
	s := w.alerting(r, "alertmanager")
	w.crossing(s)
	r.wait(1)
	w.recovery(s)
	var labels string
	for i, post := range r.wait(2) {
		var alerts []struct {
			Labels, Annotations map[string]string
			StartsAt, EndsAt    time.Time
		}
		if err := json.Unmarshal([]byte(post), &alerts); err != nil || len(alerts) != 1 {
			t.Fatalf("%s: %v", post, err)
		}
		a := alerts[0]
		if over := !a.EndsAt.After(time.Now()); over != (i == 1) || a.StartsAt.After(a.EndsAt) {
			t.Errorf("post %d: %+v", i+1, a)
		}
		if l := jsonText(a.Labels); i > 0 && l != labels {
			t.Errorf("labels %s, then %s", labels, l)
		}
		labels = jsonText(a.Labels)
	}
}
