package jetstream

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

func TestStored(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	ack, err := b.js.PublishMsg(b.ctx, &nats.Msg{Subject: "s.a", Data: []byte("body"), Header: nats.Header{"Status": {"404"}, "A": {"b", "c"}}})
	b.must(ack, err)
	m, err := b.conn.Stored(b.ctx, "S", ack.Sequence)
	b.must(nil, err)
	if m == nil || m.Seq != ack.Sequence || m.Subject != "s.a" || string(m.Body) != "body" || m.Size != 4 || strings.Join(m.Header["A"], "") != "bc" || m.Time.IsZero() {
		t.Errorf("%+v", m)
	}
	for range 2 {
		was, err := b.conn.RemoveStored(b.ctx, "S", ack.Sequence)
		if err != nil || was != (m != nil) {
			t.Errorf("%v, %v", was, err)
		}
		if m, err = b.conn.Stored(b.ctx, "S", ack.Sequence); m != nil || err != nil {
			t.Errorf("%+v, %v", m, err)
		}
	}
	if _, err := b.conn.Stored(b.ctx, "NONE", 1); !errors.Is(err, ErrStreamNotFound) {
		t.Errorf("%v", err)
	}
}

// However many remove a message at once, one does, and to the others it is not there.
func TestRemoveStoredAtOnce(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.publish(200)
	var removed atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for seq := range uint64(200) {
				was, err := b.conn.RemoveStored(b.ctx, "S", seq+1)
				if err != nil {
					t.Error(err)
				}
				if was {
					removed.Add(1)
				}
			}
		})
	}
	all.Wait()
	if n := removed.Load(); n != 200 {
		t.Errorf("%d removed", n)
	}
}

// A scan brings each message that is there, once and in order, whatever its headers say.
func TestScanHeaders(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.publish(1500)
	for _, h := range []nats.Header{{"Status": {"404"}}, {"Status": {"408"}, "Nats-Pending-Messages": {"5"}}, {"Status": {"409"}, "Description": {"Consumer Deleted"}}, {"Nats-Msg-Size": {"99"}}} {
		_, err := b.js.PublishMsg(b.ctx, &nats.Msg{Subject: "s.h", Header: h})
		b.must(nil, err)
	}
	for _, seq := range []uint64{1, 700, 701, 1500} {
		_, err := b.conn.RemoveStored(b.ctx, "S", seq)
		b.must(nil, err)
	}
	for name, c := range map[string]struct {
		scan  Scan
		first uint64
		n     int
	}{
		"all":     {Scan{Stream: "S", From: 1, To: 1504}, 2, 1500},
		"bounded": {Scan{Stream: "S", From: 699, To: 705}, 699, 5},
		"subject": {Scan{Stream: "S", From: 1, To: 1504, Subjects: []string{"s.h"}}, 1501, 4},
		"none":    {Scan{Stream: "S", From: 1, To: 1504, Subjects: []string{"s.none"}}, 0, 0},
		"past":    {Scan{Stream: "S", From: 2000, To: 1504}, 0, 0},
	} {
		n, last := 0, uint64(0)
		for m, err := range b.conn.ScanHeaders(b.ctx, c.scan) {
			b.must(nil, err)
			if n == 0 && m.Seq != c.first || m.Seq <= last || len(m.Body) > 0 {
				t.Errorf("%s: %+v after %d", name, m, last)
			}
			last = m.Seq
			n++
		}
		if n != c.n {
			t.Errorf("%s: %d messages, want %d", name, n, c.n)
		}
	}
	for m, err := range b.conn.ScanHeaders(b.ctx, Scan{Stream: "S", From: 1504, To: 1504}) {
		if b.must(nil, err); len(m.Header["Nats-Msg-Size"]) != 1 || m.Size != 0 {
			t.Errorf("%+v", m)
		}
	}
	info, err := b.js.Stream(b.ctx, "S")
	b.must(info, err)
	if n := info.CachedInfo().State.Consumers; n != 0 {
		t.Errorf("%d consumers are left", n)
	}
	for _, err := range b.conn.ScanHeaders(b.ctx, Scan{Stream: "NONE", From: 1, To: 9}) {
		if !errors.Is(err, ErrStreamNotFound) {
			t.Errorf("%v", err)
		}
	}
}

// What is removed while it is read does not hold the reading up.
func TestScanOfWhatGoes(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.publish(900)
	n := 0
	for m, err := range b.conn.ScanHeaders(b.ctx, Scan{Stream: "S", From: 1, To: 900}) {
		b.must(nil, err)
		if n++; n == 1 {
			s, err := b.js.Stream(b.ctx, "S")
			b.must(s, err)
			b.must(nil, s.Purge(b.ctx))
		}
		if m.Seq > 900 {
			t.Errorf("%d", m.Seq)
		}
	}
	if n == 0 {
		t.Error("nothing was read")
	}
}

// A filter is taken for one that nothing matches only where it is known what subjects the messages of the stream have.
func TestUnmatched(t *testing.T) {
	for name, c := range map[string]struct {
		stream natsjs.StreamConfig
		want   int
	}{
		"its own":     {natsjs.StreamConfig{Subjects: []string{"s.>"}}, 1},
		"transformed": {natsjs.StreamConfig{Subjects: []string{"s.>"}, SubjectTransform: &natsjs.SubjectTransformConfig{Source: "s.>", Destination: "t.>"}}, 0},
		"of others":   {natsjs.StreamConfig{Subjects: []string{"s.>"}, Sources: []*natsjs.StreamSource{{Name: "O"}}}, 0},
		"mirrored":    {natsjs.StreamConfig{Mirror: &natsjs.StreamSource{Name: "O"}}, 0},
	} {
		if got := unmatched([]string{"t.x"}, &natsjs.StreamInfo{Config: c.stream}); len(got) != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A message is published again to a stream that has sources, or gives messages other subjects, where the stream listens on its subject; and once.
func TestRepublishToAStreamOfOtherSubjects(t *testing.T) {
	for name, c := range map[string]natsjs.StreamConfig{
		"sources":     {Subjects: []string{"s.>"}, Sources: []*natsjs.StreamSource{{Name: "O"}}, Duplicates: time.Minute}, // the server gives it none by itself
		"transformed": {Subjects: []string{"s.>"}, SubjectTransform: &natsjs.SubjectTransformConfig{Source: "s.old.>", Destination: "s.new.>"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, c)
			for range 2 {
				for _, subject := range []string{"s.old.a", "s.new.a"} {
					b.must(nil, b.conn.Republish(b.ctx, "S", subject, subject, nil, []byte("x")))
				}
			}
			if err := b.conn.Republish(b.ctx, "S", "o.a", "id", nil, nil); !errors.Is(err, ErrNotTaken) {
				t.Errorf("a subject that it does not listen on: %v", err)
			}
			if state, err := b.conn.StreamState(b.ctx, "S"); err != nil || state.Last != 2 {
				t.Errorf("%+v, %v; want two messages", state, err)
			}
		})
	}
}
