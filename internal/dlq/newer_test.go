package dlq

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/forward"
)

// copied stores the entry at a sequence of O_DLQ once more, as a replay that failed would, with headers changed.
func (b *bench) copied(seq uint64, replays int, changed nats.Header) {
	b.t.Helper()
	b.copiedTo("dlq.O.w.o.a", seq, replays, changed)
}

// copiedTo stores it under a subject, which may be of another DLQ stream.
func (b *bench) copiedTo(subject string, seq uint64, replays int, changed nats.Header) {
	b.t.Helper()
	stream, err := b.js.Stream(b.t.Context(), "O_DLQ")
	b.must(err)
	m, err := stream.GetMsg(b.t.Context(), seq)
	b.must(err)
	header := nats.Header{"Dlq-Replays": {strconv.Itoa(replays)}}
	for _, from := range []nats.Header{m.Header, changed} {
		for name, values := range from {
			if name != "Dlq-Replays" {
				header[name] = values
			}
		}
	}
	_, err = b.js.PublishMsg(b.t.Context(), &nats.Msg{Subject: subject, Data: m.Data, Header: header})
	b.must(err)
}

// An entry that a killed run had answered and stored anew is removed without a call, and its message is replayed once.
func TestSuperseded(t *testing.T) {
	anotherTime := nats.Header{"Dlq-Time-Stamp": {time.Unix(1, 0).UTC().Format(time.RFC3339Nano)}}
	for _, c := range []struct {
		name                     string
		status                   int
		replays                  int // of the copy of entry 1, which is 3
		changed                  nats.Header
		f                        Filter
		to                       Destination
		calls                    int // of message 1
		done, gone, failed, kept int
		left                     []uint64 // sequences of the DLQ stream
	}{
		{"passes", 200, 1, nil, Filter{}, ToApp, 1, 3, 1, 0, 0, nil},
		{"to the stream", 200, 1, nil, Filter{}, ToStream, 0, 3, 1, 0, 0, nil},
		{"fails again", 422, 1, nil, Filter{}, ToApp, 1, 1, 1, 2, 0, []uint64{4, 5}},
		{"the old one alone", 200, 1, nil, Filter{Last: 1}, ToApp, 0, 0, 0, 1, 0, []uint64{2, 3}},
		{"the new one alone", 200, 1, nil, Filter{First: 3}, ToApp, 1, 1, 0, 0, 0, []uint64{1, 2}},
		{"as often, passes", 200, 0, nil, Filter{}, ToApp, 1, 3, 1, 0, 0, nil},
		{"as often, fails again", 422, 0, nil, Filter{}, ToApp, 1, 1, 1, 2, 0, []uint64{4, 5}},
		{"as often, to the stream", 200, 0, nil, Filter{}, ToStream, 0, 3, 1, 0, 0, nil},
		{"as often, half of it", 200, 0, nats.Header{"Dlq-Part": {"1/2"}}, Filter{}, ToApp, 1, 2, 0, 0, 1, []uint64{3}},
		{"half of it", 200, 1, nats.Header{"Dlq-Part": {"1/2"}}, Filter{}, ToApp, 1, 2, 0, 0, 1, []uint64{3}},
		{"of another message", 200, 1, anotherTime, Filter{}, ToApp, 2, 3, 0, 0, 0, nil},
		{"for another consumer", 200, 1, nats.Header{"Dlq-Consumer": {"v"}}, Filter{}, ToApp, 1, 2, 0, 0, 0, []uint64{3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, 2)
			b.copied(1, c.replays, c.changed)
			s := b.service(nil)
			b.app.script = func(context.Context, *forward.Message) forward.Result { return answer(c.status) }
			r, err := s.Replay(t.Context(), c.f, ReplayOptions{To: c.to})
			b.must(err)
			if r.Done != c.done || r.Gone != c.gone || r.Failed != c.failed || r.Kept != c.kept || r.Done+r.Failed+r.Kept != r.Selected {
				t.Errorf("%+v", r)
			}
			if n := b.app.calls[1]; n != c.calls {
				t.Errorf("%d calls, want %d", n, c.calls)
			}
			var left []uint64
			stream, err := b.js.Stream(t.Context(), "O_DLQ")
			b.must(err)
			for seq := range stream.CachedInfo().State.LastSeq {
				if m, err := stream.GetMsg(t.Context(), seq+1); err == nil {
					left = append(left, m.Sequence)
				} else if !errors.Is(err, natsjs.ErrMsgNotFound) {
					t.Error(err)
				}
			}
			if !slices.Equal(left, c.left) {
				t.Errorf("%d are left, want %d", left, c.left)
			}
		})
	}
}

