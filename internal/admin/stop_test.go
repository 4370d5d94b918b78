package admin

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/dlq"
)

// piped is a loopback listener whose connections are in memory.
type piped struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *piped) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *piped) Close() error {
	select {
	case <-p.closed:
	default:
		close(p.closed)
	}
	return nil
}

func (p *piped) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9090} }

func (p *piped) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	p.conns <- there
	return here, nil
}

// stuck is a replay that does not end when it is told to.
type stuck struct {
	Changes
	begun, release chan struct{}
}

func (s *stuck) Replay(context.Context, dlq.Filter, dlq.ReplayOptions) (*dlq.Report, error) {
	close(s.begun)
	<-s.release
	return &dlq.Report{}, nil
}

// A stop takes 2 s at most, whatever is under way: one deadline for all that is waited for.
func TestStopIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replay := &stuck{begun: make(chan struct{}), release: make(chan struct{})}
		o := options()
		o.Changes = replay
		ln := &piped{conns: make(chan net.Conn), closed: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- New(o).Serve(ctx, ln) }()
		transport := &http.Transport{DialContext: ln.dial}
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:9090/api/dlq/replay", strings.NewReader("{}"))
			if resp, err := transport.RoundTrip(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}()
		<-replay.begun
		begun := time.Now()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if d := time.Since(begun); d != stopTimeout {
			t.Errorf("the stop took %s, want %s", d, stopTimeout)
		}
		close(replay.release)
		<-asked
		transport.CloseIdleConnections()
	})
}
