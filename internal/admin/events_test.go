package admin_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/admin"
	"github.com/jetsidecar/jetsidecar/internal/admin/admintest"
	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/pipeline"
	"github.com/jetsidecar/jetsidecar/internal/telemetry"
)

// event is one of a stream, or a comment.
type event struct{ name, data string }

// events reads the events of an answer.
type events struct{ in *bufio.Reader }

func (e events) next() (event, error) {
	var one event
	for {
		line, err := e.in.ReadString('\n')
		if err != nil {
			return one, err
		}
		switch name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); {
		case name == "event":
			one.name = value
		case name == "data":
			one.data = value
		case name == "" && value != "":
			return event{name: "comment", data: value}, nil
		case line == "\n" && one.name != "":
			return one, nil
		}
	}
}

// await is the next event of a name.
func (e events) await(t *testing.T, name string) string {
	t.Helper()
	for {
		one, err := e.next()
		if err != nil {
			t.Fatal(err)
		}
		if one.name == name {
			return one.data
		}
	}
}

func TestEvents(t *testing.T) {
	w := newWorld(t)
	resp := w.open(t.Context(), "GET", "/api/events", "")
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || kind != "text/event-stream" {
		t.Fatalf("%d %s", resp.StatusCode, kind)
	}
	in := events{bufio.NewReader(resp.Body)}
	for _, n := range []string{"consumers", "consumers"} { // at once, and the next second
		data := in.await(t, n)
		w.doc.Valid("Overview", []byte(data))
		if strings.Contains(data, `"history"`) || strings.Contains(data, `"retry":{`) {
			t.Error("an event holds what does not change")
		}
	}
	steps := in.await(t, "history")
	w.doc.Valid("Step", []byte(strings.TrimSuffix(strings.TrimPrefix(steps, "["), "]")))
	w.consumer.Change(func(s *pipeline.Status, _ *telemetry.Counts, _ *[]telemetry.Failure) { s.DLQDepth = 7 })
	data := in.await(t, "dlq")
	w.doc.Valid("DLQChange", []byte(data))
	if data != `{"stream":"ORDERS_DLQ","depth":7}` {
		t.Errorf("%s", data)
	}
	w.server.StopLong()
	for err := error(nil); !errors.Is(err, io.EOF); {
		if _, err = in.next(); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	w.refused("GET", "/api/events", "", 503, "stopping")
}

func TestListenersAreBounded(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	for range admin.MostListeners {
		if resp := w.open(ctx, "GET", "/api/events", ""); resp.StatusCode != 200 {
			t.Fatalf("%d", resp.StatusCode)
		}
	}
	w.refused("GET", "/api/events", "", 503, "too many")
	cancel()
	await(t, func() bool { return w.open(t.Context(), "GET", "/api/events", "").StatusCode == 200 })
}

// slow is a reader that takes nothing after the first parts.
type slow struct {
	*httptest.ResponseRecorder
	mu      sync.Mutex
	parts   []string
	stalled chan struct{}
}

func (s *slow) Write(b []byte) (int, error) {
	s.mu.Lock()
	s.parts = append(s.parts, string(b))
	n := len(s.parts)
	s.mu.Unlock()
	if n == 2 {
		<-s.stalled
	}
	return len(b), nil
}

// A reader that does not keep up is dropped; nobody waits for it, and the stream of another goes on. A comment shows that it lives.
func TestSlowListenerIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		consumer := admintest.NewConsumer("S", "c")
		s := admin.New(admin.Options{
			Config: config.Admin{Token: "x"}, Ready: func() admin.Readiness { return admin.Readiness{} },
			Consumers: []admin.Consumer{consumer.Admin()}, Letters: admintest.NewLetters("D"), Changes: admintest.NewLetters("D"),
		})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { s.Watch(ctx) })
		ask := func(w http.ResponseWriter) {
			r := httptest.NewRequestWithContext(ctx, "GET", "/api/events", nil)
			r.Header.Set("Authorization", "Bearer x")
			s.Handler().ServeHTTP(w, r)
		}
		stuck := &slow{ResponseRecorder: httptest.NewRecorder(), stalled: make(chan struct{})}
		quick := httptest.NewRecorder()
		ended := false
		all.Go(func() { ask(stuck); ended = true })
		all.Go(func() { ask(quick) })
		time.Sleep(62 * time.Second)
		synctest.Wait()
		close(stuck.stalled)
		synctest.Wait()
		if !ended {
			t.Error("the slow one is still there")
		}
		if n := len(stuck.parts); n > admin.MostWaiting+3 { // one in work, one comment
			t.Errorf("the slow one got %d parts", n)
		}
		cancel()
		all.Wait()
		body := quick.Body.String()
		if n := strings.Count(body, "event: consumers"); n < 60 || n > 64 {
			t.Errorf("the quick one got %d events in a minute", n)
		}
		if n := strings.Count(body, ": beat"); n != 4 {
			t.Errorf("the quick one got %d comments in a minute", n)
		}
		if n := strings.Count(body, "event: history"); n != 12 {
			t.Errorf("the quick one got %d points in a minute", n)
		}
	})
}
