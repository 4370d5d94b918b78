package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// client is one of the library's. It reconnects for ever by itself, but there are errors of the server after which the library closes it for good
// (nats.go, processErr: "maximum payload violation", "maximum control line exceeded", and any other text that it does not know). Then another one
// takes its place: for all that use the Conn that is a reconnect.
type client struct {
	nc     *nats.Conn
	js     natsjs.JetStream
	judged chan struct{} // closed when it was closed, and it is known what for
}

// nc is the present client. It may be closed, until the next one is there.
func (c *Conn) nc() *nats.Conn { return c.client.Load().nc }

func (c *Conn) js() natsjs.JetStream { return c.client.Load().js }

// start makes the first client.
func (c *Conn) start(cfg Config, opts []nats.Option) error {
	if cfg.NkeySeedFile != "" {
		c.dialer.renew = func() { c.readNkey(cfg.NkeySeedFile) }
	}
	c.connect = func() (*nats.Conn, natsjs.JetStream, error) {
		var known found
		if cl := c.client.Load(); cl != nil {
			known = foundIn(cl.nc.ServerPool(), cfg)
		}
		c.dialer.know(known)
		c.trying.Store(nil)
		nc, err := nats.Connect(strings.Join(slices.Concat(cfg.URLs, known.urls), ","), slices.Concat(opts, nkeyAnew(cfg), known.options())...)
		if err != nil {
			return nil, nil, fmt.Errorf("connecting to NATS: %w", redact(err, cfg))
		}
		c.trying.Store(nc)
		js, err := newJetStream(nc, cfg)
		if err != nil {
			nc.Close()
			return nil, nil, err
		}
		return nc, js, nil
	}
	c.dialing.Lock()
	defer c.dialing.Unlock()
	return c.renew()
}

// renew makes a client in place of the one that is closed. All subscriptions are there before anybody can use it. The caller holds c.dialing.
func (c *Conn) renew() error {
	nc, js, err := c.connect()
	if err != nil {
		return err
	}
	next := &client{nc: nc, js: js, judged: make(chan struct{})}
	c.subs.mu.Lock()
	defer c.subs.mu.Unlock()
	for s := range c.subs.all {
		if s.over {
			continue // its end is told by the client that it was made with
		}
		if err := s.begin(nc); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			nc.Close()
			return fmt.Errorf("subscribing to %s: %w", s.subject, err)
		}
	}
	c.client.Store(next)
	if c.dialer.stands() {
		c.dialer.connected(nc)
	}
	return nil
}

// awaitUse waits until a client that is being made is in use.
func (c *Conn) awaitUse() {
	c.dialing.Lock()
	defer c.dialing.Unlock()
}

// onClosed is told that a client is closed for good: by Close, or by the library. Then it returns when there is another one, or Close is called.
func (c *Conn) onClosed(nc *nats.Conn) {
	c.dialing.Lock()
	defer c.dialing.Unlock()
	cl := c.client.Load()
	if cl == nil || cl.nc != nc {
		return // it never was in use
	}
	if c.stopping.Err() == nil {
		c.lost(cl)
		c.replace()
	}
	if c.stopping.Err() != nil && c.nc() == nc {
		close(c.closed)
	}
}

// lost is told of the end of a client that nobody here closed.
func (c *Conn) lost(cl *client) {
	text := "no reason is known"
	if err := cl.nc.LastError(); err != nil {
		text = oneLine(err.Error(), 300)
	}
	c.mu.Lock()
	c.trouble = text
	c.mu.Unlock()
	c.outages.begin(c.comesAndGoes)
	c.complain("closed "+text, "nats closed the connection for good, making another one", slog.String("error", text))
	c.limits.closed(text, c.dialer.tries.Load())
	c.away()
	close(cl.judged)
}

// replace makes another client, after a wait that grows with the number of connections that were brief.
func (c *Conn) replace() {
	for tries := 0; pause(c.stopping, c.dialer.pace.anew(tries)) == nil; tries++ {
		err := c.renew()
		if err == nil {
			return
		}
		c.onUnreachable(err)
	}
}

// away is told that the connection is gone: what is under way on it is never answered.
func (c *Conn) away() {
	c.mu.Lock()
	c.end()
	c.life, c.end = context.WithCancel(context.Background())
	c.full = time.Time{}
	c.forgetAwaited()
	c.mu.Unlock()
	c.notify(false)
}

// Close closes the connection and waits until its callbacks have ended. A try to connect that is under way is broken off.
func (c *Conn) Close() {
	c.stop()
	c.dialer.hangUp()
	c.dialing.Lock() // another client may be in the making
	nc := c.nc()
	c.dialing.Unlock()
	nc.Close()
	<-c.closed
	c.leaving.Wait()
	c.subs.endings.Wait()
	c.dialer.looking.Wait()
	c.outages.end()
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.resubscribing.timer; t != nil {
		t.Stop()
	}
}
