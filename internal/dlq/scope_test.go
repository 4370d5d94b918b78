package dlq

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

// put stores an entry of any consumer under a subject, and returns its sequence.
func (b *bench) put(subject, stream, consumer string, sequence int) uint64 {
	b.t.Helper()
	ack, err := b.js.PublishMsg(b.t.Context(), &nats.Msg{Subject: subject, Data: []byte("x"), Header: nats.Header{
		"Dlq-Stream": {stream}, "Dlq-Consumer": {consumer}, "Dlq-Subject": {"o.a"}, "Dlq-Sequence": {fmt.Sprint(sequence)}, "Dlq-Reason": {"rejected"},
		"Dlq-Time-Stamp": {time.Now().UTC().Format(time.RFC3339Nano)}, "Dlq-Deliveries": {"3"},
	}})
	b.must(err)
	return ack.Sequence
}

// shared is a DLQ stream with two entries of the configured consumer, 1 and 2, and of others: 3 is of another stream's consumer of the
// same name, 4 and 5 are of another consumer, 6 is no dead letter.
func shared(t *testing.T) (*bench, *Service) {
	b := newBench(t, 2)
	b.put("dlq.O.w.o.a", "P", "w", 1)
	b.put("dlq.O.v.o.a", "O", "v", 1)
	b.put("dlq.O.v.o.a", "O", "v", 2)
	_, err := b.js.Publish(t.Context(), "dlq.O.w.o.a", []byte("x"))
	b.must(err)
	return b, b.service(nil)
}

func (b *bench) selected(s *Service, f Filter) (seqs []uint64) {
	b.t.Helper()
	for e, err := range s.List(b.t.Context(), f) {
		b.must(err)
		seqs = append(seqs, e.Seq)
	}
	return seqs
}

// A filter without a consumer selects the entries of the configured ones alone; one that names a consumer may name any.
func TestScope(t *testing.T) {
	b, s := shared(t)
	for _, c := range []struct {
		name   string
		filter Filter
		want   []uint64
		passed Passed
	}{
		{"all", Filter{}, []uint64{1, 2}, Passed{Foreign: 1, Others: 3, OtherConsumers: []string{"v"}}},
		{"by subject", Filter{Subject: "o.a"}, []uint64{1, 2}, Passed{Foreign: 1, Others: 3, OtherConsumers: []string{"v"}}},
		{"other filters count for them too", Filter{Reason: "max_age"}, nil, Passed{Foreign: 1}},
		{"in bounds", Filter{First: 2, Last: 4}, []uint64{2}, Passed{Others: 2, OtherConsumers: []string{"v"}}},
		{"a configured one", Filter{Consumer: "w"}, []uint64{1, 2}, Passed{Foreign: 1, Others: 1}},
		{"another one", Filter{Consumer: "v"}, []uint64{4, 5}, Passed{Foreign: 1}},
		{"one of them", Filter{First: 4, Last: 4}, nil, Passed{Others: 1, OtherConsumers: []string{"v"}}},
		{"one of another stream", Filter{First: 3, Last: 3, Consumer: "w"}, []uint64{3}, Passed{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var passed Passed
			c.filter.Passed = &passed
			if got := b.selected(s, c.filter); !slices.Equal(got, c.want) {
				t.Errorf("list has %v, want %v", got, c.want)
			}
			st, err := s.Stats(t.Context(), c.filter)
			b.must(err)
			for _, p := range []Passed{passed, st.Passed} {
				if p.Foreign != c.passed.Foreign || p.Others != c.passed.Others || !slices.Equal(p.OtherConsumers, c.passed.OtherConsumers) {
					t.Errorf("%+v was left out, want %+v", p, c.passed)
				}
			}
			if st.Entries != len(c.want) {
				t.Errorf("stats counts %d, want %d", st.Entries, len(c.want))
			}
			for to := range map[Destination]bool{ToApp: true, ToStream: true} {
				r, err := s.Replay(t.Context(), c.filter, ReplayOptions{To: to, DryRun: true})
				if err != nil || r.Selected != len(c.want) {
					t.Errorf("a replay to the %s selects %d, %v", to, r.Selected, err)
				}
			}
		})
	}
}

