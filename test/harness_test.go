// Package test drives whole sidecars from outside: a real NATS server, a real HTTP app, and the promises of delivery.
package test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

const (
	stream  = "ORDERS"
	durable = "worker"
	dlq     = "ORDERS_DLQ"

	// patience is how long a condition may take to come true, on a machine that is busy. It is less than the default ack
	// wait, so that a message that is lost until then fails its story.
	patience = 25 * time.Second
	// clusterPatience is that in a cluster, where leaders are to be elected for it first, several in a row. There are shorter ack waits.
	clusterPatience = 90 * time.Second
	// stall is how long such a machine may stand still: nothing that a story relies on is shorter.
	stall = 3 * time.Second
	// shortAckWait is the ack wait where a story waits for its end. What is leased is kept alive at every third of it, so that
	// no stall ends a lease.
	shortAckWait = 2 * stall
	// shortTimeout is the app.timeout where a story waits for its end, and another request is to be answered in it.
	shortTimeout = stall + time.Second
	// parallel is how many stories run at a time: most of them wait.
	parallel = "6"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", parallel); err != nil {
		panic(err)
	}
	code := m.Run()
	if binaryDir != "" {
		os.RemoveAll(binaryDir)
	}
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// world is what a story happens in: NATS with a source stream, and an app.
type world struct {
	t    *testing.T
	nats *localnats.Server // nil in a cluster
	urls []string
	nc   *nats.Conn
	js   natsjs.JetStream
	app  *fakeApp
	// patience is how long one thing may take to happen here.
	patience time.Duration

	mu        sync.Mutex
	published []uint64 // sequences of the source stream
	silent    map[uint64]bool
}

// newWorld has a server with the source stream, and an app that answers 200. The stream's configuration may be changed.
func newWorld(t *testing.T, change ...func(*natsjs.StreamConfig)) *world {
	t.Helper()
	return newWorldOn(t, localnats.Options{}, change...)
}

// newWorldOn is newWorld with a server of these options.
func newWorldOn(t *testing.T, o localnats.Options, change ...func(*natsjs.StreamConfig)) *world {
	t.Helper()
	t.Parallel()
	server := localnats.Run(t, o)
	w := worldAt(t, server.URL())
	w.nats = server
	w.makeStream(change...)
	return w
}

func worldAt(t *testing.T, urls ...string) *world {
	t.Helper()
	w := &world{t: t, urls: urls, patience: patience, silent: map[uint64]bool{}}
	if len(urls) > 1 {
		w.patience = clusterPatience
	}
	var err error
	w.nc, err = nats.Connect(strings.Join(urls, ","), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.Name("test"),
		nats.Timeout(patience))
	w.must(err)
	closed := make(chan struct{})
	w.nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	t.Cleanup(func() { w.nc.Close(); <-closed })
	w.js, err = natsjs.New(w.nc, natsjs.WithDefaultTimeout(patience))
	w.must(err)
	w.app = newApp(t)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// within is a context for something that is tried once.
func within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

// briefly is a context for one request to NATS that is made again if it gets no answer: it may be lost, with a server or with a leader.
func briefly() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 5*time.Second)
}

// makeStream makes the source stream.
func (w *world) makeStream(change ...func(*natsjs.StreamConfig)) {
	w.t.Helper()
	cfg := natsjs.StreamConfig{Name: stream, Subjects: []string{"orders.>"}, Storage: natsjs.FileStorage}
	for _, f := range change {
		f(&cfg)
	}
	w.streamOf(cfg)
}

// streamOf makes a stream, or changes it.
func (w *world) streamOf(cfg natsjs.StreamConfig) {
	w.t.Helper()
	w.try("make stream "+cfg.Name, func(ctx context.Context) error {
		_, err := w.js.CreateOrUpdateStream(ctx, cfg)
		return err
	})
}

// purge takes all messages out of the stream.
func (w *world) purge() {
	w.t.Helper()
	w.purgeOf(stream)
}

func (w *world) purgeOf(name string) {
	w.t.Helper()
	w.try("purge", func(ctx context.Context) error {
		st, err := w.js.Stream(ctx, name)
		if err != nil {
			return err
		}
		return st.Purge(ctx)
	})
}

// dlqOf makes the DLQ stream by hand.
func (w *world) dlqOf(change ...func(*natsjs.StreamConfig)) {
	w.t.Helper()
	cfg := natsjs.StreamConfig{Name: dlq, Subjects: []string{"dlq.ORDERS.*.>"}, Storage: natsjs.FileStorage, Discard: natsjs.DiscardNew}
	for _, f := range change {
		f(&cfg)
	}
	w.streamOf(cfg)
}

// durableOf makes the durable by hand.
func (w *world) durableOf(change ...func(*natsjs.ConsumerConfig)) {
	w.t.Helper()
	cfg := natsjs.ConsumerConfig{Durable: durable, AckPolicy: natsjs.AckExplicitPolicy, AckWait: 30 * time.Second, MaxAckPending: 10000}
	for _, f := range change {
		f(&cfg)
	}
	w.try("make durable", func(ctx context.Context) error {
		_, err := w.js.CreateOrUpdateConsumer(ctx, stream, cfg)
		return err
	})
}

