package dlq

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/forward"
	"github.com/jetsidecar/jetsidecar/jetstream"
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

// To the stream it marks, too, what the stream would refuse for certain, and no more than that.
func TestDryRunSaysWhatTheStreamRefuses(t *testing.T) {
	b := newBench(t, 1)
	const most = 4000
	_, err := b.js.UpdateStream(t.Context(), natsjs.StreamConfig{Name: "O", Subjects: []string{"o.>"}, Duplicates: time.Minute, MaxMsgSize: most})
	b.must(err)
	stored := uint64(1)
	bury := func(body int, changed nats.Header) {
		stored++
		h := nats.Header{
			"Dlq-Stream": {"O"}, "Dlq-Consumer": {"w"}, "Dlq-Subject": {"o.a"}, "Dlq-Sequence": {fmt.Sprint(stored)}, "Dlq-Reason": {"rejected"},
			"Dlq-Time-Stamp": {time.Unix(1, 0).UTC().Format(time.RFC3339Nano)}, "X-Own": {"1", "22"},
		}
		maps.Copy(h, changed)
		_, err := b.js.PublishMsg(t.Context(), &nats.Msg{Subject: "dlq.O.w.o.a", Data: make([]byte, body), Header: h})
		b.must(err)
	}
	// The id has the time in nanoseconds: since 2001, and until 2286, that is as long.
	head := int(jetstream.RepublishHead(jetstream.RepublishID("O_DLQ", 2, time.Now()), map[string][]string{"X-Own": {"1", "22"}, "Dlq-Replays": {"1"}}))
	bury(most-head, nil)
	bury(most-head+1, nil)
	bury(1, nats.Header{"Dlq-Subject": {"other.a"}})
	bury(1, nats.Header{"Dlq-Subject": {"o..a"}})
	bury(1, nats.Header{"Dlq-Subject": {"o.a b"}})
	bury(1, nats.Header{"Dlq-Stream": {"P"}})
	for _, part := range []string{firstPart, secondPart} {
		bury(512<<10, nats.Header{"Dlq-Part": {part}, "Dlq-Sequence": {"8"}})
	}
	bury(1, nats.Header{"Dlq-Stream": {"P"}})
	s := b.serviceOf(consumerOf("O", "w", "O_DLQ", "dlq.O.w.{subject}"), consumerOf("P", "w", "O_DLQ", "dlq.P.w.{subject}"))
	nc, err := nats.Connect(b.url, nats.Timeout(time.Minute))
	b.must(err)
	defer nc.Close()
	looks, err := nc.SubscribeSync("$JS.API.STREAM.INFO.O")
	b.must(err)
	b.must(nc.Flush())
	dry, err := s.Replay(t.Context(), Filter{}, ReplayOptions{To: ToStream, DryRun: true})
	b.must(err)
	kept := func(why string, seqs ...uint64) Exception { return Exception{Kept, "O_DLQ", why, seqs} }
	want := []Exception{
		kept("it is larger than the 4000 bytes that stream O takes (max_msg_size)", 3), kept("stream O does not listen on its subject", 4),
		kept("its subject is invalid", 5, 6), kept("stream P does not exist", 7, 10), kept("it is larger than the 1048576 bytes that the server takes (max_payload)", 8),
	}
	if !reflect.DeepEqual(dry.Exceptions, want) || dry.Done != 2 || dry.Kept != 7 {
		t.Errorf("%+v\nwant %+v", dry, want)
	}
	b.must(nc.Flush())
	if n, _, err := looks.Pending(); err != nil || n != 1 {
		t.Errorf("%v, the stream was looked up %d times", err, n)
	}
	if r, err := s.Replay(t.Context(), Filter{}, ReplayOptions{To: ToStream}); err != nil || r.Done != dry.Done || r.Kept != dry.Kept {
		t.Errorf("%v, %+v\nthe dry run said %+v", err, r, dry)
	}
	app, err := s.Replay(t.Context(), Filter{First: 4, Last: 4}, ReplayOptions{DryRun: true})
	if err != nil || app.Exceptions != nil {
		t.Errorf("to the app: %v, %+v", err, app)
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
