package test

import (
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

// A sidecar's allocations a message are counted: other than times they are the same on every machine. 3 of them are nats.go's for the message, and 3 net/http's.
// What it does now and then, however many messages there are, comes on top, and is more a message the slower they go: these tests run beside no
// others, and of some rounds the cheapest counts.
//
// With the default configuration an ack that asks for the next message says how many bytes it may have where there is no room for
// the largest: that is answered by a status more, which costs nats.go 7. How many do depends on how busy the machine is.
func TestAllocationsOfAMessage(t *testing.T) {
	for _, c := range []struct {
		name string
		most float64
		env  []string
	}{
		{"by default", 20, nil},
		{"with room for large messages", 12.5, []string{"SIDECAR_CONSUMERS_0_MAX_BYTES=64MiB"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newBacklog(t, c.env...)
			w.drain(2000) // connections, pools and metric series are made
			w.cheapest(3000, c.most)
		})
	}
}

// mostBatchAllocations is that for a message in a batch of hundreds. 6 of them are nats.go's. It is about 8.
const mostBatchAllocations = 9

func TestAllocationsOfAMessageInABatch(t *testing.T) {
	w := newBacklog(t, "SIDECAR_CONSUMERS_0_BATCH_MAX_MESSAGES=300")
	w.drain(5000)
	w.cheapest(6000, mostBatchAllocations)
}

// cheapest holds that in the cheapest of five rounds of n messages each costs so many allocations at most.
func (w *backlog) cheapest(n int, most float64) {
	w.t.Helper()
	var rounds []float64
	for range 5 {
		rounds = append(rounds, w.drain(n).allocations)
	}
	if slices.Min(rounds) > most {
		w.t.Errorf("%.2f allocations a message in the rounds, want %g at most", rounds, most)
	} else {
		w.t.Logf("%.2f allocations a message in the rounds", rounds)
	}
}

// BenchmarkMessage is the sidecar's own cost of a message; server, app and publisher are in the process of the benchmark.
func BenchmarkMessage(b *testing.B) {
	w := newBacklog(b)
	w.drain(2000)
	c := w.drain(b.N)
	b.ReportMetric(c.allocations, "sidecar-allocs/op")
	b.ReportMetric(c.bytes, "sidecar-B/op")
	b.ReportMetric(c.cpu*1e6, "sidecar-cpu-µs/op")
}

// cost is what a message costs: objects and bytes that are allocated, and seconds of CPU.
type cost struct{ allocations, bytes, cpu float64 }

// backlog is what a sidecar in a process of its own works through.
type backlog struct {
	t     testing.TB
	js    natsjs.JetStream
	admin adminClient
	done  uint64 // messages
}

func newBacklog(t testing.TB, env ...string) *backlog {
	t.Helper()
	server := localnats.Run(t, localnats.Options{})
	nc, err := nats.Connect(server.URL(), nats.Timeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	t.Cleanup(func() { nc.Close(); <-closed })
	js, err := natsjs.New(nc, natsjs.WithDefaultTimeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := within()
	defer cancel()
	if _, err := js.CreateStream(ctx, natsjs.StreamConfig{Name: stream, Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
	app := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	t.Cleanup(app.Close)
	p := start(t, append(env, "SIDECAR_NATS_URLS="+server.URL(), "SIDECAR_APP_URL="+app.URL, "SIDECAR_ADMIN_LISTEN=127.0.0.1:0",
		"SIDECAR_CONSUMERS_0_STREAM="+stream, "SIDECAR_CONSUMERS_0_DURABLE="+durable)...)
	w := &backlog{t: t, js: js}
	eventually(t, func() bool {
		for _, line := range p.log.lines("started") {
			address, _ := line["admin"].(string)
			w.admin = adminClient(address)
		}
		return w.admin != "" && w.admin.status("/readyz") == http.StatusOK
	}, p.log.String)
	return w
}

// drain publishes so many messages of 1 KiB and waits until all are acked.
func (w *backlog) drain(n int) cost {
	w.t.Helper()
	before := w.spent()
	body := make([]byte, 1024)
	for range n {
		if _, err := w.js.PublishAsync("orders.new", body, natsjs.WithStallWait(patience)); err != nil {
			w.t.Fatal(err)
		}
	}
	w.done += uint64(n)
	// The server is asked, not the sidecar: that would cost it allocations.
	dwindles(w.t, func() int {
		ctx, cancel := briefly()
		defer cancel()
		c, err := w.js.Consumer(ctx, stream, durable)
		if err != nil {
			return math.MaxInt
		}
		return int(w.done - c.CachedInfo().AckFloor.Stream)
	}, text("all are acked"))
	after := w.spent()
	return cost{
		allocations: (after.allocations - before.allocations) / float64(n),
		bytes:       (after.bytes - before.bytes) / float64(n),
		cpu:         (after.cpu - before.cpu) / float64(n),
	}
}

func (w *backlog) spent() cost {
	text := w.admin.text("/metrics") // once: it costs allocations too
	return cost{
		allocations: metricOf(text, "go_memstats_mallocs_total"),
		bytes:       metricOf(text, "go_memstats_alloc_bytes_total"),
		cpu:         metricOf(text, "process_cpu_seconds_total"),
	}
}
