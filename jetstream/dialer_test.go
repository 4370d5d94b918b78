package jetstream

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// refuser is a server that takes connections and ends each: it hears whether the client closes its side.
type refuser struct {
	ln       net.Listener
	accepted chan net.Conn
	closed   []chan struct{} // by the client
}

// welcome lets a client connect.
const welcome = "INFO {\"server_id\":\"S\",\"version\":\"2.15.2\",\"proto\":1,\"headers\":true,\"max_payload\":1048576}\r\n"

// serve ends n connections, the first of them after a handshake if connects.
func (r *refuser) serve(n int, connects bool, refusal string) {
	var all sync.WaitGroup
	defer all.Wait()
	for i := range n {
		conn, err := r.ln.Accept()
		if err != nil {
			return
		}
		r.accepted <- conn
		all.Go(func() {
			defer close(r.closed[i])
			defer conn.Close()
			in := bufio.NewReader(conn)
			if i == 0 && connects {
				io.WriteString(conn, welcome)
				for line := ""; line != "PING\r\n"; {
					if line, err = in.ReadString('\n'); err != nil {
						return
					}
				}
				io.WriteString(conn, "PONG\r\n")
			} else {
				io.WriteString(conn, refusal)
			}
			conn.(*net.TCPConn).CloseWrite()
			io.Copy(io.Discard, in) // until the client closes
		})
	}
}

// A client that is refused again and again, or whose connections are closed as a proxy without its backend does, leaves none of them open.
func TestRefusedConnectionsAreClosed(t *testing.T) {
	const tries = 30
	for name, c := range map[string]struct {
		connects bool
		refusal  string
	}{
		"closed, at first":   {false, ""},
		"closed, later":      {true, ""},
		"password, at first": {false, welcome + "-ERR 'Authorization Violation'\r\n"},
		"password, later":    {true, welcome + "-ERR 'Authorization Violation'\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			r := &refuser{ln: ln, accepted: make(chan net.Conn, tries)}
			for range tries {
				r.closed = append(r.closed, make(chan struct{}))
			}
			var serving sync.WaitGroup
			serving.Go(func() { r.serve(tries, c.connects, c.refusal) })
			defer serving.Wait()
			defer ln.Close()
			conn := newConn(Config{}, quiet())
			opts, err := conn.options(Config{})
			if err != nil {
				t.Fatal(err)
			}
			conn.dialer.pace.delay = func(int) time.Duration { return time.Millisecond }
			if err := conn.start(Config{URLs: []string{"nats://" + ln.Addr().String()}}, opts); err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			for i := range tries {
				select {
				case at := <-r.accepted:
					defer at.Close() // also if the client does not
				case <-time.After(patience):
					t.Fatalf("%d connections", i)
				}
			}
			for i := range tries - 1 {
				select {
				case <-r.closed[i]:
				case <-time.After(patience):
					t.Fatalf("connection %d of %d is open yet", i+1, tries)
				}
			}
		})
	}
}

// What is said first of a server that is not there is the cause, not that there is none.
func TestCauseAtFirst(t *testing.T) {
	var log lockedText
	c, err := Dial(Config{URLs: []string{nobodyThere(t)}}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(patience); !strings.Contains(log.String(), "not reachable") && time.Now().Before(end); {
		<-look.C
	}
	c.Close()
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "connection refused") {
		t.Errorf("log:\n%s", text)
	}
}

// lockedText is a log that may be read while it is written.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A server that is configured twice, in two ways, does not keep the others from being tried.
func TestEachServerIsTried(t *testing.T) {
	server := func(u string) nats.Server {
		parsed, err := url.Parse(u)
		if err != nil {
			t.Fatal(err)
		}
		return nats.Server{URL: parsed}
	}
	a, b := server("nats://a:4222"), server("nats://b:4222")
	for _, pool := range [][]nats.Server{{a, a, b}, {a, b, a}, {b, a, a}, {b}} {
		var d dialer
		d.begin()
		tried := map[string]bool{}
		for range len(pool) {
			chosen, _ := d.choose(slices.Clone(pool), nats.ServerInfo{})
			d.address = chosen.URL.Host
			tried[d.address] = true
		}
		if !tried["b:4222"] {
			t.Errorf("of %v tried were %v", pool, tried)
		}
		d.end()
	}
}
