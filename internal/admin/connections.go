package admin

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// maxConnections is how many connections there may be. The API's limits leave most of them to who asks for health and metrics.
const maxConnections = 128

// connections keeps the connections of a listener bounded: each costs memory and a file. For a new one beyond the bound the one makes way whose
// client has sent no whole request for the longest, so that health can be asked for whatever others leave open. While all are being answered
// the new one is closed. The zero value is ready.
type connections struct {
	mu      sync.Mutex
	waiting map[net.Conn]time.Time // for a whole request, since when; zero: it is being answered
}

// changed is told the state of each connection, as http.Server does; of a new one before anything is read from it.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		if c.waiting == nil {
			c.waiting = map[net.Conn]time.Time{}
		}
		if len(c.waiting) >= maxConnections && !c.makeWay() {
			_ = conn.Close() // nothing was sent
			return
		}
		c.waiting[conn] = time.Now()
	case http.StateActive: // a header has come, or something that is none: see whole
	case http.StateIdle:
		c.note(conn, time.Now())
	default:
		delete(c.waiting, conn)
	}
}

// connKey is the key of a connection in the context of its requests.
type connKey struct{}

// of lets the requests of a connection know it, as http.Server.ConnContext.
func (c *connections) of(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// whole is told that a request has come with all of its body, by its context: it is being answered.
func (c *connections) whole(ctx context.Context) {
	conn, ok := ctx.Value(connKey{}).(net.Conn)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(conn, time.Time{})
}

// note changes since when a connection waits, unless it made way.
func (c *connections) note(conn net.Conn, since time.Time) {
	if _, here := c.waiting[conn]; here {
		c.waiting[conn] = since
	}
}

// makeWay closes the connection that has waited for a whole request for the longest, if there is one.
func (c *connections) makeWay() bool {
	var oldest net.Conn
	for conn, at := range c.waiting {
		if !at.IsZero() && (oldest == nil || at.Before(c.waiting[oldest])) {
			oldest = conn
		}
	}
	if oldest == nil {
		return false
	}
	delete(c.waiting, oldest)
	_ = oldest.Close() // its client asked for nothing, or not yet
	return true
}