// Two entries of one message are not at the app at the same time, so that the answer to one is known before the other.
func TestMessageIsAtTheAppOnce(t *testing.T) {
	b := newBench(t, 1)
	b.copied(1, 0, nil)
	for i := range 20 {
		b.copied(1, 0, nats.Header{"Dlq-Sequence": {strconv.Itoa(i + 9)}})
	}
	var mu sync.Mutex
	inWork, others := 0, 0
	through := make(chan struct{})
	b.app.script = func(_ context.Context, m *forward.Message) forward.Result {
		mu.Lock()
		defer mu.Unlock()
		if m.Sequence >= 9 {
			if others++; others == 20 {
				close(through)
			}
			return answer(200)
		}
		if inWork++; inWork > 1 {
			t.Error("it is there twice")
		}
		mu.Unlock()
		<-through
		mu.Lock()
		inWork--
		return answer(200)
	}
	r, err := b.service(nil).Replay(t.Context(), Filter{}, ReplayOptions{Concurrency: 3})
	if err != nil || r.Done != 22 || r.Gone != 1 || b.app.calls[1] != 1 {
		t.Errorf("%v, %+v, %d calls", err, r, b.app.calls[1])
	}
}

// What is held for it are messages of which several entries can be replayed.
func TestSeveralOf(t *testing.T) {
	of := func(sequence uint64, at int64, half string) ref {
		return ref{origin: origin{"O", "w", sequence}, at: at, half: half}
	}
	got := severalOf([]ref{of(1, 1, ""), of(2, 1, ""), of(1, 2, ""), of(2, 1, ""), of(3, 1, ""), of(3, 1, firstPart), of(4, 0, ""), of(4, 0, ""), of(2, 1, "")})
	if want := map[message]int{{origin{"O", "w", 2}, 1}: -1}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// It makes no difference that the new entry is in the DLQ stream that the consumer has now, and not in the one that it had.
func TestSupersededInAnotherDLQStream(t *testing.T) {
	for _, selected := range []string{"", "O_DLQ"} {
		t.Run(selected, func(t *testing.T) {
			b := newBench(t, 2)
			b.stream("N_DLQ", "ndlq.>")
			b.copiedTo("ndlq.O.w.o.a", 1, 1, nil)
			s := moved(b)
			f := Filter{Stream: selected}
			dry, err := s.Replay(t.Context(), f, ReplayOptions{DryRun: true})
			b.must(err)
			if len(dry.Exceptions) != 1 || !slices.Equal(dry.Exceptions[0].Seqs, []uint64{1}) || dry.Exceptions[0].Stream != "O_DLQ" {
				t.Errorf("a dry run says %+v", dry.Exceptions)
			}
			b.app.script = func(_ context.Context, m *forward.Message) forward.Result {
				if m.Sequence == 1 && !slices.Equal(m.Header["Dlq-Replays"], []string{"2"}) {
					t.Errorf("called with the old entry")
				}
				return answer(200)
			}
			r, err := s.Replay(t.Context(), f, ReplayOptions{})
			b.must(err)
			if selected == "" && (r.Done != 3 || r.Gone != 1 || len(b.left(s)) != 0) {
				t.Errorf("%+v, %v left", r, b.left(s))
			}
			if selected != "" && (r.Done != 1 || r.Failed != 1 || r.Failures[0].Stream != "N_DLQ" || !slices.Equal(b.left(s), []uint64{1})) {
				t.Errorf("%+v, %v left", r, b.left(s))
			}
		})
	}
}

// While nobody else replays it is asked for each entry only whether the DLQ stream is the same one still.
func TestReplayAloneLooksOnce(t *testing.T) {
	looks := func(entries int) int {
		b := newBenchHere(t, entries)
		s := b.service(nil)
		nc, err := nats.Connect(b.url, nats.Timeout(time.Minute))
		b.must(err)
		defer nc.Close()
		sub, err := nc.SubscribeSync("$JS.API.STREAM.INFO.O_DLQ")
		b.must(err)
		b.must(nc.Flush())
		r, err := s.Replay(t.Context(), Filter{}, ReplayOptions{Concurrency: 2, Rate: 0})
		if err != nil || r.Done != entries {
			t.Errorf("%v, %+v", err, r)
		}
		b.must(nc.Flush())
		n, _, err := sub.Pending()
		b.must(err)
		return n
	}
	t.Parallel()
	// A question whose answer takes long is asked again.
	if few, many := looks(1), looks(20); few == 0 || many >= few+19+10 {
		t.Errorf("the DLQ stream is looked at %d times for one entry, and %d times for 20", few, many)
	}
}
