package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// connectTimeout bounds a connect over TCP to one server, with the look-up of its name, and each step of what follows.
const connectTimeout = 2 * time.Second

// dialer makes the connections of one client. Before it makes one it closes the one before: while it tries on, the client forgets a connection over
// which it was refused or heard nothing (nats.go, doReconnect), and each of them would hold an open file for good.
//
// While it makes one, and until the handshake is over, the client holds the lock that everything takes that it can be asked (nats.go, doReconnect).
// So whether there is a connection is known here, without a lock, and nothing else is asked while there is none.
type dialer struct {
	resolver *net.Resolver
	life     context.Context // ends with the client
	end      context.CancelFunc

	tries atomic.Uint64 // how many connections were to be made: the number of the last one
	made  atomic.Uint64 // the last one that the client is known to have connected over
	lost  atomic.Uint64 // the last one that broke, or was closed
	pace  pace

	renew func() // called before each try, with the client's lock held; nil: nothing is to be done

	mu      sync.Mutex
	open    func(ctx context.Context, network, address string) (net.Conn, error)
	address string   // of the last try
	found   found    // by the client before
	last    net.Conn // perhaps closed already; nil while one is made
	err     error    // of the last try
	lookups map[string]*lookup
	looking sync.WaitGroup
}

// lookup is one for a host. It may take longer than a try to connect: then the next one has its answer.
type lookup struct {
	done  chan struct{}
	addrs []string
	err   error
}

func (d *dialer) begin() {
	d.open, d.resolver, d.lookups = d.dialAny, net.DefaultResolver, map[string]*lookup{}
	d.pace.delay = reconnectDelay
	d.life, d.end = context.WithCancel(context.Background())
}

// Dial is called by the client, never twice at a time.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	number := d.tries.Add(1)
	if d.renew != nil {
		d.renew()
	}
	d.mu.Lock()
	if d.last != nil {
		_ = d.last.Close() // fails if it is closed
	}
	d.last, d.address = nil, address
	open := d.open
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(d.life, connectTimeout)
	defer cancel()
	conn, err := open(ctx, network, address)
	if conn != nil {
		conn = &dialed{Conn: conn, lost: func() { d.loses(number) }}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last, d.err = conn, err
	if conn != nil && d.life.Err() != nil {
		_ = conn.Close() // nobody waits for its handshake
	}
	return conn, err
}

// choose is called by the client before each try to connect, with its lock held: it goes round over all servers.
func (d *dialer) choose(pool []nats.Server, info nats.ServerInfo) (*nats.Server, time.Duration) {
	d.mu.Lock()
	last, known := d.address, d.found
	d.mu.Unlock()
	pool = eachOnce(known.current(pool, info))
	at := slices.IndexFunc(pool, func(s nats.Server) bool { return s.URL.Host == last })
	return &pool[(at+1)%len(pool)], d.pace.next(len(pool))
}

// eachOnce leaves out of a pool what is there twice: of two that are the same only the first one is found, and what is behind it is tried again.
func eachOnce(pool []nats.Server) []nats.Server {
	var once []nats.Server
	for _, s := range pool {
		if !slices.ContainsFunc(once, func(o nats.Server) bool { return o.URL.Host == s.URL.Host }) {
			once = append(once, s)
		}
	}
	return once
}

// know is told what servers the next client is to know besides those that are configured.
func (d *dialer) know(f found) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found = f
}

// dialed is a connection of which it is known at once that it broke: before the client knows.
type dialed struct {
	net.Conn
	lost func()
}

func (c *dialed) Read(b []byte) (int, error)  { return c.told(c.Conn.Read(b)) }
func (c *dialed) Write(b []byte) (int, error) { return c.told(c.Conn.Write(b)) }

func (c *dialed) Close() error {
	c.lost()
	return c.Conn.Close()
}

func (c *dialed) told(n int, err error) (int, error) {
	if err != nil {
		c.lost()
	}
	return n, err
}

// connected is told that the client reports a connection.
func (d *dialer) connected(nc *nats.Conn) {
	number := d.tries.Load()
	if nc.IsConnected() { // over that one or a later one, which is told again
		d.made.Store(number)
		d.pace.connected(number)
	}
}

// loses is told that a connection broke, or was closed.
func (d *dialer) loses(number uint64) {
	for before := d.lost.Load(); before < number && !d.lost.CompareAndSwap(before, number); {
		before = d.lost.Load()
	}
	d.pace.loses(number)
}

// stands reports whether the last connection did not break, as far as is known, and none is made now.
func (d *dialer) stands() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last != nil && d.tries.Load() > d.lost.Load()
}

// up reports whether there is a connection.
func (d *dialer) up() bool {
	made := d.made.Load()
	return made == d.tries.Load() && made > d.lost.Load()
}

// triesAgain reports whether another connection is being made since the last one broke. Meanwhile the client answers nothing. One that stands is none,
// also if the client is just closing it.
func (d *dialer) triesAgain() bool { return !d.up() && d.tries.Load() > d.lost.Load() }

// hangUp ends what is under way. No connection is made from then on; one that there is stays until the client closes it.
func (d *dialer) hangUp() {
	d.end()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last != nil && !d.up() {
		_ = d.last.Close() // fails if it is closed
	}
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
func (d *dialer) dialAny(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	addrs, err := d.lookUp(ctx, host)
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

// lookUp returns the addresses of a host. Where the answer takes longer than ctx lasts it is for the next call: with one of its name servers away a host
// is found in some 5 s, each time.
func (d *dialer) lookUp(ctx context.Context, host string) ([]string, error) {
	d.mu.Lock()
	l := d.lookups[host]
	if l == nil {
		l = &lookup{done: make(chan struct{})}
		d.lookups[host] = l
		d.looking.Go(func() {
			defer close(l.done)
			l.addrs, l.err = d.resolver.LookupHost(d.life, host)
		})
	}
	d.mu.Unlock()
	select {
	case <-l.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("looking up %s: no answer yet", host)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.lookups, host)
	return l.addrs, l.err
}
