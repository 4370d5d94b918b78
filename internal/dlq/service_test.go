package dlq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/forward"
	"github.com/jetsidecar/jetsidecar/internal/localnats"
	"github.com/jetsidecar/jetsidecar/jetstream"
	"github.com/jetsidecar/jetsidecar/policy"
)

// fakeApp answers as its script says.
type fakeApp struct {
	mu     sync.Mutex
	script func(ctx context.Context, m *forward.Message) forward.Result
	calls  map[uint64]int
	down   error
}

func (a *fakeApp) Forward(ctx context.Context, _ *forward.Target, m *forward.Message) forward.Result {
	a.mu.Lock()
	a.calls[m.Sequence]++
	script := a.script
	a.mu.Unlock()
	return script(ctx, m)
}

func (a *fakeApp) Probe(context.Context) error { return a.LastError() }
func (a *fakeApp) Up() bool                    { return a.LastError() == nil }
func (a *fakeApp) LastError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.down
}

func (a *fakeApp) setDown(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = err
}

func answer(status int) forward.Result {
	return forward.Result{Outcome: policy.Outcome{Kind: policy.Answered, Status: status}, Sent: true}
}

// bench is a server with a source stream O, and its DLQ stream with entries.
type bench struct {
	t   *testing.T
	js  natsjs.JetStream
	url string
	app *fakeApp

	server *localnats.Server
}

func newBench(t *testing.T, entries int) *bench {
	t.Helper()
	t.Parallel()
	return newBenchHere(t, entries)
}

// users are the one of whoever says none, who may do all, and u, who may remove nothing.
const users = `no_auth_user: all
authorization: {users: [{user: all, password: p}, {user: u, password: p, permissions: {publish: {deny: "$JS.API.STREAM.MSG.DELETE.>"}}}]}`

