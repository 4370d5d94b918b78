package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
)

// errNATSServer is what a connection to a NATS server comes to.
var errNATSServer = errors.New("a NATS server answers there")

// unreached says what may be wrong where no answer came.
func (r *remote) unreached(err error) error {
	at := r.base
	switch {
	case errors.Is(err, errNATSServer):
		return fmt.Errorf("a NATS server answers at %s: --admin is the URL of a sidecar's admin listener, admin.listen of its configuration", at)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nothing listens at %s: does a sidecar run there, and is its admin.listen this address? (%w)", at, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return fmt.Errorf("the sidecar at %s went away: run it again, it continues (%w)", at, err)
	}
	return err
}

// unauthorized says what is wrong with the token.
func (r *remote) unauthorized() error {
	if r.token == "" {
		return fmt.Errorf("no token given, and the sidecar at %s wants its admin.token: give it by --token-file or SIDECAR_ADMIN_TOKEN", r.base)
	}
	return fmt.Errorf("the token is not accepted by the sidecar at %s: give its admin.token by --token-file or SIDECAR_ADMIN_TOKEN", r.base)
}

// badJSON reports whether an answer came, and is not what it should be.
func badJSON(err error) bool {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	return errors.As(err, &syntax) || errors.As(err, &kind)
}

// dialAsking connects to what speaks only when it is asked, as HTTP does and NATS does not.
func dialAsking(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	asking := &askingConn{Conn: c, asked: make(chan struct{})}
	asking.ask = sync.OnceFunc(func() { close(asking.asked) })
	return asking, nil
}

// askingConn reads nothing before something was written, and then knows a NATS server by its greeting.
type askingConn struct {
	net.Conn
	ask     func()
	asked   chan struct{}
	greeted bool // something was read; only who reads looks at it
}

// Read reads what came for what was asked.
func (c *askingConn) Read(p []byte) (int, error) {
	<-c.asked
	n, err := c.Conn.Read(p)
	if n > 0 && !c.greeted && bytes.HasPrefix(p[:n], []byte("INFO ")) {
		return 0, errNATSServer
	}
	c.greeted = c.greeted || n > 0
	return n, err
}

// Write asks.
func (c *askingConn) Write(p []byte) (int, error) {
	defer c.ask()
	return c.Conn.Write(p)
}

// Close ends a read that waits, too.
func (c *askingConn) Close() error {
	defer c.ask()
	return c.Conn.Close()
}
