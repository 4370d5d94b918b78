package admin_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/jetsidecar/jetsidecar/internal/admin"
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
