package jetstream

import (
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// FuzzAdvisory holds that only an advisory that names a message is taken for one.
func FuzzAdvisory(f *testing.F) {
	f.Add([]byte(`{"type":"io.nats.jetstream.advisory.v1.max_deliver","stream_seq":7,"deliveries":3,"timestamp":"2024-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"stream_seq":-1}`))
	f.Add([]byte(`{"stream_seq":1e99}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`{"stream_seq":0}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if g, err := ParseAdvisory(body); err == nil && g.Sequence == 0 {
			t.Errorf("no message is named by %q", body)
		}
	})
}

// FuzzMessage holds that whatever reply subject and header block come, a message is read or refused, and its body is as it came.
func FuzzMessage(f *testing.F) {
	f.Add("$JS.ACK.ORDERS.worker.1.2.3.1700000000000000000.4", "X-A", "1", []byte("body"))
	f.Add("$JS.ACK.hub.hash.ORDERS.worker.1.2.3.1700000000000000000.4.token", "", "", []byte{})
	f.Add("$JS.ACK.ORDERS.worker.-1.x.3.99999999999999999999.4", "Status", "409", []byte{})
	f.Add("$JS.ACK.", "Status", "100 Idle", []byte{0xff})
	f.Add("_INBOX.x", "Nats-Pending-Messages", "-1", []byte{})
	f.Fuzz(func(t *testing.T, reply, name, value string, body []byte) {
		msg := &nats.Msg{Subject: "orders.a", Reply: reply, Data: body, Sub: &nats.Subscription{}}
		if name != "" {
			msg.Header = nats.Header{name: {value}}
		}
		if is := fromJetStream(msg); is != strings.HasPrefix(reply, "$JS.ACK.") {
			t.Errorf("from JetStream %v by its reply %q", is, reply)
		}
		m, _, err := newMessage(msg)
		if err != nil {
			return
		}
		if !slices.Equal(m.Body, body) || m.Subject != "orders.a" || m.reply != reply || m.HeaderLost && name != "" {
			t.Errorf("read as %+v", m)
		}
	})
}

// FuzzPatterns holds that a pattern that includes another overlaps it, that overlap goes both ways, and that a pattern includes
// itself.
func FuzzPatterns(f *testing.F) {
	f.Add("a.*", "a.>")
	f.Add("dlq.S.*.>", "dlq.S.d.x")
	f.Add(">", "")
	f.Fuzz(func(t *testing.T, a, b string) {
		if overlap(a, b) != overlap(b, a) {
			t.Errorf("%q and %q overlap one way only", a, b)
		}
		if includes(a, b) && !overlap(a, b) {
			t.Errorf("%q includes %q and does not overlap it", a, b)
		}
		if !includes(a, a) {
			t.Errorf("%q does not include itself", a)
		}
	})
}
