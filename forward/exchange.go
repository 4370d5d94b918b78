package forward

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/jetsidecar/jetsidecar/policy"
)

// exchange is one Forward: the tries to get a connection, and the one request sent over it. As the request's context it is
// handed down through go-retryablehttp to the transport.
type exchange struct {
	context.Context // the caller's

	client  *Client
	header  http.Header
	body    []byte
	sending func(bool) // Message.Sending

	// Of the current try. The hooks and the transport run in the goroutine of Forward.
	wanted  bool        // net/http took the request as valid and asked for a connection
	had     bool        // it got one
	conn    *conn       // which one; nil over HTTP/2, where it is shared
	before  int64       // what was written to it before
	since   time.Time   // when it was had
	begun   atomic.Bool // HTTP/2: sending began
	clock   *time.Timer
	stopTry context.CancelCauseFunc
	expired atomic.Bool

	// The end.
	again  bool // no connection, or nothing sent: try again
	result Result
}

type exchangeKey struct{}

// Value makes the exchange found in the contexts derived from it.
func (x *exchange) Value(key any) any {
	if key == (exchangeKey{}) {
		return x
	}
	return x.Context.Value(key)
}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// tripper makes one try. It stands between go-retryablehttp and the transport, whose CloseIdleConnections it hides: one
// request's failure is not to cost the others their connections.
type tripper struct{}

func (tripper) RoundTrip(req *http.Request) (*http.Response, error) {
	return exchangeOf(req.Context()).try(req)
}

// try makes one try: it waits until the app may be there, gets a connection, sends the request and reads the whole answer.
func (x *exchange) try(req *http.Request) (*http.Response, error) {
	x.again, x.result.Sent, x.result.Duration = false, false, 0
	x.expired.Store(false)
	if err := x.client.app.wait(x.Context); err != nil {
		x.handBack()
		return nil, err
	}

	ctx, stop := context.WithCancelCause(x)
	defer stop(nil)
	x.stopTry = stop
	x.wanted, x.had, x.conn = false, false, nil
	trace := &httptrace.ClientTrace{GetConn: x.getConn, GotConn: x.gotConn}
	if x.client.h2 {
		trace.WroteHeaderField = x.began
	}
	ctx = httptrace.WithClientTrace(ctx, trace)

	req = req.WithContext(ctx)
	req.Header = x.header
	x.rewind(req)
	resp, err := x.client.transport.RoundTrip(req)
	if err == nil {
		err = x.read(resp)
	}
	x.stopClock()
	x.measure()
	if err != nil {
		x.fail(err)
		return nil, err
	}
	resp.Body = http.NoBody
	return resp, nil
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
	x.wanted, x.had, x.conn = true, false, nil
	x.begun.Store(false)
}

// gotConn is called when it has one: the app's time starts.
func (x *exchange) gotConn(info httptrace.GotConnInfo) {
	x.had = true
	x.since = time.Now()
	if !info.Reused {
		x.client.app.connected()
	}
	if c, ok := info.Conn.(*conn); ok && !x.client.h2 {
		x.conn, x.before = c, c.written.Load()
	}
	x.tell(true)
	stop := x.stopTry
	x.clock = time.AfterFunc(x.client.timeout, func() {
		x.expired.Store(true)
		stop(context.DeadlineExceeded)
	})
}

// began is called, from a goroutine of net/http, for each header field of a request over HTTP/2 as it is about to be sent. Until
// then the request may be waiting for the app to take one more on the connection.
func (x *exchange) began(string, []string) { x.begun.Store(true) }

func (x *exchange) stopClock() {
	if x.clock != nil {
		x.clock.Stop()
	}
}

// measure notes how long the app took and whether it may have seen the request.
func (x *exchange) measure() {
	if !x.had {
		return
	}
	x.result.Duration = time.Since(x.since)
	if x.conn != nil {
		x.result.Sent = x.conn.written.Load() > x.before
	} else {
		x.result.Sent = x.begun.Load() || !x.client.h2
	}
}

// fail says what a try without an answer came to.
func (x *exchange) fail(err error) {
	switch {
	case x.Context.Err() != nil:
		x.handBack()
	case x.expired.Load() && x.client.h2 && !x.result.Sent:
		x.retry() // the app's limit of requests on a connection: it saw nothing of this one
	case x.expired.Load():
		x.result.Outcome = policy.Outcome{Kind: policy.NoAnswer, Error: x.client.late}
	case !x.wanted:
		x.result.Outcome = policy.Outcome{Kind: policy.Undeliverable, Error: oneLine(err)}
	case !x.had:
		x.client.app.unreachable(err)
		x.retry()
	case !x.result.Sent:
		x.retry()
	default:
		x.result.Outcome = policy.Outcome{Kind: policy.NoAnswer, Error: oneLine(err)}
	}
}

func (x *exchange) handBack() {
	x.result.Outcome = policy.Outcome{Kind: policy.HandedBack}
}

func (x *exchange) retry() {
	x.again, x.result.Duration = true, 0
	if x.had {
		x.tell(false)
	}
}

// tell says whether the request is at the app, or waits for a connection.
func (x *exchange) tell(sending bool) {
	if x.sending != nil {
		x.sending(sending)
	}
}
