package forward

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"time"
)

// newLinks makes the lean transport, for plain HTTP/1.1 with a host that needs no translation; nil where net/http is to do it.
func (c *Client) newLinks(connections int) *links {
	if !canLook || c.h2 || c.base.Scheme != "http" || !ascii(c.base.Host) {
		return nil
	}
	address := hostPort(c.base)
	return &links{
		dial: func(ctx context.Context) (net.Conn, error) { return c.dialer.connect(ctx, "tcp", address) },
		most: connections,
	}
}

// tryLean makes a try over one of the client's own connections. One that was used before and turns out closed before anything
// was sent is replaced within the try.
func (x *exchange) tryLean(req *http.Request) error {
	links := x.client.links
	for x.asked = true; ; {
		l, err := links.get(x.Context)
		if err != nil {
			return err
		}
		used := l.used
		if used == 0 {
			x.client.app.connected()
		}
		if err := x.stillWanted(); err != nil {
			links.put(l, time.Now())
			return err
		}
		if x.late() {
			links.put(l, time.Now())
			return errLate
		}
		x.had, x.since = true, time.Now()
		x.tell(true)
		if s := x.client.signer; s != nil {
			s.fill(x.head[x.signAt:], x.since, x.body)
		}

		l.keeps = x.keeps
		reply, start, keep, err := l.carry(x.Context, req, x.head, x.more(), x.since.Add(x.client.timeout))
		now := time.Now()
		x.result.Sent, x.result.Duration = l.sent > 0, now.Sub(x.since)
		if l.left && used == 1 {
			links.distrust(now)
		}
		if keep {
			links.put(l, now)
		} else {
			links.gone()
		}
		switch {
		case err == nil:
			x.result.Outcome = x.outcome(reply, start)
			return nil
		case x.Context.Err() != nil:
			return err
		case errors.Is(err, os.ErrDeadlineExceeded):
			x.expired.Store(true)
			return err
		case used == 0 || l.sent > 0:
			return err
		}
		x.tell(false)
		x.had = false
	}
}

// more is the rest of the body, which is not written together with the head.
func (x *exchange) more() []byte {
	if len(x.body) > inlineBytes {
		return x.body
	}
	return nil
}
