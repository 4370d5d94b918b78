package test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

const maxPayload = 128 << 10

// block is a header block of about so many bytes, in so many headers.
func block(size, headers int) []string {
	var h []string
	for i := range headers {
		h = append(h, fmt.Sprintf("X-%d: %s", i, strings.Repeat("v", size/headers-len("X-00: \r\n"))))
	}
	return h
}

// An entry that would not fit is reduced as far as it must be, and no further.
func TestEntryThatWouldNotFit(t *testing.T) {
	for _, c := range []struct {
		name            string
		body            int
		header          []string
		parts           string
		response, error bool // kept
		headers         int  // kept
	}{
		{"fits", maxPayload - 4000, block(500, 5), "[]", true, true, 5},
		{"without the response", maxPayload - 2600, block(500, 5), "[]", false, true, 5},
		{"without the error", maxPayload - 1600, block(500, 5), "[]", false, false, 5},
		{"with some headers", maxPayload - 2100, block(2000, 20), "[]", false, false, -1},
		{"without headers", maxPayload - 650, block(400, 1), "[]", false, false, -1},
		{"in parts", maxPayload, nil, "[1/2 2/2]", true, true, 0},
		{"in parts with headers", maxPayload - 20<<10 - 100, block(20<<10, 10), "[]", false, false, -1},
		{"full header block", 100, block(65400, 60), "[]", false, false, -1},
		{"one large header", 100, block(65400, 1), "[]", false, false, 0},
		{"full header block and body", maxPayload - 65200, block(65000, 60), "[]", false, false, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorldOn(t, localnats.Options{Config: fmt.Sprintf("max_payload: %d", maxPayload)})
			w.app.on(always(reply{status: 400, header: map[string]string{"Sidecar-Reason": strings.Repeat("e", 1000)}, body: strings.Repeat("r", 1000)}))
			s := w.running()
			body := pattern(c.body)
			seq := w.publish("orders.a", body, c.header...)
			w.balance()
			var parts []string
			stored := ""
			kept := 0
			for _, e := range w.dead() {
				stored += e.body
				parts = append(parts, e.header.Get("Dlq-Part"))
				kept += count(e.header, "X-")
				if e.source() != seq || e.header.Get("Dlq-Reason") != "rejected" || e.header.Get("Dlq-Status") != "400" {
					t.Errorf("%v", e.header)
				}
			}
			if got := fmt.Sprint(parts); got != c.parts {
				t.Errorf("parts %q, want %s", parts, c.parts)
			}
			if stored != body {
				t.Errorf("%d bytes are stored of %d, or not the same", len(stored), len(body))
			}
			first := w.dead()[0].header
			if (first.Get("Dlq-Response") != "") != c.response || (first.Get("Dlq-Error") != "") != c.error {
				t.Errorf("response kept %v, error kept %v", first.Get("Dlq-Response") != "", first.Get("Dlq-Error") != "")
			}
			switch {
			case c.headers < 0 && kept >= len(c.header), c.headers >= 0 && kept != c.headers:
				t.Errorf("%d of %d headers are kept", kept, len(c.header))
			}
			lost := float64(len(c.header) - kept)
			for _, has := range []bool{c.response, c.error} {
				if !has {
					lost++
				}
			}
			if lost > 0 {
				s.waitMetric("sidecar_headers_dropped_total", func(v float64) bool { return v == lost })
			}
		})
	}
}

// pattern is a body whose every part differs.
func pattern(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%d,", i)
	}
	return b.String()[:n]
}

func count(h nats.Header, prefix string) int {
	n := 0
	for name := range h {
		if strings.HasPrefix(name, prefix) {
			n++
		}
	}
	return n
}

// Two parts are two ids, so that a second try of storing them stores nothing.
func TestPartsHaveIdsOfTheirOwn(t *testing.T) {
	w := newWorldOn(t, localnats.Options{Config: fmt.Sprintf("max_payload: %d", maxPayload)})
	w.app.on(always(reply{status: 400}))
	w.running()
	seq := w.publish("orders.a", pattern(maxPayload))
	w.balance()
	id := fmt.Sprintf("ORDERS:worker:%d:%d", seq, w.storedAt(seq).UnixNano())
	for i, e := range w.dead() {
		if want := fmt.Sprintf("%s:%d/2", id, i+1); e.header.Get("Nats-Msg-Id") != want {
			t.Errorf("part %d has the id %q, want %q", i+1, e.header.Get("Nats-Msg-Id"), want)
		}
	}
}
