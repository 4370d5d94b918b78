package jetstream

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// gate has the requests of the source to the server pass through the test, and holds back those that read its stream until there are so many: then
// they go on, the last one first.
func (b *bench) gate(most int) {
	b.t.Helper()
	b.conn.prefix = "GATE."
	var held []*nats.Msg
	pass := func(msg *nats.Msg) {
		_ = b.nc.PublishRequest("$JS.API."+strings.TrimPrefix(msg.Subject, "GATE."), msg.Reply, msg.Data)
	}
	b.must(b.nc.Subscribe("GATE.>", func(msg *nats.Msg) {
		if msg.Subject != "GATE.STREAM.MSG.GET.S" {
			pass(msg)
			return
		}
		if held = append(held, msg); len(held) == most {
			slices.Reverse(held)
			for _, msg := range held {
				pass(msg)
			}
			held = nil
		}
	}))
	b.must(nil, b.nc.Flush())
}

// Bodies are read several at a time, whatever a publisher says of them, and the messages offered as they came.
func TestBodiesAreReadTogether(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		t.Run(fmt.Sprintf("ordered %v", ordered), func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{})
			b.gate(8)
			cfg := b.config()
			if cfg.Ordered = ordered; ordered {
				b.prepare = func(s *Source) {
					s.Tell(func(m *Message) Key { return Key{Alone: m.Sequence} }, func(*Message) *Message { return nil }, func() {})
				}
			}
			b.run(cfg)
			b.publish(8) // so many may be leased then
			for range 8 {
				b.next().Ack()
			}
			b.eventually("everything is acked", b.settled)
			look := b.unlooked()
			b.conn.refused(`nats: Permissions Violation for Publish to "GATE.STREAM.MSG.GET.S"`)
			for range 4 {
				b.must(b.js.PublishMsg(b.ctx, &nats.Msg{Subject: "s.x", Header: nats.Header{msgSizeHeader: {strconv.Itoa(1 << 40)}}}))
			}
			b.eventually("half came", func() bool { return b.source.Leased() == 4 })
			b.headersOnly(true)
			for range 4 {
				b.publishBody([]byte("body"))
			}
			b.eventually("all came", func() bool { return b.source.Leased() == 8 })
			b.conn.mu.Lock()
			clear(b.conn.denials)
			b.conn.mu.Unlock()
			before, came := uint64(0), map[uint64]int{}
			for range 8 {
				m := b.next()
				if m.arrival < before {
					t.Errorf("%d is late", m.Sequence)
				}
				before, came[m.Sequence] = m.arrival, len(m.Body)
			}
			if want := map[uint64]int{9: 0, 10: 0, 11: 0, 12: 0, 13: 4, 14: 4, 15: 4, 16: 4}; !maps.Equal(came, want) {
				t.Errorf("bodies of so many bytes came: %v, want %v", came, want)
			}
			b.headersOnly(false)
			look()
		})
	}
}

// No more is read at a time than fits into what may be leased.
func TestReadsFit(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	sized := func(sizes ...string) []*Message {
		var all []*Message
		for _, size := range sizes {
			m := &Message{}
			if size != "" {
				m.Header = map[string][]string{msgSizeHeader: {size}}
			}
			all = append(all, m)
		}
		return all
	}
	for name, c := range map[string]struct {
		doubted []*Message
		leased  int64
		want    int
	}{
		"none":                         {nil, 0, 0},
		"so many at most":              {sized(slices.Repeat([]string{"7"}, 100)...), 0, bodyReads},
		"those that fit":               {sized("1000000", "500000", "597152", "1"), 0, 3},
		"beside what is leased":        {sized("1000000", "500000"), 1 << 20, 1},
		"one always":                   {sized("2000000", "1"), 4 << 20, 1},
		"nothing is said of the size":  {sized("", "", "1"), 0, 2},
		"what is said makes no sense":  {sized("x", "-1", "1"), 0, 2},
		"more than a message can have": {sized("99999999999", "1048576", "1"), 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSource(b.conn, ConsumerConfig{Concurrency: 1, MaxBytes: 2 << 20}, quiet())
			s.bodiless, s.bytes = c.doubted, c.leased
			if got := s.firstDoubted(); !slices.Equal(got, c.doubted[:c.want]) {
				t.Errorf("%d are read", len(got))
			}
			if len(s.bodiless) != len(c.doubted) {
				t.Errorf("%d are left", len(s.bodiless))
			}
		})
	}
}
