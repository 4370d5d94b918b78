package dlq

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetsidecar/jetsidecar/forward"
)

// A dry run counts what is done afterwards, and says with which entries something else is done than was asked for.
func TestDryRunSaysWhatWouldBeDone(t *testing.T) {
	const anew = "it was replayed and failed again, and its message is there anew"
	kept := func(why string, seqs ...uint64) Exception { return Exception{Kept, "O_DLQ", why, seqs} }
	half, often := kept("it is half a message: part 1/2 alone", 4), kept("it was replayed 2 times already", 5)
	bare, timeless := kept("it does not say its original subject", 6), kept("it does not say when its message was stored", 7)
	other := kept("consumer v of stream O is not in this configuration, or has no DLQ there", 8)
	for name, c := range map[string]struct {
		f      Filter
		o      ReplayOptions
		want   []Exception
		failed int
	}{
		"all":              {Filter{}, ReplayOptions{MaxReplays: 2}, []Exception{{Gone, "O_DLQ", anew, []uint64{1}}, half, often, bare, timeless}, 0},
		"the old one":      {Filter{Last: 2}, ReplayOptions{}, []Exception{{Failed, "O_DLQ", anew, []uint64{1}}}, 1},
		"any number":       {Filter{First: 5}, ReplayOptions{}, []Exception{bare, timeless}, 0},
		"another consumer": {Filter{Consumer: "v"}, ReplayOptions{}, []Exception{other}, 0},
		"to the stream":    {Filter{Consumer: "v"}, ReplayOptions{To: ToStream}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 2)
			b.copied(1, 1, nil)
			b.copied(2, 0, nats.Header{"Dlq-Sequence": {"3"}, "Dlq-Part": {"1/2"}})
			b.copied(2, 2, nats.Header{"Dlq-Sequence": {"4"}})
			b.copied(2, 0, nats.Header{"Dlq-Sequence": {"5"}, "Dlq-Subject": {""}})
			b.copied(2, 0, nats.Header{"Dlq-Sequence": {"6"}, "Dlq-Time-Stamp": {time.Time{}.Format(time.RFC3339Nano)}})
			_, err := b.js.PublishMsg(t.Context(), &nats.Msg{Subject: "dlq.O.v.o.a", Header: nats.Header{
				"Dlq-Stream": {"O"}, "Dlq-Consumer": {"v"}, "Dlq-Subject": {"o.a"}, "Dlq-Sequence": {"9"}, "Dlq-Time-Stamp": {time.Now().Format(time.RFC3339Nano)},
			}})
			b.must(err)
			s := b.service(nil)
			b.app.script = func(context.Context, *forward.Message) forward.Result { return answer(200) }
			c.o.DryRun = true
			dry, err := s.Replay(t.Context(), c.f, c.o)
			b.must(err)
			if !reflect.DeepEqual(dry.Exceptions, c.want) || dry.Failed != c.failed {
				t.Errorf("%+v\nwant %+v", dry, c.want)
			}
			c.o.DryRun = false
			r, err := s.Replay(t.Context(), c.f, c.o)
			b.must(err)
			if r.Exceptions != nil || r.Selected != dry.Selected || r.Done != dry.Done || r.Gone != dry.Gone || r.Failed != dry.Failed || r.Kept != dry.Kept {
				t.Errorf("%+v\nthe dry run said %+v", r, dry)
			}
		})
	}
}

// So it does where several entries are of one message, as often replayed.
func TestDryRunOfTwins(t *testing.T) {
	for name, status := range map[string]int{"accepted": 200, "failed again": 422} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 2)
			b.copied(1, 0, nil)
			b.copied(1, 0, nil)
			s := b.service(nil)
			b.app.script = func(context.Context, *forward.Message) forward.Result { return answer(status) }
			dry, err := s.Replay(t.Context(), Filter{}, ReplayOptions{DryRun: true})
			want := []Exception{{Gone, "O_DLQ", "another entry of its message is replayed before it, which answers both", []uint64{3, 4}}}
			if err != nil || !reflect.DeepEqual(dry.Exceptions, want) || dry.Done != 4 || dry.Gone != 2 {
				t.Errorf("%v, %+v", err, dry)
			}
			r, err := s.Replay(t.Context(), Filter{}, ReplayOptions{})
			if err != nil || r.Gone != 2 || r.Done+r.Failed != 4 || r.Done == 2 != (status == 422) {
				t.Errorf("%v, %+v", err, r)
			}
		})
	}
}

// A removal does the same of a half whose other half may be on its way.
func TestDryRemoval(t *testing.T) {
	b := newBench(t, 1)
	b.copied(1, 0, nats.Header{"Dlq-Sequence": {"2"}, "Dlq-Part": {"1/2"}})
	s := b.service(nil)
	for _, dry := range []bool{true, false} {
		r, err := s.Remove(t.Context(), Filter{}, RemoveOptions{DryRun: dry})
		if err != nil || r.Done != 1 || r.Kept != 1 || dry != (len(r.Exceptions) == 1) {
			t.Errorf("%v, %+v", err, r)
		}
	}
	if r, err := s.Remove(t.Context(), Filter{First: 2, Last: 2}, RemoveOptions{DryRun: true}); err != nil || r.Done != 1 || r.Exceptions != nil {
		t.Errorf("%v, %+v", err, r)
	}
}
