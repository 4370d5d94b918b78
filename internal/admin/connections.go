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

// connections keeps the connections of a listener bounded: each costs memory and a file. For a new one beyond the bound the one makes way of
// whose client nothing was heard for the longest, neither a whole request nor that it took an answer, so that health can be asked for whatever
// others leave open. Only what the API bounds makes way for none; if that is all there is, the new one is closed. The zero value is ready.
type connections struct {
	mu    sync.Mutex
	heard map[net.Conn]time.Time // when its client was heard of last; zero: the API is at work for it
}

// changed is told the state of each connection, as http.Server does; of a new one before anything is read from it.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateActive: // a header has come, or something that is none
		return
	case http.StateIdle:
		c.note(conn, time.Now())
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		if c.heard == nil {
			c.heard = map[net.Conn]time.Time{}
		}
		if len(c.heard) >= maxConnections && !c.makeWay() {
			_ = conn.Close() // nothing was sent
			return
		}
		c.heard[conn] = time.Now()
	default:
		delete(c.heard, conn)
	}
}

// connKey is the key of a connection in the context of its requests.
type connKey struct{}

// of lets the requests of a connection know it, as http.Server.ConnContext.
func (c *connections) of(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// asked is told that a request has come, all of it, by its context.
func (c *connections) asked(ctx context.Context) { c.note(connOf(ctx), time.Now()) }

// busy is told that the API is at work for a request, until asked is called with it.
func (c *connections) busy(ctx context.Context) { c.note(connOf(ctx), time.Time{}) }

// connOf is the connection of a request; nil in tests without one.
func connOf(ctx context.Context) net.Conn {
	conn, _ := ctx.Value(connKey{}).(net.Conn)
	return conn
}

// note changes when the client of a connection was heard of, unless it made way.
func (c *connections) note(conn net.Conn, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, here := c.heard[conn]; here {
		c.heard[conn] = at
	}
}

// makeWay closes the connection of whose client nothing was heard for the longest, if there is one that may be.
func (c *connections) makeWay() bool {
	var oldest net.Conn
	for conn, at := range c.heard {
		if !at.IsZero() && (oldest == nil || at.Before(c.heard[oldest])) {
			oldest = conn
		}
	}
	if oldest == nil {
		return false
	}
	delete(c.heard, oldest)
	_ = oldest.Close()
	return true
}
