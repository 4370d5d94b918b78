package browser

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/app"
	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/localnats"
	"github.com/jetsidecar/jetsidecar/internal/pipeline"
	"github.com/jetsidecar/jetsidecar/internal/telemetry"
)

// images is where the pictures of the documentation go; docs/images makes them anew.
var images = flag.String("images", "", "a directory for the pictures of the documentation; a temporary one without it")

// orders is an app that takes orders, with a fault that can be fixed.
type orders struct{ fixed atomic.Bool }

func (o *orders) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var order struct {
		Product string
		Total   float64
	}
	body, _ := io.ReadAll(r.Body)
	switch err := json.Unmarshal(body, &order); {
	case err != nil:
		o.fail(w, http.StatusBadRequest, "not JSON")
	case order.Total < 0:
		o.fail(w, http.StatusUnprocessableEntity, "total must not be negative")
	case order.Product == "lamp" && !o.fixed.Load():
		o.fail(w, http.StatusInternalServerError, "no price for lamp")
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

func (o *orders) fail(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Sidecar-Reason", why)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":%q}`, why)
}

// realWorld is a NATS server, an app and a whole sidecar.
func realWorld(t *testing.T, o *orders) (url string, publish func(subject, body string)) {
	t.Helper()
	server := localnats.Run(t, localnats.Options{})
	nc, err := nats.Connect(server.URL(), nats.Timeout(patience))
	must(t, err)
	t.Cleanup(nc.Close)
	js, err := natsjs.New(nc, natsjs.WithDefaultTimeout(patience))
	must(t, err)
	_, err = js.CreateStream(t.Context(), natsjs.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	must(t, err)
	service := httptest.NewServer(o)
	t.Cleanup(service.Close)
	loaded, err := config.Load(config.Options{Environ: []string{
		"SIDECAR_NATS_URLS=" + server.URL(), "SIDECAR_APP_URL=" + service.URL, "SIDECAR_ADMIN_LISTEN=127.0.0.1:0",
		"SIDECAR_CONSUMERS_0_STREAM=ORDERS", "SIDECAR_CONSUMERS_0_DURABLE=orders-worker", "SIDECAR_CONSUMERS_0_MAX_DELIVER=3",
		"SIDECAR_CONSUMERS_0_RETRY_INITIAL=20ms", "SIDECAR_CONSUMERS_0_BREAKER_FAILURES=0",
	}})
	must(t, err)
	sidecar, err := app.New(app.Options{Config: &loaded.Config, Version: "test", Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := sidecar.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return "http://" + sidecar.AdminAddr().String(), func(subject, body string) {
		msg := &nats.Msg{Subject: subject, Data: []byte(body), Header: nats.Header{"Content-Type": {"application/json"}, "Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}}
		_, err := js.PublishMsg(t.Context(), msg)
		must(t, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The whole way with nothing made up: messages fail, are found, looked at, replayed in vain, and once the app is fixed for good.
func TestFromFailureToReplay(t *testing.T) {
	o := &orders{}
	url, publish := realWorld(t, o)
	for i := range 12 {
		order := map[string]any{"id": 4200 + i, "customer": fmt.Sprintf("c-%d", i%5), "product": []string{"lamp", "bulb", "shade"}[i%3], "count": 1 + i%4, "total": 19.9}
		if i%4 == 1 {
			order["total"] = -19.9
		}
		body, _ := json.Marshal(order)
		publish([]string{"orders.eu.new", "orders.us.new"}[i%2], string(body))
	}
	publish("orders.us.new", "id=4212;product=lamp")
	b := open(t, url, "#/dlq")
	b.size(1280, 800)
	b.see(".bar", "7 entries")
	b.see(".causes", "max_deliver 500 Internal Server Error")
	b.click("3 max_deliver")
	b.see(".bar", "3 selected")
	b.click("orders.")
	b.see(".entry", "no price for lamp")
	b.see(".entry pre", `"product": "lamp"`)
	b.picture("dlq.png")
	b.click("Replay …")
	b.click("Replay")
	b.see(".entry .outcome", "It failed again (500 Internal Server Error): no price for lamp.")
	b.see(".bar", "3 selected")
	o.fixed.Store(true)
	b.click("Back to the list")
	b.gone(".entry")
	b.see(".letters", "replayed 1×")
	b.click("Replay all 3 …")
	b.click("Replay")
	b.see("dialog", "Done: 3 replayed.")
	b.click("Close")
	b.see("main", "Nothing matches")
	b.click("Clear filters")
	b.see(".bar", "4 entries")
	b.click("Consumers")
	b.see("article", "4 in ORDERS_DLQ")
	b.see(".errors", "no price for lamp")
	b.calm()
}

// The picture of the consumers needs some minutes of traffic, which are made up.
func TestPictureOfTheConsumers(t *testing.T) {
	w := newWorld(t)
	b := opened(t, w.url)
	b.size(1280, 800)
	w.busy()
	var traffic sync.WaitGroup
	traffic.Go(w.busy)
	defer traffic.Wait()
	w.consumers[0].Change(func(s *pipeline.Status, _ *telemetry.Counts, f *[]telemetry.Failure) {
		*f = failures(5)
		s.DLQDepth = 8
	})
	b.goTo("")
	b.see("article", "8 in ORDERS_DLQ")
	b.see(".errors", "inventory is not reachable")
	b.picture("consumers.png")
}

// picture takes one for the documentation.
func (b *tab) picture(name string) {
	b.t.Helper()
	b.calm()
	dir := *images
	if dir == "" {
		dir = b.t.TempDir()
	}
	png := run(b, chromedp.CaptureScreenshot())
	const most = 150_000 // bytes: they are in the repository
	if len(png) > most || len(png) < 10_000 {
		b.t.Errorf("%s has %d bytes", name, len(png))
	}
	must(b.t, os.WriteFile(filepath.Join(dir, name), png, 0o600))
}
