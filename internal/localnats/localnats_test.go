package localnats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func connect(t *testing.T, url string, options ...nats.Option) (*nats.Conn, natsjs.JetStream) {
	t.Helper()
	nc, err := nats.Connect(url, append(options, nats.Timeout(time.Minute))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// stored makes a file stream with one message, and returns how many messages it has.
func stored(t *testing.T, js natsjs.JetStream, replicas int) uint64 {
	t.Helper()
	ctx := within(t)
	s, err := js.CreateOrUpdateStream(ctx, natsjs.StreamConfig{Name: "S", Subjects: []string{"s"}, Storage: natsjs.FileStorage, Replicas: replicas})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(ctx, "s", []byte("x")); err != nil {
		t.Fatal(err)
	}
	return count(t, s)
}

func count(t *testing.T, s natsjs.Stream) uint64 {
	t.Helper()
	info, err := s.Info(within(t))
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Msgs
}

func TestServerKeepsPortAndFilesOverARestart(t *testing.T) {
	s := Run(t, Options{})
	url := s.URL()
	_, js := connect(t, url)
	stored(t, js, 1)

	s.Shutdown()
	s.Shutdown()
	if _, err := nats.Connect(url); err == nil {
		t.Fatal("a server that is down takes clients")
	}
	for range 2 { // from down, and from up
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	if s.URL() != url {
		t.Errorf("URL %s, before the restart %s", s.URL(), url)
	}
	_, js = connect(t, url)
	stream, err := js.Stream(within(t), "S")
	if err != nil {
		t.Fatal(err)
	}
	if n := count(t, stream); n != 1 {
		t.Errorf("%d messages after the restart, want 1", n)
	}
}

// A process that is being started has a copy of the server's listener for a moment after the server closed it.
func TestRestartWaitsForItsPort(t *testing.T) {
	tried := make(chan struct{}, 100)
	s := Run(t, Options{Log: func(format string, args ...any) {
		if strings.Contains(fmt.Sprintf(format, args...), "address already in use") {
			tried <- struct{}{}
		}
	}})
	s.Shutdown()
	copied, err := Listen("tcp", strings.TrimPrefix(s.URL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	restarted := make(chan error, 1)
	go func() { restarted <- s.Restart() }()
	<-tried
	copied.Close()
	if err := <-restarted; err != nil {
		t.Fatal(err)
	}
	connect(t, s.URL())
}

func TestServerListensOnLoopbackOnly(t *testing.T) {
	s := Run(t, Options{Config: `listen: "0.0.0.0:1"`})
	host, port, err := net.SplitHostPort(strings.TrimPrefix(s.URL(), "nats://"))
	if err != nil || host != "127.0.0.1" {
		t.Errorf("URL %s (%v), want 127.0.0.1", s.URL(), err)
	}
	if n, _ := strconv.Atoi(port); n < 10000 || n >= 32768 {
		t.Errorf("port %s: outgoing connections may take it", port)
	}
	if a := s.Native().Addr().String(); a != host+":"+port {
		t.Errorf("listens on %s, URL says %s:%s", a, host, port)
	}
}

func TestServerTakesAConfiguration(t *testing.T) {
	s := Run(t, Options{Config: `
		max_payload: 1000
		accounts { A: { jetstream: enabled, users: [{user: a, password: p, permissions: {publish: {deny: "no"}}}] } }
	`})
	if _, err := nats.Connect(s.URL()); err == nil {
		t.Error("a client without a user is let in")
	}
	denied := make(chan error, 1)
	nc, js := connect(t, s.URL(), nats.UserInfo("a", "p"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		denied <- err
	}))
	if nc.MaxPayload() != 1000 {
		t.Errorf("max payload %d, want 1000", nc.MaxPayload())
	}
	stored(t, js, 1)
	if err := nc.Publish("no", nil); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-denied:
		if !strings.Contains(err.Error(), "ermissions") {
			t.Error(err)
		}
	case <-within(t).Done():
		t.Error("publishing to a denied subject is no error")
	}
}

func TestStartFaults(t *testing.T) {
	running := Run(t, Options{})
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(running.URL(), "nats://"))
	taken, _ := strconv.Atoi(port)
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"no store directory", Options{}, "no store directory"},
		{"configuration that is none", Options{StoreDir: t.TempDir(), Config: "accounts {"}, "configuration"},
		{"port taken", Options{StoreDir: t.TempDir(), Port: taken}, "address already in use"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Start(c.o)
			if err == nil || !strings.Contains(err.Error(), c.want) || s != nil {
				t.Errorf("Start = %v, %v; want an error about %q", s, err, c.want)
			}
		})
	}
}

func TestClusterLosesAndRegainsAServer(t *testing.T) {
	c := RunCluster(t, 3)
	nc, js := connect(t, c.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if n := stored(t, js, 3); n != 1 {
		t.Fatalf("%d messages, want 1", n)
	}

	leader := c.Leader()
	c.Stop(leader)
	if err := c.Await(); err != nil {
		t.Fatal(err)
	}
	if now := c.Leader(); now < 0 || now == leader {
		t.Errorf("leader %d after %d was stopped", now, leader)
	}
	if c.Server(leader).Native() != nil {
		t.Error("the stopped server still runs")
	}

	if err := c.Start(leader); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(leader); err != nil {
		t.Errorf("starting a running server: %v", err)
	}
	if err := c.Await(); err != nil {
		t.Fatal(err)
	}
	if got := len(c.Server(c.Leader()).Native().JetStreamClusterPeers()); got != 3 {
		t.Errorf("%d peers, want 3", got)
	}
	nc.Close()
	_, js = connect(t, c.URLs()[leader])
	stream, err := js.Stream(within(t), "S")
	if err != nil {
		t.Fatal(err)
	}
	if n := count(t, stream); n != 1 {
		t.Errorf("%d messages after the restart, want 1", n)
	}
}

func TestOnFreePortsTriesAgainOnlyIfAPortIsTaken(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   string
		tries int
	}{
		{"taken", "listen: address already in use", portTries},
		{"other", "disk full", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			tries := 0
			_, err := onFreePorts(func() (int, error) {
				tries++
				return 0, errors.New(c.err)
			})
			if err == nil || tries != c.tries {
				t.Errorf("%d tries, error %v; want %d and an error", tries, err, c.tries)
			}
		})
	}
}
