//go:build unix

package forward

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jetsidecar/jetsidecar/policy"
)

// script is what an app does on its first connection, once it has read a request: it writes the answer in pieces, and then
// closes, or goes on and answers well.
type script struct {
	answer  []byte
	piece   int // bytes, 0 = all at once
	closing bool
}

func (s script) String() string {
	return fmt.Sprintf("%q in pieces of %d, closing %v", s.answer, s.piece, s.closing)
}

func (s script) play(nc net.Conn) {
	r := bufio.NewReader(nc)
	if !readRequest(r) {
		return
	}
	for left := s.answer; len(left) > 0; {
		n := len(left)
		if s.piece > 0 { // few enough for a socket that nobody reads
			n = min(max(s.piece, len(s.answer)/50), n)
		}
		if _, err := nc.Write(left[:n]); err != nil {
			return
		}
		left = left[n:]
	}
}

func readRequest(r *bufio.Reader) bool {
	req, err := http.ReadRequest(r)
	if err != nil {
		return false
	}
	_, err = io.ReadAll(req.Body)
	return err == nil
}

// overPipe sends a request to the script by net/http or the lean transport, and another to see whether the connection is
// used again; the latter only by net/http, since a pipe cannot be looked into.
func overPipe(t *testing.T, s script, method string, lean bool) (result Result, kept bool) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		n := &network{accept: func(nc net.Conn) {
			if first {
				first = false
				s.play(nc)
				if s.closing {
					return
				}
			}
			always(ok)(nc)
		}}
		c := newClient(t, n)
		if !lean {
			c.links = nil
		}
		tg := target(t, c, method)
		result = c.Forward(t.Context(), tg, message("x"))
		synctest.Wait()
		if !lean {
			c.Forward(t.Context(), tg, message("x"))
			kept = n.dialCount() == 1
		}
		time.Sleep(time.Minute)
	})
	return result, kept
}

// overSocket is the same over sockets, by the lean transport.
func overSocket(t *testing.T, s script, method string) (result Result, kept bool) {
	played := make(chan struct{})
	n := &network{}
	n.accept = hang // never asked
	dials := 0
	c := newClient(t, n)
	keepIdleLinks(c)
	c.links.dial = func(context.Context) (net.Conn, error) {
		ours, theirs := socketPair(t)
		dials++
		first := dials == 1
		n.wg.Go(func() {
			defer theirs.Close()
			if first {
				s.play(theirs)
				if s.closing {
					_ = theirs.Close()
				}
				close(played)
			}
			always(ok)(theirs)
		})
		return ours, nil
	}
	tg := target(t, c, method)
	result = c.Forward(t.Context(), tg, message("x"))
	<-played
	if r := c.Forward(t.Context(), tg, message("x")); r.Kind != policy.Answered || r.Status != 200 {
		t.Errorf("the next request: %+v", r)
	}
	return result, dials == 1
}

func socketPair(t *testing.T) (a, b net.Conn) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "")
		if ends[i], err = net.FileConn(file); err != nil {
			t.Fatal(err)
		}
		_ = file.Close()
	}
	return ends[0], ends[1]
}

// compare holds that the lean transport makes of an answer what net/http makes of it.
func compare(t *testing.T, s script, method string) {
	want, kept := overPipe(t, s, method, false)
	got, _ := overPipe(t, s, method, true)
	if !equal(got.Outcome, want.Outcome) || (got.Error == "") != (want.Error == "") || got.Sent != want.Sent || got.Duration != want.Duration {
		t.Errorf("%s %v\nnet/http: %+v\nlean:     %+v", method, s, want, got)
	}
	if want.Kind == policy.NoAnswer && want.Duration > 0 {
		return // it waits for more until its time is over
	}
	got, keeps := overSocket(t, s, method)
	got.RetryAfter = want.RetryAfter // a date means something else there
	if !equal(got.Outcome, want.Outcome) || keeps != kept {
		t.Errorf("%s %v\nnet/http: %+v, kept %v\nlean:     %+v, kept %v", method, s, want, kept, got, keeps)
	}
}

