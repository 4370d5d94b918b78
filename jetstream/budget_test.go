package jetstream

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A request whose bytes are used up to the last is over, though the server does not say so: it is not waited for, and its lane
// is used again.
func TestBytesUsedUpToTheLast(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	const messages, size = 40, 1000
	digits := func(n int) int { return len(strconv.Itoa(n)) }
	// Each message is as large as the others on the wire, where its reply subject counts too.
	reply := len("$JS.ACK.S.d.1...1700000000000000000.")
	for i := 1; i <= messages; i++ {
		body := make([]byte, size-len("s.x")-reply-2*digits(i)-digits(messages-i))
		b.must(b.js.Publish(b.ctx, "s.x", body))
	}
	b.must(b.js.CreateConsumer(b.ctx, "S", natsjs.ConsumerConfig{
		Durable: "d", AckPolicy: natsjs.AckExplicitPolicy, AckWait: 5 * time.Second, MaxAckPending: 1000, MaxRequestMaxBytes: 2 * size,
	}))
	var mu sync.Mutex
	lanes, twice := map[string]bool{}, 0
	b.must(b.nc.Subscribe("$JS.API.CONSUMER.MSG.NEXT.S.d", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		lanes[m.Reply[:strings.LastIndex(m.Reply, ".")]] = true
		if strings.Contains(string(m.Data), `"max_bytes":2000`) && !strings.Contains(string(m.Data), `"batch":1,`) {
			twice++
		}
	}))
	b.must(nil, b.nc.Flush())
	b.run(b.config())
	for range messages {
		m := b.next()
		if m.size != size {
			t.Fatalf("message %d has %d bytes", m.Sequence, m.size)
		}
		m.Ack()
		mu.Lock()
		if len(lanes) > maxLanes {
			t.Fatalf("at message %d the %dth lane is made: the others are waited for", m.Sequence, len(lanes))
		}
		mu.Unlock()
	}
	mu.Lock()
	defer mu.Unlock()
	if twice == 0 {
		t.Error("no request could be used up by two messages")
	}
}
