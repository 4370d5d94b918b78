// Package admin answers how the sidecar is: health and readiness for the orchestrator, metrics, profiles if asked for, and for
// people a web page and the API it uses, which also show the dead letters and change them.
package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

const (
	headerTimeout = 5 * time.Second
	readTimeout   = 2 * time.Minute // its end also ends what is still being answered
	writeTimeout  = 2 * time.Minute // a profile takes 30 s by default
	idleTimeout   = 30 * time.Second
	maxHeader     = 16 << 10 // bytes
	stopTimeout   = 2 * time.Second
)

// Options are what a Server is made of.
type Options struct {
	Config    config.Admin
	Ready     func() Readiness // asked at each /readyz, from any goroutine
	Metrics   http.Handler     // GET /metrics
	Consumers []Consumer
	Letters   Letters
	Changes   Changes
	Version   string
	Log       *slog.Logger
	// HistoryStep is the time between two points of the history, of which there are 60; 0 is 5 s. Rates are over 12 steps.
	HistoryStep time.Duration
}

// Server is the admin listener's.
type Server struct {
	config    config.Admin
	ready     func() Readiness
	metrics   http.Handler
	consumers []*watched
	letters   Letters
	changes   Changes
	version   string
	log       *slog.Logger
	step      time.Duration

	loopback atomic.Bool // the listener being served is reached from this machine only
	hub      hub
	depths   depths

	streams, reads, changing jobs     // requests by kind
	stops                    sync.Map // of the changes of many entries, by their names: context.CancelFunc

	open connections
}

// New builds a Server. It starts nothing: see Serve.
func New(o Options) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		config: o.Config, ready: o.Ready, metrics: o.Metrics, letters: o.Letters, changes: o.Changes, version: o.Version, log: o.Log,
		step: o.HistoryStep,
	}
	if s.step == 0 {
		s.step = historyStep
	}
	for _, c := range o.Consumers {
		s.consumers = append(s.consumers, &watched{Consumer: c, schedule: scheduleOf(c.Config)})
	}
	return s
}

// Serve answers requests on ln until ctx ends; those then under way get 2 s to end in all, and those of the API are told at
// once. It closes ln. It returns nil after ctx ended, and otherwise why it could not go on.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	s.loopback.Store(isLoopback(ln.Addr()))
	watching, unwatch := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { s.watch(watching) })
	defer watch.Wait()
	defer unwatch()
	server := s.server()
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(ln) }()
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	s.StopLong()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err != nil || server.Shutdown(grace) != nil {
		server.Close()
	}
	if err == nil {
		err = <-failed
	}
	s.join(grace)
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the admin listener: %w", err)
	}
	return nil
}

// StopLong ends event streams, replays and removals, and refuses new ones: the sidecar is stopping. What else there is goes on.
func (s *Server) StopLong() {
	s.streams.stop()
	s.reads.stop()
	s.changing.stop()
}

// join waits for the requests of the API until ctx ends: a replay that waits for the app's answer is as safe as when it is killed.
func (s *Server) join(ctx context.Context) {
	for _, j := range []*jobs{&s.streams, &s.reads, &s.changing} {
		select {
		case <-j.idle():
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) server() *http.Server {
	return &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		ConnState:         s.open.changed,
		ConnContext:       s.open.of,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // of clients: scans, broken connections
	}
}

// isLoopback reports whether what listens on a can be reached from this machine only.
func isLoopback(a net.Addr) bool {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	at, err := netip.ParseAddrPort(a.String())
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// Handler answers without a listener, and as if on one that is not loopback, unless Serve runs.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/livez", livez)
	mux.HandleFunc("/readyz", s.readyz)
	mux.HandleFunc("/{$}", s.index)
	mux.HandleFunc("/assets/{name}", s.asset)
	if s.metrics != nil {
		mux.Handle("/metrics", s.metrics)
	}
	if s.config.PProf {
		mux.Handle("/debug/pprof/", s.private(profiles()))
	}
	mux.Handle("/api/", s.api())
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no such path", http.StatusNotFound)
	})
	return s.plain(mux)
}

// plain sets the headers of every answer and refuses what changes things, and what has a body: only the API does that, and takes one.
func (s *Server) plain(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		if hasBody(r) {
			unread(w)
		} else {
			s.open.asked(r.Context())
		}
		switch outside := !strings.HasPrefix(r.URL.Path, "/api/"); {
		case outside && r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		case outside && hasBody(r):
			http.Error(w, noBody, http.StatusBadRequest)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