// A removal takes the entries of the configured consumers alone, unless another one is named.
func TestRemoveInScope(t *testing.T) {
	_, s := shared(t)
	r, err := s.Remove(t.Context(), Filter{}, RemoveOptions{})
	if err != nil || r.Selected != 2 || r.Done != 2 {
		t.Errorf("%v, %+v", err, r)
	}
	for seq, there := range map[uint64]bool{1: false, 2: false, 3: true, 4: true, 5: true, 6: true} {
		if _, err := s.Get(t.Context(), "O_DLQ", seq); errors.Is(err, ErrNotFound) == there {
			t.Errorf("entry %d: %v", seq, err)
		}
	}
	if r, err = s.Remove(t.Context(), Filter{Consumer: "v"}, RemoveOptions{}); err != nil || r.Done != 2 {
		t.Errorf("%v, %+v", err, r)
	}
}

// Get brings every entry, and says whose may not be changed by a sequence alone.
func TestGetOfOthers(t *testing.T) {
	b, s := shared(t)
	for seq, other := range map[uint64]bool{1: false, 3: true, 4: true, 6: false} {
		l, err := s.Get(t.Context(), "O_DLQ", seq)
		b.must(err)
		if l.Other != other || (l.Unnamed("") != nil) != other || l.Unnamed("v") != nil {
			t.Errorf("entry %d: %v, %v", seq, l.Other, l.Unnamed(""))
		}
	}
}

// Entries of long subjects are selected by the consumer, too.
func TestScopeOfLongSubjects(t *testing.T) {
	b := newBench(t, 0)
	s := b.service(nil)
	for _, consumer := range []string{"w", "v"} {
		d := jetstream.NewDeadLetters(s.conn, s.consumers[0].DLQ, "O", consumer, s.log)
		b.must(d.Ensure(t.Context()))
		long := "o." + string(slices.Repeat([]byte("x"), 1800))
		_, _, err := d.PutAt(t.Context(), jetstream.DeadLetter{
			Message: &jetstream.Message{Subject: long, Sequence: 1, Stored: time.Now(), Body: []byte("x")}, Deliveries: 1, Reason: "rejected", FailedAt: time.Now(),
		})
		b.must(err)
	}
	for _, f := range []Filter{{}, {Subject: "o.*"}, {Consumer: "w"}} {
		if got := b.selected(s, f); !slices.Equal(got, []uint64{1}) {
			t.Errorf("%+v selects %v", f, got)
		}
	}
	if got := b.selected(s, Filter{Consumer: "v"}); !slices.Equal(got, []uint64{2}) {
		t.Errorf("the other consumer has %v", got)
	}
}

// A consumer that is not in the configuration can have another dlq.subject below the subjects of the DLQ stream. So can one of the same
// name of another stream, whose entries are selected by their sequence.
func TestScopeWithAnotherTemplate(t *testing.T) {
	b := newBench(t, 1)
	b.put("dlq.O.all.o.a", "O", "x", 7)
	b.put("dlq.O.all.o.a", "P", "w", 7)
	s := b.service(nil)
	for _, c := range []struct {
		filter Filter
		want   []uint64
	}{
		{Filter{Consumer: "x"}, []uint64{2}},
		{Filter{Consumer: "x", Subject: "o.*"}, []uint64{2}},
		{Filter{Consumer: "x", First: 2, Last: 2}, []uint64{2}},
		{Filter{Consumer: "w", First: 3, Last: 3}, []uint64{3}},
		{Filter{Consumer: "w"}, []uint64{1}},
	} {
		if got := b.selected(s, c.filter); !slices.Equal(got, c.want) {
			t.Errorf("%+v selects %v, want %v", c.filter, got, c.want)
		}
	}
}

// Entries are found by consumer and subject in a DLQ stream that stores them under other subjects.
func TestFilterOfATransformedStream(t *testing.T) {
	b := newBench(t, 0)
	_, err := b.js.UpdateStream(t.Context(), natsjs.StreamConfig{
		Name: "O_DLQ", Subjects: []string{"dlq.O.*.>"}, Duplicates: time.Minute, SubjectTransform: &natsjs.SubjectTransformConfig{Source: "dlq.>", Destination: "dead.>"},
	})
	b.must(err)
	s := b.service(nil)
	_, err = b.js.PublishMsg(t.Context(), &nats.Msg{Subject: "dlq.O.w.o.a", Header: nats.Header{
		"Dlq-Stream": {"O"}, "Dlq-Consumer": {"w"}, "Dlq-Subject": {"o.a"}, "Dlq-Sequence": {"1"}, "Dlq-Reason": {"rejected"},
	}})
	b.must(err)
	for _, f := range []Filter{{Consumer: "w"}, {Subject: "o.a"}, {Consumer: "w", Subject: "o.>"}} {
		found := 0
		for _, err := range s.List(t.Context(), f) {
			b.must(err)
			found++
		}
		if found != 1 {
			t.Errorf("%+v finds %d entries", f, found)
		}
	}
}
