package browser

import (
	"context"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/admin"
	"github.com/jetsidecar/jetsidecar/internal/admin/admintest"
	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/localnats"
	"github.com/jetsidecar/jetsidecar/internal/pipeline"
	"github.com/jetsidecar/jetsidecar/internal/telemetry"
)

// world is an admin listener with consumers and dead letters that are made up.
type world struct {
	t         *testing.T
	letters   *admintest.Letters
	consumers []*admintest.Consumer
	token     string
	nats, app atomic.Pointer[string] // what is wrong with it; nil: nothing
	address   string
	url       string
	stop      func()
	beat      int // of busy
}

func newWorld(t *testing.T, change ...func(*world)) *world {
	t.Helper()
	port, err := localnats.FreePort() // the browser tries it while nothing listens there: it is to be nobody else's then
	must(t, err)
	w := &world{
		t: t, letters: admintest.NewLetters("ORDERS_DLQ"), consumers: []*admintest.Consumer{admintest.NewConsumer("ORDERS", "orders-worker")},
		address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
	}
	for _, f := range change {
		f(w)
	}
	w.start()
	return w
}

// start serves, also after a stop: at the same address.
func (w *world) start() {
	w.t.Helper()
	var consumers []admin.Consumer
	for _, c := range w.consumers {
		consumers = append(consumers, c.Admin())
	}
	s := admin.New(admin.Options{
		Config: config.Admin{Token: w.token}, Ready: w.readiness, Consumers: consumers, Letters: w.letters, Changes: w.letters,
		Metrics: http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) { io.WriteString(out, "metrics\n") }),
		Version: "test", Log: slog.New(slog.DiscardHandler), HistoryStep: 50 * time.Millisecond,
	})
	ln, err := net.Listen("tcp", w.address)
	if err != nil {
		w.t.Fatal(err)
	}
	w.url = "http://" + w.address
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Serve(ctx, ln); err != nil {
			w.t.Error(err)
		}
	})
	w.stop = sync.OnceFunc(func() { cancel(); serving.Wait() })
	w.t.Cleanup(w.stop)
}

func (w *world) readiness() admin.Readiness {
	nats, app := w.nats.Load(), w.app.Load()
	detail := ""
	if app != nil {
		detail = *app
	}
	var statuses []pipeline.Status
	for _, c := range w.consumers {
		statuses = append(statuses, c.Status())
	}
	r := admin.Checks(nats == nil, app == nil, detail, statuses)
	if nats != nil {
		r.Checks[0].Detail = *nats
	}
	return r
}

// busy lets the consumers look as if they worked, for pictures; it returns when their history is full.
func (w *world) busy() {
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for range 130 {
		i := w.beat
		w.beat++
		x := float64(i)
		for j, c := range w.consumers {
			c.Change(func(s *pipeline.Status, n *telemetry.Counts, _ *[]telemetry.Failure) {
				n.Ack += uint64(12 + 5*math.Sin(x/9+float64(j)) + 3*math.Sin(x/2.3))
				n.InFlight = int64(8 + 5*math.Sin(x/7+float64(j)))
				n.Requests = n.Ack
				if i > 60 && i%3 == 0 {
					n.Retry += uint64(1 + i%4)
				}
				if i > 80 && i%11 == 0 {
					n.DLQ++
				}
				s.Pending = uint64(240 + 180*math.Sin(x/20) + 60*math.Sin(x/6))
				s.Leased, s.AckPending = 24, 24+uint64(max(0, 90+90*math.Sin(x/30)))
			})
		}
		<-tick.C
	}
}
