package forward

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/jetsidecar/jetsidecar/policy"
)

// exchange is one Forward: the tries to get a connection, and the one request sent over it. As the request's context it is
// handed down through go-retryablehttp to the transport.
type exchange struct {
	context.Context // the caller's

	client           *Client
	warned           *warned // of the target
	stream, consumer string  // that the message is of
	body             []byte
	sending          func(bool)                  // Message.Sending
	wanted           func() bool                 // Message.Wanted
	turn             func(context.Context) error // Message.Turn
	turned           time.Time                   // when it was the request's turn
	lates            int                         // how often a connection came too late for that
	keeps            int                         // bytes of the answer's body that are kept
	envelope

	// Of the current try.
	asked   bool      // the request is valid, and a connection was asked for
	had     bool      // there was one
	since   time.Time // when it was had
	expired atomic.Bool
	std     standard // of a try by net/http

	// The end.
	again  bool // no connection, or nothing sent: try again
	result Result
}

// envelope is what go-retryablehttp is given and gives back. It is used again and again where nobody else can still hold it.
type envelope struct {
	request *http.Request // without header and body: each try has its own
	retried retryablehttp.Request
	head    []byte        // of the request, with the start of its body, as the lean transport writes it
	signAt  int           // where in head the lines of the signature begin
	header  http.Header   // of the request, for net/http
	taken   http.Response // stands for an answer that was read
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
	if x, ok := ctx.(*exchange); ok {
		return x
	}
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// tripper makes one try. It stands between go-retryablehttp and the transport, whose CloseIdleConnections it hides: one
// request's failure is not to cost the others their connections.
type tripper struct{}

func (tripper) RoundTrip(req *http.Request) (*http.Response, error) {
	return exchangeOf(req.Context()).try(req)
}

// try makes one try: it waits until the app may be there, gets a connection, sends the request and reads the whole answer. Where the
// connection came too late for the request's turn, it does so anew.
func (x *exchange) try(req *http.Request) (*http.Response, error) {
	x.again, x.result.Sent, x.result.Duration = false, false, 0
	for {
		x.expired.Store(false)
		x.asked, x.had = false, false
		err := x.ready()
		if err != nil {
			x.handBack()
			return nil, err
		}
		if x.client.links != nil {
			err = x.tryLean(req)
		} else {
			err = x.tryStandard(req)
		}
		switch {
		case err == nil:
			return &x.taken, nil
		case errors.Is(err, errLate):
			x.turned, x.lates = time.Time{}, min(x.lates+1, mostLate)
		default:
			x.fail(err)
			return nil, err
		}
	}
}

// fail says what a try without an answer came to.
func (x *exchange) fail(err error) {
	switch {
	case x.Context.Err() != nil, errors.Is(err, errUnwanted):
		x.handBack()
	case x.expired.Load() && x.client.h2 && !x.result.Sent:
		x.retry() // the app's limit of requests on a connection: it saw nothing of this one
	case x.expired.Load():
		x.result.Outcome = policy.Outcome{Kind: policy.NoAnswer, Error: x.client.late}
	case !x.asked:
		x.result.Outcome = policy.Outcome{Kind: policy.Undeliverable, Error: oneLine(err)}
	case !x.had:
		x.client.app.unreachable(err)
		x.result.Refused = true
		x.retry()
	case !x.result.Sent:
		x.retry()
	default:
		x.result.Outcome = policy.Outcome{Kind: policy.NoAnswer, Error: oneLine(err)}
	}
}

var errUnwanted = errors.New("the message is not to be sent any more")

// stillWanted returns an error if the message is not to be sent any more.
func (x *exchange) stillWanted() error {
	if x.wanted != nil && !x.wanted() {
		return errUnwanted
	}
	return nil
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

// begin prepares the exchange for a message.
func (c *Client) begin(ctx context.Context, t *Target, m *Message) *exchange {
	x, _ := c.exchanges.Get().(*exchange)
	if x == nil {
		x = &exchange{client: c}
		x.taken = http.Response{StatusCode: http.StatusOK, Body: http.NoBody}
		x.request = c.request(t, http.Header{}).WithContext(x)
	}
	dropped := 0
	if t.format != Raw && m.batch == nil {
		m, dropped = t.format.dress(m)
	}
	x.warned, x.stream, x.consumer = t.warned, m.Stream, m.Consumer
	x.Context, x.body, x.sending, x.wanted, x.result, x.keeps = ctx, m.Body, m.Sending, m.Wanted, Result{}, keptBytes
	if m.batch != nil {
		x.keeps = readBytes
	}
	if x.turn, x.lates = m.Turn, 0; x.turn != nil {
		x.turned = time.Now()
	}
	if c.links != nil {
		x.head, x.result.HeadersDropped = c.write(x.head[:0], t, m)
		x.signAt = len(t.head)
	} else {
		x.header, x.result.HeadersDropped = c.header(m)
	}
	x.result.HeadersDropped += dropped
	// http.Client would copy a header, for redirects that are not followed.
	x.request.Method, x.request.URL = t.method, t.url
	x.retried.Request = x.request
	return x
}

// finish keeps the exchange for another message, unless net/http may still hold it.
func (c *Client) finish(x *exchange) {
	if c.links == nil || cap(x.head) > 4*inlineBytes {
		return
	}
	x.Context, x.body, x.sending, x.wanted, x.turn, x.result = nil, nil, nil, nil, nil, Result{}
	c.exchanges.Put(x)
}
