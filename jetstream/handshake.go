package jetstream

import (
	"errors"
	"io"
	"net"
	"strings"

	"github.com/nats-io/nats.go"
)

// beforeTry is called by the client before each try to connect, and before the wait for it, with its lock held.
func (c *Conn) beforeTry(cfg Config) {
	nc := c.trying.Load()
	if nc == nil {
		return
	}
	c.leaving.Go(func() { c.tellHandshake(nc, cfg) }) // the client answers when it waits
}

// tellHandshake tells how the try before ended if that was in the handshake: of this the library calls nobody (nats.go, doReconnect).
func (c *Conn) tellHandshake(nc *nats.Conn, cfg Config) {
	err := nc.LastError()
	if err == nil || c.stopping.Err() != nil || nc.IsConnected() {
		return
	}
	text := withoutPorts(err)
	if errors.Is(err, io.EOF) {
		text = "the connection was closed in the handshake: " + text
	}
	c.onUnreachable(redact(errors.New(text), cfg))
}

// withoutPorts is the text of an error without the addresses of a connection, which are others each time.
func withoutPorts(err error) string {
	var op *net.OpError
	if !errors.As(err, &op) {
		return err.Error()
	}
	return strings.ReplaceAll(err.Error(), op.Error(), op.Op+": "+op.Err.Error())
}

// isOfHandshake reports whether an error that the library reports is how a try to connect ended: only then it is one of the network.
func isOfHandshake(err error) bool {
	return errors.Is(err, io.EOF) || errors.As(err, new(net.Error))
}
