package forward

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/jetsidecar/jetsidecar/policy"
)

func benchServer(b *testing.B) string {
	l := listen(b)
	serve(b, l, "http1", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(204)
	})
	return "http://" + l.Addr().String()
}

func benchMessage() *Message {
	m := message(strings.Repeat("x", 1024))
	m.Header = map[string][]string{"Nats-Msg-Id": {"0b9f8a0e-7a5d-4c41"}, "Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, "Content-Type": {"application/json"}}
	return m
}

func BenchmarkForward(b *testing.B) {
	c := newClient(b, nil, func(s *setup) { s.config.URL = benchServer(b) })
	tg, m := target(b, c, "POST"), benchMessage()
	b.ReportAllocs()
	for b.Loop() {
		if r := c.Forward(b.Context(), tg, m); r.Kind != policy.Answered {
			b.Fatal(r)
		}
	}
}

// The same request by http.Client alone, with the same header.
func BenchmarkBareClient(b *testing.B) {
	url := benchServer(b)
	c := newClient(b, nil, func(s *setup) { s.config.URL = url })
	h, _ := c.header(benchMessage())
	client := &http.Client{Transport: c.newTransport(16)}
	defer client.CloseIdleConnections()
	body := benchMessage().Body
	b.ReportAllocs()
	for b.Loop() {
		req, err := http.NewRequestWithContext(b.Context(), "POST", url, bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		req.Header = h
		resp, err := client.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

func BenchmarkHeader(b *testing.B) {
	c := newClient(b, nil)
	m := benchMessage()
	b.ReportAllocs()
	for b.Loop() {
		c.header(m)
	}
}
