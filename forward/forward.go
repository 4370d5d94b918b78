package forward

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/jetsidecar/jetsidecar/internal/certs"
	"github.com/jetsidecar/jetsidecar/policy"
)

// Options is what a Client needs beside its Config.
type Options struct {
	// Connections is how many connections to the app there can be, and are kept while in use: the concurrency of all
	// consumers together.
	Connections int
	// UserAgent is sent with messages that bring none; empty means jetsidecar.
	UserAgent string
	// OnAppChange is told when the app is found up or down, once for each change and in order; err is why it is down. It
	// must not block and must not call the client.
	OnAppChange func(up bool, err error)
	// Logger takes warnings; nil discards them.
	Logger *slog.Logger
}

// Client sends messages to one app. It is safe for concurrent use.
type Client struct {
	base    *url.URL
	host    string // the Host header
	timeout time.Duration
	late    string // the error of an attempt that took longer
	agent   string // User-Agent, unless the message brings one
	fixed   []fixedHeader
	lines   []byte          // fixed, as HTTP/1.1 writes it
	owned   map[string]bool // names that a message must not set because they are in fixed
	signer  *signer         // nil: requests are not signed
	ready   ReadyConfig
	h2      bool

	dialer    *dialer
	links     *links          // for messages, over plain HTTP/1.1
	transport *http.Transport // for messages otherwise
	probing   *http.Transport // for probes: never waits for a message's connection
	retry     *retryablehttp.Client
	app       *app
	exchanges sync.Pool // of *exchange
	log       *slog.Logger
	born      time.Time
}

// New checks the configuration and builds a client. It starts nothing; Run probes the app, and with a ready path no message
// is sent before a probe passed.
func New(c Config, o Options) (*Client, error) {
	c, faults := c.resolve()
	if o.Connections < 1 {
		faults = append(faults, fmt.Errorf("connections: %d is less than 1", o.Connections))
	}
	base, err := parseURL(c.URL)
	if err != nil {
		faults = append(faults, fmt.Errorf("url: %w", err))
	}
	var roots *x509.CertPool // nil: the system's
	if c.CAFile != "" {
		if roots, err = certs.Pool(c.CAFile); err != nil {
			faults = append(faults, fmt.Errorf("ca_file: %w", err))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}

	client := &Client{
		base:    base.url,
		timeout: c.Timeout,
		late:    "no answer within " + c.Timeout.String(),
		ready:   c.Ready,
		h2:      c.Protocol == "h2c",
		dialer: &dialer{
			network: base.network,
			address: base.socket,
			tls:     &tls.Config{RootCAs: roots, ServerName: base.url.Hostname(), MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(0)},
			dial:    new(net.Dialer).DialContext,
		},
		app:  newApp(c.Ready.Path != "", o.OnAppChange),
		log:  o.Logger,
		born: time.Now(),
	}
	if client.log == nil {
		client.log = slog.New(slog.DiscardHandler)
	}
	client.fix(c, base.user, o.UserAgent)
	if len(c.SigningSecret) > 0 {
		client.signer = newSigner(c.SigningSecret)
		client.owned["Webhook-Id"], client.owned["Webhook-Timestamp"], client.owned["Webhook-Signature"] = true, true, true
	}
	client.transport = client.newTransport(o.Connections)
	if client.h2 {
		b := &bounded{dialer: client.dialer, slots: make(chan struct{}, o.Connections), closeIdle: client.transport.CloseIdleConnections}
		client.transport.DialContext = b.dialContext
	}
	client.links = client.newLinks(o.Connections)
	client.probing = client.newTransport(1)
	client.probing.DisableKeepAlives = true
	client.retry = newRetry()
	return client, nil
}

// newTransport is tuned for one app and few, busy connections.
func (c *Client) newTransport(connections int) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!c.h2)
	protocols.SetUnencryptedHTTP2(c.h2)
	return &http.Transport{
		DialContext:            c.dialer.dialContext,
		DialTLSContext:         c.dialer.dialTLSContext,
		Protocols:              protocols,
		MaxIdleConns:           connections,
		MaxIdleConnsPerHost:    connections,
		MaxConnsPerHost:        connections,
		IdleConnTimeout:        keepIdle,
		DisableCompression:     true,
		MaxResponseHeaderBytes: headerBytes,
	}
}

// newRetry is the one place where a request is tried again: while no connection can be made, for ever, until its context ends.
func newRetry() *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient: &http.Client{
			Transport:     tripper{},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		RetryMax:     math.MaxInt,
		RetryWaitMin: 25 * time.Millisecond,
		RetryWaitMax: 2 * time.Second,
		CheckRetry: func(ctx context.Context, _ *http.Response, err error) (bool, error) {
			return err != nil && ctx.Err() == nil && exchangeOf(ctx).again, nil
		},
		Backoff: func(least, most time.Duration, tries int, _ *http.Response) time.Duration {
			return reconnectDelay(least, most, tries, rand.Float64())
		},
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
}

// reconnectDelay doubles from least to most, of which half is random.
func reconnectDelay(least, most time.Duration, tries int, random float64) time.Duration {
	delay := most
	if tries < 16 {
		delay = min(least<<tries, most)
	}
	return delay - time.Duration(random*float64(delay/2))
}

// Forward sends a message and reports what came of it. While no connection can be made it waits and tries again; that ends
// with a connection or with ctx. What ctx cuts off is handed back, never failed.
func (c *Client) Forward(ctx context.Context, t *Target, m *Message) Result {
	if t.batch {
		return c.forwardOne(ctx, t, m)
	}
	return c.exchange(ctx, t, m)
}

// exchange sends one request and reports what came of it.
func (c *Client) exchange(ctx context.Context, t *Target, m *Message) Result {
	x := c.begin(ctx, t, m)
	// A redirect whose target makes no sense is an error here, and an answer all the same.
	_, err := c.retry.Do(&x.retried)
	switch {
	case x.result.Kind != 0:
	case ctx.Err() != nil:
		x.handBack()
	default:
		x.result.Outcome = policy.Outcome{Kind: policy.Undeliverable, Error: oneLine(err)}
	}
	if x.result.Kind == policy.Answered {
		c.app.answered(x.since, x.since.Add(x.result.Duration))
	}
	result := x.result
	c.finish(x)
	return result
}

// Up reports whether the app was there when last looked at. Before the first look it is down.
func (c *Client) Up() bool { return c.app.up.Load() }

// LastError is why the app is down; nil while it is up.
func (c *Client) LastError() error { return c.app.lastError() }

// Close closes the idle connections. It is called after the last Forward returned.
func (c *Client) Close() {
	if c.links != nil {
		c.links.closeIdle()
	}
	c.transport.CloseIdleConnections()
	c.probing.CloseIdleConnections()
}
