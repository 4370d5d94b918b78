package admin

import (
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// secured are options with a token, and what a request says that knows it.
func secured() (o Options, token string) {
	o = options()
	o.Config = config.Admin{Token: "secret", PProf: true}
	return o, "Authorization: Bearer secret\r\n"
}

// A request whose body is not wanted, or may not be sent, is answered before the body comes, and nobody waits for that afterwards.
func TestBodyIsNotWaitedFor(t *testing.T) {
	o, token := secured()
	addr := served(t, o)
	for _, c := range []struct {
		request string // the request line, and what it says of itself
		status  int
	}{
		{"GET /livez", 400},
		{"HEAD /livez", 400},
		{"GET /livez HTTP/1.0\r\nConnection: keep-alive", 400},
		{"GET /livez HTTP/1.1\r\nExpect: 100-continue", 400},
		{"GET /readyz", 400},
		{"GET /metrics", 400},
		{"GET /", 400},
		{"GET /assets/app.js", 400},
		{"GET /nothing", 400},
		{"GET /debug/pprof/", 400},
		{"POST /livez", 405},
		{"GET /api", 400},
		{"GET /api/../livez", 307}, // to /livez
		{"POST /api/dlq/rm", 401},
		{"GET /api/consumers HTTP/1.1\r\nSec-Fetch-Site: cross-site", 403},
		{"GET /api/consumers HTTP/1.1\r\n" + token, 400},
		{"GET /api/events HTTP/1.1\r\n" + token, 400},
		{"GET /api/dlq HTTP/1.1\r\n" + token, 400},
		{"GET /api/dlq/stats HTTP/1.1\r\n" + token, 400},
		{"GET /api/dlq/D/1 HTTP/1.1\r\n" + token, 400},
		{"DELETE /api/dlq/D/1 HTTP/1.1\r\n" + token, 400},
		{"PUT /api/dlq HTTP/1.1\r\n" + token, 405},
		{"POST /api/nothing HTTP/1.1\r\n" + token, 404},
		{"POST /api/dlq/rm HTTP/1.1\r\nContent-Type: text/plain\r\n" + token, 415},
	} {
		for name, body := range map[string]string{
			"nothing of it":      "Content-Length: 10\r\n\r\n",
			"some of it":         "Content-Length: 10\r\n\r\n{",
			"some of a lot":      "Content-Length: 10000000000\r\n\r\n{",
			"no chunk of it":     "Transfer-Encoding: chunked\r\n\r\n",
			"some of a chunk":    "Transfer-Encoding: chunked\r\n\r\na\r\n{",
			"what is no chunk":   "Transfer-Encoding: chunked\r\n\r\n?",
			"all but its end":    "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
			"all but a trailer":  "Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n2\r\n{}\r\n0\r\n",
			"what is not all of": "Content-Length: 3\r\n\r\n{}",
		} {
			if strings.Contains(c.request, "HTTP/1.0") && strings.Contains(body, "chunked") {
				continue // there are none
			}
			t.Run(c.request+" "+name, func(t *testing.T) {
				t.Parallel()
				conn := connect(t, addr)
				request := c.request
				if !strings.Contains(request, " HTTP/") {
					request += " HTTP/1.1"
				}
				conn.send(strings.TrimSuffix(request, "\r\n") + "\r\nHost: localhost\r\n" + body)
				method, _, _ := strings.Cut(c.request, " ")
				if got := conn.statusOf(method); got != c.status {
					t.Errorf("%d, want %d", got, c.status)
				}
				conn.ends()
			})
		}
	}
}

// ends waits for the connection's end.
func (c *client) ends() {
	c.t.Helper()
	if status := c.status(); status != 0 {
		c.t.Errorf("%d to nothing", status)
	}
}

// A wanted body is waited for only for a while, however slowly it comes.
func TestWantedBodyIsNotWaitedForLong(t *testing.T) {
	for name, c := range map[string]struct{ length, part string }{
		"nothing comes":         {"Content-Length: 1000", ""},
		"it comes slowly":       {"Content-Length: 1000", " "},
		"chunks come slowly":    {"Transfer-Encoding: chunked", "1\r\n \r\n"},
		"no chunk comes at all": {"Transfer-Encoding: chunked", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, token := secured()
				ln, end := overPipes(t, o)
				conn := ln.connect(t)
				conn.send("POST /api/dlq/stop HTTP/1.1\r\nHost: localhost\r\n" + token + c.length + "\r\n\r\n")
				began := time.Now()
				var sending sync.WaitGroup
				defer sending.Wait()
				defer end()
				defer conn.Close()
				sending.Go(func() {
					for c.part != "" {
						time.Sleep(300 * time.Millisecond)
						if _, err := io.WriteString(conn, c.part); err != nil {
							return
						}
					}
				})
				if got := conn.status(); got != 408 {
					t.Errorf("%d, want 408", got)
				}
				if took := time.Since(began); took != bodyTimeout {
					t.Errorf("it is answered after %s, want %s", took, bodyTimeout)
				}
				conn.ends()
			})
		})
	}
}

// A body that takes a little while is read, and the connection takes another request after it, whenever that comes.
func TestWantedBodyIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, token := secured()
		ln, end := overPipes(t, o)
		defer end()
		conn := ln.connect(t)
		defer conn.Close()
		for range 3 {
			conn.send("POST /api/dlq/stop HTTP/1.1\r\nHost: localhost\r\n" + token + "Content-Length: 14\r\n\r\n")
			time.Sleep(bodyTimeout - time.Second)
			conn.send(`{"change":"x"}`)
			if got := conn.status(); got != 404 {
				t.Fatalf("%d, want 404: there is no such change", got)
			}
			time.Sleep(idleTimeout - time.Second)
		}
	})
}

// A connection whose request lacks some of its body makes way like one whose request lacks some of its header.
func TestConnectionsWithoutTheirBodiesMakeWay(t *testing.T) {
	o, token := secured()
	for name, request := range map[string]string{
		"unwanted": "GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n",
		"wanted":   "POST /api/dlq/rm HTTP/1.1\r\nHost: localhost\r\n" + token + "Content-Length: 10\r\n\r\n{",
		"chunked":  "POST /api/dlq/rm HTTP/1.1\r\nHost: localhost\r\n" + token + "Transfer-Encoding: chunked\r\n\r\na\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			addr := served(t, o)
			for range 2 * maxConnections {
				connect(t, addr).send(request)
			}
			for range 10 {
				c := connect(t, addr)
				c.send("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
				if got := c.status(); got != 200 {
					t.Fatalf("/livez: %d over a new connection", got)
				}
			}
		})
	}
}
