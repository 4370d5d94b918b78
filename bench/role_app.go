package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// stampSize is the part of a message that says when it was sent: Unix nanoseconds, big endian; 0 if it does not matter.
const stampSize = 8

// appStats is what the app saw since it was reset.
type appStats struct {
	Requests    int   `json:"requests"`
	Done        int   `json:"done"`        // answered 200
	Connections int   `json:"connections"` // opened
	First       int64 `json:"first"`       // Unix nanoseconds of the first request and the last 200
	Last        int64 `json:"last"`
	// Latencies from sent to the request's arrival, of messages that say when they were sent, sorted.
	Latencies []time.Duration `json:"latencies,omitempty"`
}

// app is an HTTP server that does nothing, after a while.
type app struct {
	mu    sync.Mutex
	stats appStats
	delay time.Duration
	every int // request that is answered 503; 0 means none
	can   *capacity
}

// playApp is the app that messages are brought to.
func playApp(ctx context.Context, r *role) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	a := &app{can: newCapacity(0, "")}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /", a.work)
	mux.HandleFunc("POST /reset", a.reset)
	mux.HandleFunc("GET /stats", a.report)
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute, ConnState: func(_ net.Conn, c http.ConnState) {
		if c == http.StateNew {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.stats.Connections++
		}
	}}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	if err := r.ready("http://" + listener.Addr().String()); err != nil {
		return err
	}
	if err := s.Serve(listener); ctx.Err() == nil {
		return err
	}
	return nil
}

func (a *app) work(w http.ResponseWriter, req *http.Request) {
	arrived := time.Now()
	if req.Header.Get("Content-Type") == "application/x-ndjson" {
		a.workBatch(arrived, req)
		return
	}
	var stamp [stampSize]byte
	_, err := io.ReadFull(req.Body, stamp[:])
	if _, rest := io.Copy(io.Discard, req.Body); err != nil || rest != nil {
		http.Error(w, "no whole body", http.StatusBadRequest)
		return
	}
	delay, can, fails := a.arrived(arrived, int64(binary.BigEndian.Uint64(stamp[:])))
	if !can.work(delay) || fails {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stats.Done++
	a.stats.Last = time.Now().UnixNano()
}

// workBatch takes a batch: its lines are messages.
func (a *app) workBatch(arrived time.Time, req *http.Request) {
	delay, _, _ := a.arrived(arrived, 0)
	if delay > 0 {
		time.Sleep(delay)
	}
	lines := 0
	buf := make([]byte, 64<<10)
	for {
		n, err := req.Body.Read(buf)
		lines += bytes.Count(buf[:n], []byte{'\n'})
		if err != nil {
			break
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stats.Done += lines
	a.stats.Last = time.Now().UnixNano()
}

func (a *app) arrived(at time.Time, sent int64) (delay time.Duration, can *capacity, fails bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stats.Requests++; a.stats.Requests == 1 {
		a.stats.First = at.UnixNano()
	}
	if sent != 0 {
		a.stats.Latencies = append(a.stats.Latencies, time.Duration(at.UnixNano()-sent))
	}
	return a.delay, a.can, a.every > 0 && a.stats.Requests%a.every == 0
}

// reset begins anew, with a delay, a failing request out of so many, and what the app can take.
func (a *app) reset(w http.ResponseWriter, req *http.Request) {
	delay, err := time.ParseDuration(req.FormValue("delay"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	every, err := strconv.Atoi(req.FormValue("every"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	most, _ := strconv.Atoi(req.FormValue("most")) // not given: any
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stats, a.delay, a.every, a.can = appStats{}, delay, every, newCapacity(most, req.FormValue("beyond"))
}

// report tells what was seen; the latencies only if they are asked for.
func (a *app) report(w http.ResponseWriter, req *http.Request) {
	a.mu.Lock()
	s := a.stats
	a.mu.Unlock()
	if req.FormValue("latencies") == "" {
		s.Latencies = nil
	}
	s.Latencies = slices.Sorted(slices.Values(s.Latencies)) // a copy: what is appended meanwhile is not seen
	_ = json.NewEncoder(w).Encode(s)
}
