package forward

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// standard is a try by net/http, for https and HTTP/2. The hooks and the transport run in the goroutine of Forward, but for began.
type standard struct {
	conn   *conn       // the connection; nil over HTTP/2, where it is shared
	before int64       // what was written to it before
	begun  atomic.Bool // HTTP/2: sending began
	late   bool        // the connection came too late: nothing is sent
	clock  *time.Timer
	stop   context.CancelCauseFunc
}

func (x *exchange) tryStandard(req *http.Request) error {
	ctx, stop := context.WithCancelCause(x)
	defer stop(nil)
	x.std.stop, x.std.conn, x.std.late = stop, nil, false
	trace := &httptrace.ClientTrace{GetConn: x.getConn, GotConn: x.gotConn}
	if x.client.h2 {
		trace.WroteHeaderField = x.began
	}
	ctx = httptrace.WithClientTrace(ctx, trace)

	req = req.WithContext(ctx)
	req.Header = x.header
	if s := x.client.signer; s != nil {
		req.Header = s.signed(x.header, time.Now(), x.body)
	}
	x.rewind(req)
	resp, err := x.client.transport.RoundTrip(req)
	if err == nil {
		err = x.read(resp)
	}
	x.stopClock()
	x.measure()
	if err != nil && x.std.late {
		return errLate
	}
	return err
}

// rewind gives the try a body of its own, as the transport of an earlier try may still be reading that one's.
func (x *exchange) rewind(req *http.Request) {
	if len(x.body) == 0 && !replayable(req.Method) {
		req.Body = http.NoBody
		return
	}
	req.ContentLength = int64(len(x.body))
	req.Body = io.NopCloser(bytes.NewReader(x.body))
	if replayable(req.Method) {
		return // without GetBody, and with a body, net/http never re-sends
	}
	// Lets net/http re-send on a new connection when an idle one turns out closed before anything was written to it.
	req.GetBody = func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(x.body)), nil
	}
}

// replayable reports whether net/http would re-send a request by its method alone (Request.isReplayable).
func replayable(method string) bool {
	switch method {
	case "GET", "HEAD", "OPTIONS", "TRACE":
		return true
	}
	return false
}

// getConn is called when net/http wants a connection, again if it re-sends a request of which nothing was sent. Waiting for
// one does not count against the app's time.
func (x *exchange) getConn(string) {
	x.stopClock()
	if x.had {
		x.tell(false)
	}
	x.asked, x.had, x.std.conn = true, false, nil
	x.std.begun.Store(false)
}

// gotConn is called when it has one: the app's time starts.
func (x *exchange) gotConn(info httptrace.GotConnInfo) {
	if !info.Reused {
		x.client.app.connected()
	}
	c, own := info.Conn.(*conn)
	own = own && !x.client.h2
	if x.late() {
		x.std.late = true
		if own {
			c.shut.Store(true) // over HTTP/1.1 the end of the context alone does not keep net/http from writing
		}
		x.std.stop(errLate)
		return
	}
	x.had = true
	x.since = time.Now()
	if own {
		x.std.conn, x.std.before = c, c.written.Load()
	}
	x.tell(true)
	stop := x.std.stop
	x.std.clock = time.AfterFunc(x.client.timeout, func() {
		x.expired.Store(true)
		stop(context.DeadlineExceeded)
	})
}

// began is called, from a goroutine of net/http, for each header field of a request over HTTP/2 as it is about to be sent. Until
// then the request may be waiting for the app to take one more on the connection.
func (x *exchange) began(string, []string) { x.std.begun.Store(true) }

func (x *exchange) stopClock() {
	if x.std.clock != nil {
		x.std.clock.Stop()
	}
}

// measure notes how long the app took and whether it may have seen the request.
func (x *exchange) measure() {
	if !x.had {
		return
	}
	x.result.Duration = time.Since(x.since)
	if x.std.conn != nil {
		x.result.Sent = x.std.conn.written.Load() > x.std.before
	} else {
		x.result.Sent = x.std.begun.Load() || !x.client.h2
	}
}
