package admin

import (
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
	waiting map[net.Conn]time.Time // for a request, since when; zero: it is being answered
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
	case http.StateActive, http.StateIdle:
		if _, here := c.waiting[conn]; here {
			c.waiting[conn] = since(state)
		}
	default:
		delete(c.waiting, conn)
	}
}

func since(state http.ConnState) time.Time {
	if state == http.StateActive {
		return time.Time{}
	}
	return time.Now()
}

// makeWay closes a connection that waits for a request, if there is one.
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
	_ = oldest.Close() // its client asked for nothing
	return true
}