const head = "HTTP/1.1 200 OK\r\n"

// shapes are answers of every kind.
var shapes = []string{
	"", ok, plain, "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", "HTTP/1.1  200 OK\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 +20 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200OK\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200\tOK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 a\rb\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 \x00\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi", "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/0.9 200 OK\r\n\r\n", "http/1.1 200 OK\r\n\r\n", "HTTP/1.2 200 OK\r\nContent-Length: 0\r\n\r\n",
	head + "\r\nuntil closed", "HTTP/1.0 200 OK\r\n\r\nuntil closed",
	head + "Content-Length: 5\r\n\r\nabcde", head + "Content-Length: 5\r\n\r\nabc", head + "Content-Length: 5\r\n\r\nabcdefgh", head + "Content-Length: 0\r\n\r\nx",
	head + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde", head + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef", head + "Content-Length: 5, 5\r\n\r\nabcde",
	head + "Content-Length:\r\n\r\n", head + "Content-Length: -1\r\n\r\n", head + "Content-Length: +1\r\n\r\na", head + "Content-Length: 1a\r\n\r\na", head + "Content-Length: 0x1\r\n\r\na", head + "Content-Length: 007\r\n\r\n1234567",
	head + "Content-Length: 9223372036854775807\r\n\r\na", head + "Content-Length: 9223372036854775808\r\n\r\na", head + "Content-Length: 00000000000000000000000000001\r\n\r\na", head + "content-length:1\r\n\r\na", head + "CONTENT-LENGTH:\t1 \r\n\r\na",
	head + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n", head + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nX-Trailer: a\r\n\r\n", head + "Transfer-Encoding: chunked\r\nTrailer: X-Trailer\r\n\r\n2\r\nab\r\n0\r\nX-Trailer: a\r\n\r\n",
	head + "Transfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n0\r\n\r\n", head + "Trailer: X\r\nContent-Length: 0\r\n\r\n", head + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nbad trailer\r\n\r\n",
	head + "Transfer-Encoding: chunked\r\n\r\n0\r\nX: " + strings.Repeat("t", 8<<10) + "\r\n\r\n", head + "Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n", head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", head + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n", head + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
	head + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n2\r\nab\r\n0\r\n\r\n", head + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", head + "Transfer-Encoding: identity\r\nContent-Length: 1\r\n\r\na", head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n", head + "Transfer-Encoding : chunked\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 204 No\r\n\r\n", "HTTP/1.1 204 No\r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.1 304 Same\r\nContent-Length: 3\r\n\r\n", "HTTP/1.1 204 No\r\nContent-Length: x\r\n\r\n", "HTTP/1.1 205 Reset\r\n\r\n",
	"HTTP/1.1 100 Continue\r\n\r\n" + ok, "HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 199 Odd\r\nContent-Length: 3\r\n\r\n" + plain, "HTTP/1.1 101 Switch\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nany", "HTTP/1.1 101 Switch\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n", strings.Repeat("HTTP/1.1 102 Wait\r\n\r\n", 5000) + ok,
	head + "Connection: close\r\nContent-Length: 2\r\n\r\nhi", head + "Connection: Keep-Alive\r\nContent-Length: 2\r\n\r\nhi", head + "Connection: keep-alive, close\r\nContent-Length: 0\r\n\r\n", head + "Connection: x\r\nConnection: CLOSE\r\nContent-Length: 0\r\n\r\n", head + "connection:close\r\ncontent-length:0\r\n\r\n", head + "Keep-Alive: timeout=0\r\nContent-Length: 0\r\n\r\n",
	head + "Content-Length: 0\r\n\r\n" + ok, head + "Content-Length: 0\r\n\r\n\r\n", "\r\n" + ok, " " + ok,
	"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi", "HTTP/1.1 200 OK\r\nContent-Length: 2\n\r\nhi", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\nhi", head + "X: a\r\n b\r\nContent-Length: 0\r\n\r\n", head + "Content-Length: 1\r\n\t2\r\n\r\nabcdefghijkl", head + " X: a\r\nContent-Length: 0\r\n\r\n", head + "Sidecar-Action: dlq\r\n \r\nContent-Length: 0\r\n\r\n",
	head + "X\r\nContent-Length: 0\r\n\r\n", head + ": x\r\nContent-Length: 0\r\n\r\n", head + "X Y: z\r\nContent-Length: 0\r\n\r\n", head + "X : z\r\nContent-Length: 0\r\n\r\n", head + "X: \x00\r\nContent-Length: 0\r\n\r\n", head + "X: a\rb\r\nContent-Length: 0\r\n\r\n", head + "X: \x7f\r\nContent-Length: 0\r\n\r\n", head + "X: \xff\r\nContent-Length: 0\r\n\r\n", head + "\xff: x\r\nContent-Length: 0\r\n\r\n", head + "(): x\r\nContent-Length: 0\r\n\r\n",
	head + "Sidecar-Action: dlq\r\nSidecar-Action: ack\r\nContent-Length: 0\r\n\r\n", head + "sidecar-ACTION:retry\r\nSIDECAR-reason:\tno \r\nretry-after: 7\r\nContent-Length: 0\r\n\r\n", head + "Sidecar-Action:\r\nSidecar-Action: ack\r\nContent-Length: 0\r\n\r\n", head + "Sidecar-Reason: caf\xe9 \x01\r\nContent-Length: 0\r\n\r\n", head + "Sidecar-Action : dlq\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 302 Found\r\nLocation: http://[::1/%zz\r\nContent-Length: 2\r\n\r\nhi", "HTTP/1.1 307 Found\r\nLocation: /x\r\nRetry-After: 1\r\n\r\nbody", "HTTP/1.1 429 Slow\r\nRetry-After: Sat, 01 Jan 2000 00:01:00 GMT\r\nContent-Length: 0\r\n\r\n",
	head + "X: " + strings.Repeat("x", 3<<10) + "\r\nContent-Length: 2\r\n\r\nhi", head + "X: " + strings.Repeat("x", 60<<10) + "\r\nContent-Length: 2\r\n\r\nhi", head + strings.Repeat("A: b\r\n", 10_922) + "Content-Length: 2\r\n\r\nhi", head + "X: " + strings.Repeat("x", 66<<10) + "\r\nContent-Length: 2\r\n\r\nhi", head + strings.Repeat("A: b\r\n", 12<<10) + "Content-Length: 2\r\n\r\nhi",
	head + "Content-Length: 6000\r\n\r\n" + strings.Repeat("y", 6000), head + "\r\n" + strings.Repeat("y", 70_000), "220 mail ESMTP\r\n", "HTTP/1.1", "HTTP/1.1 200 OK", head, head + "Content-Length: 5", "HTTP/1.1 000 Odd\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n",
}

// The lean transport makes of every answer what net/http makes of it: the same status, headers and start of the body, or a
// failure in both, the same time taken, and the connection used again or not.
func TestTransportIsAsNetHTTP(t *testing.T) {
	for _, answer := range shapes {
		for _, closing := range []bool{false, true} {
			for _, piece := range []int{0, 1, 7} {
				if len(answer) > 4000 && piece > 0 {
					piece *= 1000
				}
				compare(t, script{[]byte(answer), piece, closing}, "POST")
			}
			compare(t, script{[]byte(answer), 0, closing}, "HEAD")
		}
	}
}

func FuzzTransport(f *testing.F) {
	for i, answer := range shapes {
		f.Add([]byte(answer), uint16(i%5*300), i%2 == 0, i%11 == 0)
	}
	f.Fuzz(func(t *testing.T, answer []byte, piece uint16, closing, isHead bool) {
		if len(answer) > 100_000 {
			return // more than a socket takes that nobody reads
		}
		compare(t, script{answer, int(piece), closing}, map[bool]string{false: "POST", true: "HEAD"}[isHead])
	})
}
