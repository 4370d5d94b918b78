package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

const (
	streamName, durableName = "BENCH", "bench"
	subject                 = "bench.messages"
	// publishing is how many messages are on their way into the stream at a time.
	publishing = 256
	// requestLimit bounds one request to NATS or to the app.
	requestLimit = 10 * time.Second
	// ackWait and maxAckPending are the sidecar's defaults, so that its durable is as configured.
	ackWait, maxAckPending = 30 * time.Second, 10000
)

// world is what all forwarders work in: a NATS server and an app, each a process.
type world struct {
	dir     string
	sidecar string // the binary
	server  *process
	app     *process
	nc      *nats.Conn
	js      natsjs.JetStream
	keys    int // that the messages of the present stream have
}

// newWorld builds the sidecar, and starts the server and the app.
func newWorld(ctx context.Context) (w *world, err error) {
	w = &world{}
	defer func(w *world) {
		if err != nil {
			w.close()
		}
	}(w)
	if w.dir, err = os.MkdirTemp("", "bench"); err != nil {
		return nil, err
	}
	w.sidecar = filepath.Join(w.dir, "sidecar")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", w.sidecar, "./cmd/sidecar") //nolint:gosec // G204: go, with our own flags
	build.Dir, build.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the sidecar: %w\n%s", err, out)
	}
	if w.server, err = startRole("nats", "dir="+filepath.Join(w.dir, "nats")); err != nil {
		return nil, err
	}
	if w.app, err = startRole("app"); err != nil {
		return nil, err
	}
	if w.nc, err = nats.Connect(w.url()); err != nil {
		return nil, err
	}
	w.js, err = natsjs.New(w.nc)
	return w, err
}

func (w *world) url() string { return "nats://" + w.server.address }

func (w *world) close() {
	if w.nc != nil {
		w.nc.Close()
	}
	for _, p := range []*process{w.app, w.server} {
		if p != nil {
			p.stop()
		}
	}
	_ = os.RemoveAll(w.dir)
}

// stream makes the stream anew, with a durable that is served at once or, to be drained, only when it is resumed.
func (w *world) stream(ctx context.Context, messages int, c benchCase) error {
	if err := w.js.DeleteStream(ctx, streamName); err != nil && !errors.Is(err, natsjs.ErrStreamNotFound) {
		return err
	}
	// The sidecar's own streams of an earlier run go too, so that each run begins alike.
	for _, name := range []string{streamName + "_DLQ", "KV_sidecar-dedupe"} {
		if err := w.js.DeleteStream(ctx, name); err != nil && !errors.Is(err, natsjs.ErrStreamNotFound) {
			return err
		}
	}
	if _, err := w.js.CreateStream(ctx, natsjs.StreamConfig{Name: streamName, Subjects: []string{subject, subject + ".*"}, Storage: natsjs.FileStorage}); err != nil {
		return err
	}
	w.keys = c.Keys
	body := bodyOf(c.Size)
	if err := w.publish(ctx, messages, func(int) ([]byte, error) { return body, nil }); err != nil {
		return err
	}
	cfg := natsjs.ConsumerConfig{Durable: durableName, AckPolicy: natsjs.AckExplicitPolicy, AckWait: ackWait, MaxAckPending: maxAckPending}
	if c.Order != "" { // as the sidecar makes it
		cfg.PriorityPolicy, cfg.PriorityGroups, cfg.PinnedTTL = natsjs.PriorityPolicyPinned, []string{"sidecar"}, 3*time.Second
	}
	if c.Kind == throughput {
		until := time.Now().Add(time.Hour)
		cfg.PauseUntil = &until
	}
	_, err := w.js.CreateConsumer(ctx, streamName, cfg)
	return err
}

// bodyOf is a message that does not say when it was sent. Like most it is JSON, of which a batch has to escape something.
func bodyOf(size int) []byte {
	body := make([]byte, size)
	for rest := body[stampSize:]; len(rest) > 0; {
		rest = rest[copy(rest, `{"order":4711,"customer":"c-1234567","lines":[{"sku":"abcdefgh","quantity":12}]}`):]
	}
	return body
}

// resume lets a paused durable deliver, and publishes one more message: without it the server does not look after pull
// requests that wait already.
func (w *world) resume(ctx context.Context, size int) error {
	if _, err := w.js.ResumeConsumer(ctx, streamName, durableName); err != nil {
		return err
	}
	_, err := w.js.Publish(ctx, subject, bodyOf(size))
	return err
}

func (w *world) consumer(ctx context.Context) (*natsjs.ConsumerInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	c, err := w.js.Consumer(ctx, streamName, durableName)
	if err != nil {
		return nil, err
	}
	return c.CachedInfo(), nil
}

// publish stores messages, some of them on their way at a time.
func (w *world) publish(ctx context.Context, messages int, body func(i int) ([]byte, error)) error {
	sent := make(chan natsjs.PubAckFuture, publishing)
	oldest := func() error {
		select {
		case one := <-sent:
			select {
			case <-one.Ok():
				return nil
			case err := <-one.Err():
				return err
			case <-ctx.Done():
			}
		case <-ctx.Done():
		}
		return context.Cause(ctx)
	}
	for i := range messages {
		if len(sent) == cap(sent) {
			if err := oldest(); err != nil {
				return err
			}
		}
		b, err := body(i)
		if err != nil {
			return err
		}
		one, err := w.js.PublishAsync(w.subjectOf(i), b)
		if err != nil {
			return err
		}
		sent <- one
	}
	for len(sent) > 0 {
		if err := oldest(); err != nil {
			return err
		}
	}
	return nil
}

// subjectOf is the subject of a message: its key, where there are keys.
func (w *world) subjectOf(i int) string {
	if w.keys == 0 {
		return subject
	}
	return subject + "." + strconv.Itoa(i%w.keys)
}

// publishAt stores messages at a rate; each says when it was sent.
func (w *world) publishAt(ctx context.Context, messages, size, rate int) error {
	began := time.Now()
	return w.publish(ctx, messages, func(i int) ([]byte, error) {
		if err := pause(ctx, time.Until(began.Add(time.Duration(i)*time.Second/time.Duration(rate)))); err != nil {
			return nil, err
		}
		body := make([]byte, size)
		binary.BigEndian.PutUint64(body, uint64(time.Now().UnixNano()))
		return body, nil
	})
}

// resetApp makes the app behave as a case says.
func (w *world) resetApp(ctx context.Context, c benchCase) error {
	every := 0
	if c.Fail > 0 {
		every = int(100 / c.Fail)
	}
	query := url.Values{"delay": {c.Delay.String()}, "every": {strconv.Itoa(every)}}
	return w.ask(ctx, http.MethodPost, "/reset?"+query.Encode(), nil)
}

func (w *world) stats(ctx context.Context, latencies bool) (s appStats, err error) {
	path := "/stats"
	if latencies {
		path += "?latencies=1"
	}
	return s, w.ask(ctx, http.MethodGet, path, &s)
}

// asking is the client for questions to the app: on connections of their own, so that those of forwarders are counted alone.
var asking = &http.Client{Timeout: requestLimit}

func (w *world) ask(ctx context.Context, method, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, w.app.address+path, nil)
	if err != nil {
		return err
	}
	resp, err := asking.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("asking the app: status %d", resp.StatusCode)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}
