package jetstream

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// connectTimeout bounds a connect over TCP to one server, and each step of what follows.
const connectTimeout = 2 * time.Second

// dialer makes the connections of one client. Before it makes one it closes the one before: while it tries on, the client forgets a connection over
// which it was refused or heard nothing (nats.go, doReconnect), and each of them would hold an open file for good.
type dialer struct {
	mu   sync.Mutex
	last net.Conn // perhaps closed already
	err  error    // of the last try
}

// Dial is called by the client, never twice at a time.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	d.mu.Lock()
	if d.last != nil {
		_ = d.last.Close() // fails if it is closed
	}
	d.mu.Unlock()
	conn, err := dialAny(network, address)
	d.mu.Lock()
	d.last, d.err = conn, err
	d.mu.Unlock()
	return conn, err
}

// why is the cause of a try that did not succeed. Of its first ones the client tells only that no server is there.
func (d *dialer) why(err error) error {
	if !errors.Is(err, nats.ErrNoServers) {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return cmp.Or(d.err, err)
}

// dialAny connects to one of a host's addresses, which it tries in random order and for the same time each.
func dialAny(network, address string) (net.Conn, error) {
	ctx := context.Background()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	addrs, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, err
	}
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	one := net.Dialer{Timeout: connectTimeout / time.Duration(len(addrs))}
	var conn net.Conn
	for _, addr := range addrs {
		if conn, err = one.DialContext(ctx, network, net.JoinHostPort(addr, port)); err == nil {
			return conn, nil
		}
	}
	return nil, err
}