// newBenchHere is newBench in a test that has more than one.
func newBenchHere(t *testing.T, entries int) *bench {
	t.Helper()
	server := localnats.Run(t, localnats.Options{Config: users})
	b := &bench{t: t, url: server.URL(), server: server}
	nc, err := nats.Connect(b.url, nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	b.js, err = natsjs.New(nc, natsjs.WithDefaultTimeout(time.Minute))
	b.must(err)
	for name, subject := range map[string]string{"O": "o.>", "O_DLQ": "dlq.O.*.>"} {
		_, err = b.js.CreateStream(t.Context(), natsjs.StreamConfig{Name: name, Subjects: []string{subject}, Duplicates: time.Minute})
		b.must(err)
	}
	for i := range entries {
		_, err := b.js.PublishMsg(t.Context(), &nats.Msg{Subject: "dlq.O.w.o.a", Data: []byte("x"), Header: nats.Header{
			"Dlq-Stream": {"O"}, "Dlq-Consumer": {"w"}, "Dlq-Subject": {"o.a"}, "Dlq-Sequence": {fmt.Sprint(i + 1)}, "Dlq-Reason": {"rejected"},
			"Dlq-Time-Stamp": {time.Now().UTC().Format(time.RFC3339Nano)}, "Dlq-Deliveries": {"3"}, "Dlq-Msg-Id": {fmt.Sprint("id-", i+1)},
		}})
		b.must(err)
	}
	b.app = &fakeApp{calls: map[uint64]int{}, script: func(context.Context, *forward.Message) forward.Result { return answer(200) }}
	return b
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// service is one of the services on the DLQ, with a connection of its own. what the app accepted is told to remember.
func (b *bench) service(remember func(*jetstream.Message)) *Service {
	b.t.Helper()
	c := consumerOf("O", "w", "{stream}_DLQ", "dlq.{stream}.{consumer}.{subject}")
	c.Remember = remember
	return b.serviceOf(c)
}

func consumerOf(stream, durable, dlqStream, subject string) Consumer {
	return Consumer{
		Stream: stream, Durable: durable, Manage: jetstream.ManageCreate,
		DLQ: jetstream.DeadLetterConfig{Enabled: true, Stream: dlqStream, Subject: subject},
	}
}

func (b *bench) serviceOf(consumers ...Consumer) *Service {
	b.t.Helper()
	conn, err := jetstream.Dial(jetstream.Config{URLs: []string{b.url}}, slog.New(slog.DiscardHandler))
	b.must(err)
	b.t.Cleanup(conn.Close)
	if found := conn.AwaitConnection(b.t.Context(), time.Minute); found.Level != jetstream.OK {
		b.t.Fatal(found)
	}
	return New(Options{Conn: conn, App: b.app, Consumers: consumers})
}

// left are the sequences of O whose entries are there.
func (b *bench) left(s *Service) (sequences []uint64) {
	b.t.Helper()
	for e, err := range s.List(b.t.Context(), Filter{}) {
		b.must(err)
		sequences = append(sequences, e.Sequence)
	}
	return sequences
}

func TestPaging(t *testing.T) {
	b := newBench(t, 25)
	s := b.service(nil)
	var all []uint64
	f := Filter{Limit: 10}
	for pages := 0; ; pages++ {
		n := 0
		for e, err := range s.List(t.Context(), f) {
			b.must(err)
			n++
			all = append(all, e.Seq)
			f.After = Position{e.Cursor()}
		}
		if n < 10 {
			if pages != 2 || n != 5 {
				t.Errorf("page %d has %d", pages, n)
			}
			break
		}
	}
	if len(all) != 25 || !slices.IsSorted(all) {
		t.Errorf("%v", all)
	}
}

// However many replays go on at once, each entry is at the app once, what it accepts is remembered, and all are done.
func TestReplaysAtOnce(t *testing.T) {
	b := newBench(t, 60)
	b.app.script = func(_ context.Context, m *forward.Message) forward.Result {
		if m.Sequence%10 == 0 && m.Header["Dlq-Replays"][0] == "1" {
			return answer(422)
		}
		return answer(200)
	}
	var mu sync.Mutex
	remembered := map[string]int{}
	var all sync.WaitGroup
	var done int
	for range 3 {
		s := b.service(func(m *jetstream.Message) {
			mu.Lock()
			defer mu.Unlock()
			remembered[m.Header["Nats-Msg-Id"][0]]++
		})
		all.Go(func() {
			r, err := s.Replay(t.Context(), Filter{Last: 60}, ReplayOptions{Concurrency: 3})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if r.Done+r.Failed != r.Selected {
				t.Errorf("%+v", r)
			}
			done += r.Done - r.Gone
		})
	}
	all.Wait()
	if done != 54 || len(remembered) != 54 {
		t.Errorf("%d done, %d remembered", done, len(remembered))
	}
	for seq := range uint64(60) {
		if n := b.app.calls[seq+1]; n != 1 {
			t.Errorf("message %d was called %d times", seq+1, n)
		}
	}
	if got := b.left(b.service(nil)); len(got) != 6 {
		t.Errorf("%v are left", got)
	}
}

// The selection is fixed at the start: what fails again is not tried again in the same run.
func TestReplayIsOnePass(t *testing.T) {
	b := newBench(t, 5)
	s := b.service(nil)
	b.app.script = func(context.Context, *forward.Message) forward.Result { return answer(500) }
	var told []Progress
	r, err := s.Replay(t.Context(), Filter{}, ReplayOptions{OnProgress: func(p Progress) { told = append(told, p) }})
	b.must(err)
	if r.Selected != 5 || r.Failed != 5 || r.Handled() || len(r.Failures) != 1 || r.Failures[0].Count != 5 || r.Failures[0].Reason != "max_deliver" || r.Failures[0].Status != 500 {
		t.Errorf("%+v", r)
	}
	if len(told) != 5 || told[4].Last.Result != Failed || told[4].Last.NewSeq != 10 || told[4].Last.Entry.Seq != 5 {
		t.Errorf("%+v", told)
	}
	for e, err := range s.List(t.Context(), Filter{}) {
		b.must(err)
		if e.Deliveries != 4 || e.Replays != 1 || e.MsgID != fmt.Sprint("id-", e.Sequence) {
			t.Errorf("%+v", e)
		}
	}
}

// An app that gives no reason says why in its answer. Answers that differ are one cause, shown by the one of the example.
func TestReplaySaysWhatTheAppAnswered(t *testing.T) {
	b := newBench(t, 3)
	s := b.service(nil)
	b.app.script = func(_ context.Context, m *forward.Message) forward.Result {
		r := answer(500)
		r.Response = fmt.Appendf(nil, "order %d\n is \xffclosed %s", m.Sequence, strings.Repeat("x", 300))
		return r
	}
	r, err := s.Replay(t.Context(), Filter{}, ReplayOptions{})
	b.must(err)
	if len(r.Failures) != 1 || r.Failures[0].Count != 3 || r.Failures[0].Example != 4 || !strings.HasPrefix(r.Failures[0].Why, "order 1 is closed xx") || len(r.Failures[0].Why) > 200 {
		t.Errorf("%+v", r)
	}
}

// While the app is away a replay ends, and what is in work stays.
func TestReplayWhileTheAppGoes(t *testing.T) {
	b := newBench(t, 5)
	s := b.service(nil)
	b.app.script = func(ctx context.Context, m *forward.Message) forward.Result {
		if m.Sequence < 3 {
			m.Sending(true)
			return answer(200)
		}
		b.app.setDown(errors.New("connection refused"))
		<-ctx.Done()
		return forward.Result{Outcome: policy.Outcome{Kind: policy.HandedBack}}
	}
	r, err := s.Replay(t.Context(), Filter{}, ReplayOptions{})
	if !errors.Is(err, ErrAppAway) || r.Done != 2 || r.Handled() && r.Interrupted {
		t.Errorf("%v, %+v", err, r)
	}
	if got := b.left(s); !slices.Equal(got, []uint64{3, 4, 5}) {
		t.Errorf("%v are left", got)
	}
	if _, err := s.Replay(t.Context(), Filter{}, ReplayOptions{}); !errors.Is(err, ErrAppAway) {
		t.Errorf("%v", err)
	}
	b.app.setDown(nil)
	b.app.script = func(context.Context, *forward.Message) forward.Result { return answer(200) }
	r, err = s.Replay(t.Context(), Filter{}, ReplayOptions{})
	if err != nil || !r.Handled() || r.Done != 3 {
		t.Errorf("%v, %+v", err, r)
	}
}

// A stop lets the request at the app end, and gives up one that waits for a connection.
func TestReplayStops(t *testing.T) {
	for _, sending := range []bool{true, false} {
		t.Run(fmt.Sprint("sending ", sending), func(t *testing.T) {
			b := newBench(t, 5)
			s := b.service(nil)
			ctx, stop := context.WithCancel(t.Context())
			b.app.script = func(work context.Context, m *forward.Message) forward.Result {
				m.Sending(sending)
				if m.Sequence < 2 {
					return answer(200)
				}
				stop()
				var answered <-chan time.Time // one that waits for a connection waits on
				if sending {
					answered = time.After(10 * awayLook)
				}
				select {
				case <-work.Done():
					return forward.Result{Outcome: policy.Outcome{Kind: policy.HandedBack}}
				case <-answered:
					return answer(200)
				}
			}
			r, err := s.Replay(ctx, Filter{}, ReplayOptions{})
			want := []uint64{2, 3, 4, 5}
			if sending {
				want = want[1:]
			}
			if got := b.left(s); err != nil || !r.Interrupted || !slices.Equal(got, want) {
				t.Errorf("%v, %+v, %v left", err, r, got)
			}
		})
	}
}

// What a run that died was done with is removed by the next, and not called again.
func TestNextRunFinishes(t *testing.T) {
	b := newBench(t, 3)
	s := b.service(nil)
	claims, _, err := s.conn.OpenClaims(t.Context(), "O_DLQ", "O", jetstream.ManageCreate, "other", "another process")
	b.must(err)
	_, _, err = claims.Take(t.Context(), 2)
	b.must(err)
	b.must(claims.Done(t.Context(), []uint64{2}))
	// It is gone now, without having removed it; and its lease has run out.
	b.expireClaims()
	r, err := s.Replay(t.Context(), Filter{}, ReplayOptions{})
	if err != nil || !r.Handled() || r.Done != 3 || r.Gone != 1 || b.app.calls[2] != 0 || len(b.left(s)) != 0 {
		t.Errorf("%v, %+v, %d calls, %v left", err, r, b.app.calls[2], b.left(s))
	}
}

// cutOff shuts the server down and waits until the service knows.
func (b *bench) cutOff(s *Service) {
	b.server.Shutdown()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for s.conn.Connected() {
		<-look.C
	}
}

// An entry that the app has accepted is removed once NATS is back: it is not left for a second run, which would call the app again.
func TestReplayOutlastsARestartOfNATS(t *testing.T) {
	b := newBench(t, 1)
	s := b.service(nil)
	restarted := make(chan error, 1)
	b.app.script = func(context.Context, *forward.Message) forward.Result {
		b.cutOff(s)
		go func() { restarted <- b.server.Restart() }()
		return answer(200)
	}
	r, err := s.Replay(t.Context(), Filter{}, ReplayOptions{})
	b.must(err)
	b.must(<-restarted)
	if !r.Handled() || r.Done != 1 || len(b.left(s)) != 0 {
		t.Errorf("%+v, %v left", r, b.left(s))
	}
}

// expireClaims lets all runs be dead.
func (b *bench) expireClaims() {
	b.t.Helper()
	ctx := b.t.Context()
	kv, err := b.js.KeyValue(ctx, jetstream.StateBucket)
	b.must(err)
	keys, err := kv.Keys(ctx)
	b.must(err)
	for _, key := range keys {
		entry, err := kv.Get(ctx, key)
		b.must(err)
		var table map[string]any
		b.must(json.Unmarshal(entry.Value(), &table))
		for _, run := range table["runs"].([]any) {
			run.(map[string]any)["until"] = time.Now().Add(-time.Minute)
		}
		value, err := json.Marshal(table)
		b.must(err)
		_, err = kv.Put(ctx, key, value)
		b.must(err)
	}
}

func TestConfirm(t *testing.T) {
	b := newBench(t, 3)
	s := b.service(nil)
	no := errors.New("no")
	ask := func(n int) error {
		if n != 3 {
			t.Errorf("%d selected", n)
		}
		return no
	}
	if _, err := s.Remove(t.Context(), Filter{}, RemoveOptions{Confirm: ask}); !errors.Is(err, no) {
		t.Error(err)
	}
	if _, err := s.Replay(t.Context(), Filter{}, ReplayOptions{Confirm: ask}); !errors.Is(err, no) || len(b.left(s)) != 3 {
		t.Error(err)
	}
	if _, err := s.Remove(t.Context(), Filter{Stream: "X"}, RemoveOptions{}); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}
