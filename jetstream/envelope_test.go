package jetstream

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// wrapped is a message as the retry stream brings it.
func wrapped(m *Message) *Message {
	out := envelope(m, "S", "d")
	return &Message{Subject: "sidecar.retry.due.h.7.9", Header: out.Header, Body: out.Data, Delivered: 1}
}

// Whatever headers and body a message has, its envelope carries them as they are.
func FuzzEnvelope(f *testing.F) {
	f.Add([]byte("NATS/1.0\r\nA: 1\r\na: 2\r\nA: \r\nNats-Rollup: all\r\n\r\n"), []byte("body"), "s.x")
	f.Add([]byte("NATS/1.0 503 No Responders\r\nX Y:  a: b \r\n\r\n"), []byte{}, "s.\x01")
	f.Add([]byte{}, []byte{0, 0, 0, 9}, "s")
	f.Fuzz(func(t *testing.T, block, body []byte, subject string) {
		h, err := nats.DecodeHeadersMsg(block)
		m := &Message{Subject: subject, Body: body, Sequence: 9, Delivered: 3, Stored: time.Unix(5, 6).UTC(), StreamCreated: time.Unix(0, 7), HeaderLost: err != nil}
		if err == nil && len(h) > 0 {
			m.Header = h
		}
		r := &retries{hash: "h", main: NewSource(nil, ConsumerConfig{Concurrency: 1}, quiet())}
		got := wrapped(m)
		if err := r.unwrap(got); err != nil {
			t.Fatal(err)
		}
		if got.Subject != m.Subject || got.Sequence != 9 || got.Delivered != 4 || !got.Stored.Equal(m.Stored) || !got.StreamCreated.Equal(m.StreamCreated) ||
			got.HeaderLost != m.HeaderLost || !bytes.Equal(got.Body, body) || !reflect.DeepEqual(got.Header, m.Header) {
			t.Errorf("got %+v, want %+v", got, m)
		}
	})
}

// What is not an envelope is told, and nothing else happens.
func FuzzUnwrap(f *testing.F) {
	good := envelope(&Message{Subject: "s", Header: map[string][]string{"A": {"1"}}, Body: []byte("x"), Stored: time.Unix(1, 2)}, "S", "d")
	f.Add("sidecar.retry.due.h.7.9", good.Header.Get(retryHeaderTimeStamp), "1", good.Data)
	f.Add("x", "", "", []byte{})
	f.Add("a.b.c", "2026-01-01T00:00:00Z", "-1", []byte{0xff, 0xff, 0xff, 0xff})
	f.Add("a.1.1", "2026-01-01T00:00:00Z", "1", []byte("\x00\x00\x00\x02ab"))
	f.Fuzz(func(t *testing.T, subject, stamp, deliveries string, body []byte) {
		r := &retries{hash: "h", main: NewSource(nil, ConsumerConfig{Concurrency: 1}, quiet())}
		m := &Message{Subject: subject, Body: body, Delivered: 1, Header: map[string][]string{
			retryHeaderTimeStamp: {stamp}, retryHeaderDeliveries: {deliveries}, retryHeaderSubject: {"s"},
		}}
		if err := r.unwrap(m); err == nil && (m.Sequence == 0 && !strings.HasSuffix(subject, ".0")) {
			t.Errorf("unwrapped %+v", m)
		}
	})
}
