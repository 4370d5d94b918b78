//go:build unix

package main

import (
	"bytes"
	"net"
	"sync"
	"time"
)

// link is a way from one party to another that can be cut.
type link struct {
	ln net.Listener
	to string
	wg sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	refused bool
	deaf    bool          // acks are lost on the way
	flows   chan struct{} // closed while bytes flow
	conns   map[net.Conn]bool
}

// newLink makes a way to an address.
func newLink(to string) (*link, error) {
	ln, err := listen()
	if err != nil {
		return nil, err
	}
	l := &link{ln: ln, to: to, flows: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(l.flows)
	l.wg.Go(l.accept)
	return l, nil
}

func (l *link) address() string { return l.ln.Addr().String() }

func (l *link) accept() {
	for near, err := l.ln.Accept(); err == nil; near, err = l.ln.Accept() {
		if !l.add(near) {
			continue
		}
		l.wg.Go(func() { l.join(near) })
	}
}

// add notes a connection; while the link is cut it is reset instead.
func (l *link) add(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.refused {
		reset(c)
		return false
	}
	l.conns[c] = true
	return true
}

func (l *link) remove(c net.Conn) {
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
	c.Close()
}

// join carries bytes both ways until either end closes.
func (l *link) join(near net.Conn) {
	defer l.remove(near)
	<-l.flowing()
	far, err := net.DialTimeout("tcp", l.to, time.Second)
	if err != nil || !l.add(far) {
		return
	}
	defer l.remove(far)
	l.wg.Go(func() { l.carry(far, near, func([]byte) bool { return false }); near.Close(); far.Close() })
	l.carry(near, far, l.eats)
}

func (l *link) carry(from, to net.Conn, eats func([]byte) bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		<-l.flowing()
		if n > 0 && !eats(buf[:n]) {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *link) flowing() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flows
}

// stall lets nothing through; connections stay, and nothing is lost.
func (l *link) stall() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.flows:
		l.flows = make(chan struct{})
	default:
	}
}

// cut resets all connections, and refuses new ones. What was on its way is lost.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused = true
	l.resetAll()
}

func (l *link) resetAll() {
	for c := range l.conns {
		reset(c)
	}
	clear(l.conns)
}

// loseAcks lets acks be lost, with what is sent together with them.
func (l *link) loseAcks() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = true
}

func (l *link) eats(data []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deaf && (bytes.Contains(data, []byte("+ACK")) || bytes.Contains(data, []byte("+NXT")))
}

// heal lets everything through again.
func (l *link) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused, l.deaf = false, false
	select {
	case <-l.flows:
	default:
		close(l.flows)
	}
}

func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	l.ln.Close()
	l.resetAll()
	l.mu.Unlock()
	l.heal()
	l.wg.Wait()
}

func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // else it is closed in the ordinary way
	}
	c.Close()
}
