// Package localnats runs real NATS servers in this process, for tests and the demo. The production binary must not link it.
package localnats

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	host       = "127.0.0.1"
	readyLimit = time.Minute

	// Much shorter than a server's own: nobody is to wait for minutes here.
	lameDuckGrace    = 200 * time.Millisecond
	lameDuckDuration = 500 * time.Millisecond
)

// Options say what server to run.
type Options struct {
	// Port to listen on; 0 takes a free one.
	Port int
	// StoreDir is where JetStream keeps its files. Required.
	StoreDir string
	// Name of the server, and its one tag; may be empty.
	Name string
	// Config is a server configuration text: accounts, permissions, limits. What is in Port, StoreDir and Name goes
	// first, the address is 127.0.0.1, and JetStream is on, whatever it says.
	Config string
	// Log gets the server's warnings and errors; nil means none.
	Log func(format string, args ...any)

	cluster server.ClusterOpts
	routes  string
}

// Server is one NATS server with JetStream. Its methods are not to be called at the same time, but for URL.
type Server struct {
	o       Options
	running *server.Server // nil when it is down
}

// Start runs a server and returns when it takes clients.
func Start(o Options) (*Server, error) {
	if o.StoreDir == "" {
		return nil, errors.New("start a nats server: no store directory given")
	}
	if o.Port != 0 {
		return start(o)
	}
	return onFreePorts(func() (*Server, error) {
		var err error
		if o.Port, err = FreePort(); err != nil {
			return nil, err
		}
		return start(o)
	})
}

func start(o Options) (*Server, error) {
	s := &Server{o: o}
	if err := s.up(); err != nil {
		return nil, err
	}
	return s, nil
}

// onFreePorts tries again with others when another process took a port that was free.
func onFreePorts[T any](start func() (T, error)) (T, error) {
	for try := 1; ; try++ {
		t, err := start()
		if err == nil || try == portTries || !inUse(err) {
			return t, err
		}
	}
}

// URL is what clients connect to. It is the same after a restart.
func (s *Server) URL() string { return "nats://" + net.JoinHostPort(host, strconv.Itoa(s.o.Port)) }

// Native is the server itself, nil when it is down.
func (s *Server) Native() *server.Server { return s.running }

// Shutdown stops the server and waits until it is down. Doing so again does nothing.
func (s *Server) Shutdown() {
	if s.running == nil {
		return
	}
	s.running.Shutdown()
	s.running.WaitForShutdown()
	s.running = nil
}

// Restart stops the server if it runs, and runs it again on the same port and files.
func (s *Server) Restart() error {
	s.Shutdown()
	return s.upAgain()
}

// upAgain is up on a port that was this server's before.
func (s *Server) upAgain() error {
	_, err := whileInUse(func() (*Server, error) { return s, s.up() })
	return err
}

func (s *Server) up() error {
	if err := s.launch(); err != nil {
		return err
	}
	if err := s.await(); err != nil {
		s.Shutdown()
		return err
	}
	return nil
}

// Reload lets the running server go by another configuration text: changed users, permissions, account limits. It is also what
// a restart goes by.
func (s *Server) Reload(config string) error {
	s.o.Config = config
	opts, err := s.options()
	if err != nil {
		return err
	}
	// The server reads its options without a lock when it makes a stream (stream.go, addStreamWithAssignmentAndMode). This takes the
	// lock that it has let go of since, so that such a read is not beside the write for streams that are there.
	if _, err := s.running.Jsz(&server.JSzOptions{Accounts: true, Streams: true}); err != nil {
		return fmt.Errorf("look at the nats server's streams: %w", err)
	}
	// It also reads them so for each direct get. This takes the lock that each connection has let go of since it asked for one.
	if _, err := s.running.Connz(nil); err != nil {
		return fmt.Errorf("look at the nats server's connections: %w", err)
	}
	if err := s.running.ReloadOptions(opts); err != nil {
		return fmt.Errorf("reload the nats server: %w", err)
	}
	return nil
}

// Retire lets the server go down in lame-duck mode: it hands leadership over and tells its clients to move before it closes
// their connections. Retire returns when it is down.
func (s *Server) Retire() {
	s.running.LameDuckShutdown()
	s.running.WaitForShutdown()
	s.running = nil
}

func (s *Server) options() (*server.Options, error) {
	opts := &server.Options{}
	if s.o.Config != "" {
		if err := opts.ProcessConfigString(s.o.Config); err != nil {
			return nil, fmt.Errorf("read the nats server configuration: %w", err)
		}
	}
	opts.Host, opts.Port = host, s.o.Port
	opts.JetStream, opts.StoreDir = true, s.o.StoreDir
	opts.NoSigs = true
	opts.LameDuckGracePeriod, opts.LameDuckDuration = lameDuckGrace, lameDuckDuration
	if s.o.Name != "" {
		opts.ServerName = s.o.Name
		opts.Tags = []string{s.o.Name}
	}
	if s.o.routes != "" {
		opts.Cluster = s.o.cluster
		opts.Routes = server.RoutesFromStr(s.o.routes)
	}
	return opts, nil
}

// launch starts the server and does not wait for it.
func (s *Server) launch() error {
	opts, err := s.options()
	if err != nil {
		return err
	}
	running, err := server.NewServer(opts)
	if err != nil {
		return fmt.Errorf("build the nats server: %w", err)
	}
	running.SetLoggerV2(newLog(s.o.Log), false, false, false)
	running.Start()
	s.running = running
	return nil
}

// await waits until the server takes clients.
func (s *Server) await() error {
	deadline := time.Now().Add(readyLimit)
	for !s.running.ReadyForConnections(50 * time.Millisecond) {
		if why := s.running.Logger().(*log).fatal.Load(); why != nil {
			return fmt.Errorf("start the nats server on port %d: %s", s.o.Port, *why)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("start the nats server on port %d: not ready in %v", s.o.Port, readyLimit)
		}
	}
	if !s.running.JetStreamEnabled() {
		return errors.New("start the nats server: jetstream is not on")
	}
	return nil
}