// try repeats a request that a server on its way may refuse.
func (w *world) try(what string, f func(context.Context) error) {
	w.t.Helper()
	var err error
	w.eventually(func() bool {
		ctx, cancel := briefly()
		defer cancel()
		err = f(ctx)
		return err == nil
	}, func() string { return fmt.Sprintf("%s: %v", what, err) })
}

// publish stores messages and returns the last one's sequence.
func (w *world) publish(subject, body string, header ...string) uint64 {
	w.t.Helper()
	msg := nats.NewMsg(subject)
	msg.Data = []byte(body)
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		msg.Header[name] = append(msg.Header[name], value)
	}
	var seq uint64
	w.try("publish to "+subject, func(ctx context.Context) error {
		if msg.Header.Get("Nats-Msg-Id") == "" { // a second try would store it twice
			var cancel context.CancelFunc
			ctx, cancel = within()
			defer cancel()
		}
		ack, err := w.js.PublishMsg(ctx, msg)
		if err == nil {
			seq = ack.Sequence
		}
		return err
	})
	w.stored(seq)
	return seq
}

// stored notes that a message is in the source stream.
func (w *world) stored(seq uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.published, seq) {
		w.published = append(w.published, seq)
	}
}

// publishAfterWindow stores a message whose id was used before: it waits until the stream forgot it.
func (w *world) publishAfterWindow(subject, body, id string) uint64 {
	w.t.Helper()
	var seq uint64
	w.eventually(func() bool {
		ctx, cancel := briefly()
		defer cancel()
		ack, err := w.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: []byte(body), Header: nats.Header{"Nats-Msg-Id": {id}}})
		if err != nil || ack.Duplicate {
			return false
		}
		seq = ack.Sequence
		return true
	}, text("the duplicate window to pass"))
	w.stored(seq)
	return seq
}

// consumer is what the server says of a durable; nil if it is not there.
func (w *world) consumer(name string) *natsjs.ConsumerInfo {
	var info struct {
		natsjs.ConsumerInfo
		Error *natsjs.APIError `json:"error"`
	}
	if !w.has("CONSUMER.INFO."+stream+"."+name, nil, &info, &info.Error) {
		return nil
	}
	return &info.ConsumerInfo
}

// streamInfo is what the server says of a stream; nil if it is not there.
func (w *world) streamInfo(name string) *natsjs.StreamInfo {
	var info struct {
		natsjs.StreamInfo
		Error *natsjs.APIError `json:"error"`
	}
	if !w.has("STREAM.INFO."+name, nil, &info, &info.Error) {
		return nil
	}
	return &info.StreamInfo
}

// has asks the server until it answers, and reports whether what is asked for is there. No answer is not "no", nor is one that nobody is
// there to tell.
func (w *world) has(subject string, request []byte, answer any, fault **natsjs.APIError) bool {
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(w.patience); time.Now().Before(end); <-look.C {
		*fault = nil
		if w.api(subject, request, answer) && (*fault == nil || (*fault).Code < http.StatusInternalServerError) {
			return *fault == nil
		}
	}
	return false
}

// api asks the server and reports whether it answered.
func (w *world) api(subject string, request []byte, answer any) bool {
	ctx, cancel := briefly()
	defer cancel()
	msg, err := w.nc.RequestWithContext(ctx, "$JS.API."+subject, request)
	return err == nil && json.Unmarshal(msg.Data, answer) == nil
}

// eventually waits for a condition.
func eventually(t testing.TB, cond func() bool, what func() string) {
	t.Helper()
	eventuallyWithin(t, patience, cond, what)
}

// eventually waits for a condition with the patience that this world needs.
func (w *world) eventually(cond func() bool, what func() string) {
	w.t.Helper()
	eventuallyWithin(w.t, w.patience, cond, what)
}

func eventuallyWithin(t testing.TB, d time.Duration, cond func() bool, what func() string) {
	t.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(d); !cond(); <-look.C {
		if time.Now().After(end) {
			t.Fatalf("waited %s for %s", d, what())
		}
	}
}

// dwindles waits until what is left is nothing. Patience is for each time that it becomes less: much takes long on a machine that
// is busy.
func dwindles(t testing.TB, left func() int, what func() string) {
	t.Helper()
	dwindlesWithin(t, patience, left, what)
}

func dwindlesWithin(t testing.TB, d time.Duration, left func() int, what func() string) {
	t.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	least, end := math.MaxInt, time.Now().Add(d)
	for n := left(); n > 0; n = left() {
		if n < least {
			least, end = n, time.Now().Add(d)
		}
		if time.Now().After(end) {
			t.Fatalf("waited %s for %s", d, what())
		}
		<-look.C
	}
}

// throughout holds that a condition stays true for a time.
func throughout(t testing.TB, d time.Duration, cond func() bool, what func() string) {
	t.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); <-look.C {
		if !cond() {
			t.Fatalf("it did not hold that %s", what())
		}
	}
}

func text(s string) func() string { return func() string { return s } }
