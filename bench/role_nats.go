package main

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// playNATS is a NATS server with JetStream, as it comes, with its files in a directory.
func playNATS(ctx context.Context, r *role) error {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: r.text("dir"), NoSigs: true, NoLog: true,
	})
	if err != nil {
		return err
	}
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	if !s.ReadyForConnections(startLimit) {
		return errors.New("not ready")
	}
	if err := r.ready(s.Addr().String()); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// proxyProcessors are more than the connections of a forwarder have directions, as a rule.
const proxyProcessors = 8

// playProxy stands between a client and an address, and holds back each byte for a time, in each direction.
func playProxy(ctx context.Context, r *role) error {
	// A sleep (see there) keeps a processor of the runtime's until that looks, up to 10 ms later: the reading is to have some all the same.
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + proxyProcessors)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	if err := r.ready(listener.Addr().String()); err != nil {
		return err
	}
	for {
		in, err := listener.Accept()
		if err != nil {
			return nil // closed
		}
		out, err := net.Dial("tcp", r.text("to"))
		if err != nil {
			in.Close()
			continue
		}
		go pass(in, out, r.duration("delay"))
		go pass(out, in, r.duration("delay"))
	}
}

// chunk is what was read at once.
type chunk struct {
	bytes []byte
	due   time.Time
}

var chunks = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// sleep is time.Sleep by the kernel's fine timer: that of the runtime is a millisecond late in a process that does little, which is
// much of what is waited for here.
func sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	rest := syscall.NsecToTimespec(d.Nanoseconds())
	for errors.Is(syscall.Nanosleep(&rest, &rest), syscall.EINTR) {
	}
}

// pass copies one direction, late.
func pass(from, to net.Conn, delay time.Duration) {
	defer from.Close()
	defer to.Close()
	late := make(chan chunk, 4096)
	go func() {
		defer close(late)
		for {
			b := *chunks.Get().(*[]byte)
			n, err := from.Read(b)
			if n > 0 {
				late <- chunk{b[:n], time.Now().Add(delay)}
			}
			if err != nil {
				return
			}
		}
	}()
	var failed error
	for c := range late {
		sleep(time.Until(c.due))
		if failed == nil {
			if _, failed = to.Write(c.bytes); failed != nil {
				from.Close() // ends the reading
			}
		}
		b := c.bytes[:cap(c.bytes)]
		chunks.Put(&b)
	}
}
