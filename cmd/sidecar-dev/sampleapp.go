package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const maxOrder = 1 << 20 // bytes of a body that the sample app reads as an order

// sampleApp is an app as users write them: an HTTP server that knows nothing of NATS.
type sampleApp struct {
	server *http.Server
	url    string
	ended  chan error
}

// startSampleApp serves the sample app on a free port of this machine.
func startSampleApp() (*sampleApp, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the sample app: %w", err)
	}
	a := &sampleApp{
		server: &http.Server{
			Handler: http.HandlerFunc(receive), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
			ErrorLog: log.New(io.Discard, "", 0),
		},
		url:   "http://" + ln.Addr().String(),
		ended: make(chan error, 1),
	}
	go func() { a.ended <- a.server.Serve(ln) }()
	return a, nil
}

// close ends the app.
func (a *sampleApp) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if a.server.Shutdown(ctx) != nil {
		a.server.Close()
	}
	<-a.ended //nolint:errcheck // it is http.ErrServerClosed
}

// receive answers one message: what it says decides, and how often it was delivered.
func receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxOrder))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		refuse(w, http.StatusRequestEntityTooLarge, "more than an order can have")
		return
	case err != nil:
		return // the sender went away
	}
	var o order
	if json.Unmarshal(body, &o) != nil {
		o = order{} // something else: accepted
	}
	work(r.Context(), r.Header.Get("Idempotency-Key"))
	delivered, _ := strconv.Atoi(r.Header.Get("Nats-Num-Delivered")) // 0 if it did not come from a sidecar
	answer(w, o, delivered)
}

func answer(w http.ResponseWriter, o order, delivered int) {
	f := fateOf(o.Order)
	switch {
	case o.Test:
		w.Header().Set("Sidecar-Action", "drop")
		refuse(w, http.StatusOK, "a test order")
	case strings.HasPrefix(o.Total.String(), "-"):
		refuse(w, http.StatusUnprocessableEntity, "the total is negative")
	case o.Customer != nil && *o.Customer == "":
		refuse(w, http.StatusUnprocessableEntity, "the customer is missing")
	case f == hopeless:
		refuse(w, http.StatusServiceUnavailable, "no stock in any warehouse")
	case f == busy && delivered == 1:
		refuse(w, http.StatusServiceUnavailable, "the warehouse is busy")
	case f == busyLong && delivered <= 2:
		w.Header().Set("Retry-After", "2")
		refuse(w, http.StatusServiceUnavailable, "closed, Retry-After: 2")
	default:
		w.WriteHeader(http.StatusOK)
	}
}

func refuse(w http.ResponseWriter, status int, reason string) {
	w.Header().Set("Sidecar-Reason", reason)
	http.Error(w, reason, status)
}

// work takes a few milliseconds, for some orders more.
func work(ctx context.Context, key string) {
	h := fnv.New32a()
	io.WriteString(h, key)
	sum := h.Sum32()
	took := time.Duration(2+sum%20) * time.Millisecond
	if sum%13 == 0 {
		took *= 5
	}
	timer := time.NewTimer(took)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
