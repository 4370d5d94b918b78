package jetstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A handshake that fails again and again is told a few times a minute, with its cause, as is that no connection can be made.
func TestHandshakesThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		answer string // to the client, before the connection is closed
		text   string
	}{
		"closed":         {"", "closed in the handshake"},
		"refused":        {welcome + "-ERR 'Authorization Violation'\r\n", "nats: authorization violation"},
		"not understood": {"SSH-2.0\r\n", "nats: "},
	} {
		for _, connects := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " ", connects), func(t *testing.T) {
				onWire(t, func(conn *Conn, w *fakeWire, log *lockedText) {
					fails := func(context.Context, string, string) (net.Conn, error) {
						client, server := net.Pipe()
						go func() {
							defer server.Close()
							if _, err := io.WriteString(server, c.answer); err == nil && strings.Contains(c.answer, "-ERR") {
								_, _ = io.Copy(io.Discard, server) // until the client closes
							}
						}()
						return client, nil
					}
					if !connects { // what is not there at first is told otherwise
						conn.dialer.setOpen(func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") })
						w.set(true)
						time.Sleep(time.Minute)
					}
					conn.dialer.setOpen(fails)
					w.set(true)
					time.Sleep(10 * time.Second)
					synctest.Wait()
					if trouble := conn.Trouble(); !strings.Contains(strings.ToLower(trouble), c.text) {
						t.Errorf("trouble %q", trouble)
					}
					time.Sleep(time.Minute)
					synctest.Wait()
					if n := strings.Count(strings.ToLower(log.String()), c.text); n < 1 || n > 4 {
						t.Errorf("told %d times:\n%s", n, log)
					}
					if n := strings.Count(log.String(), "\n"); n > 12 {
						t.Errorf("%d lines:\n%s", n, log)
					}
					w.set(false)
					conn.dialer.setOpen(w.dial)
					time.Sleep(10 * time.Second)
					synctest.Wait()
					if !conn.Connected() || conn.Trouble() != "" {
						t.Errorf("connected %t, trouble %q", conn.Connected(), conn.Trouble())
					}
				})
			})
		}
	}
}

// What is told of a broken connection is the same each time.
func TestWithoutPorts(t *testing.T) {
	op := &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: 1}, Addr: &net.TCPAddr{Port: 2}, Err: errors.New("reset by peer")}
	if text := withoutPorts(fmt.Errorf("TLS: %w", op)); text != "TLS: read: reset by peer" {
		t.Error(text)
	}
	if text := withoutPorts(io.EOF); text != "EOF" {
		t.Error(text)
	}
}
