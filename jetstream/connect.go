package jetstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/jetsidecar/jetsidecar/internal/certs"
)

const (
	// apiTimeout bounds one request to the JetStream API.
	apiTimeout = 3 * time.Second
	// askAgain is when a question is asked again, and then after twice that.
	askAgain = 300 * time.Millisecond
	// quietFor is how long a repeated complaint about the connection stays out of the log.
	quietFor = 30 * time.Second
)

// Conn is one connection to NATS, shared by all consumers of a process. It reconnects for ever, whatever the server says.
type Conn struct {
	client   atomic.Pointer[client]
	prefix   string // of the JetStream API, with the final dot
	imported bool   // the API may be another account's
	log      *slog.Logger

	making sync.Mutex // held while a DLQ stream is made, which several consumers may share

	mu       sync.Mutex
	watchers map[int]func(connected bool)
	nextID   int
	quiet    map[string]time.Time // when a complaint was last logged
	denials  map[string]time.Time // what the server refused, and when
	awaiting map[string]*awaited  // see untilRefused
	closed   chan struct{}
	version  string          // of the server, as it was last known
	trouble  string          // why the last try to connect did not succeed
	life     context.Context // ends with the present connection
	end      context.CancelFunc

	dialer        dialer
	leaving       joined        // see unsubscribe
	payload       atomic.Int64  // the most that the server takes, as it was last known
	limitsOf      atomic.Uint64 // the connection over which it is known for sure
	outages       spells
	resubscribing resubscribing
	full          time.Time            // when the server refused a subscription since there are too many; zero: it did not over this connection
	starving      map[*Source]struct{} // see refusedForLimit
	subs          subscriptions
	limits        limits

	trying atomic.Pointer[nats.Conn] // the client that connects; nil while it is made

	// How a client is made. Held while one is: its callbacks wait for that.
	dialing sync.Mutex
	connect func() (*nats.Conn, natsjs.JetStream, error)

	stopping context.Context // ends with Close
	stop     context.CancelFunc
}

// Dial makes a connection. It returns at once, also when no server can be reached: connecting goes on in the
// background, with jittered backoff, for ever. Errors are about the configuration only.
func Dial(cfg Config, log *slog.Logger) (*Conn, error) {
	c := newConn(cfg, log)
	opts, err := c.options(cfg)
	if err != nil {
		return nil, err
	}
	if err := c.start(cfg, opts); err != nil {
		return nil, err
	}
	return c, nil
}

func newConn(cfg Config, log *slog.Logger) *Conn {
	c := &Conn{
		prefix: apiPrefix(cfg), imported: cfg.APIPrefix != "", log: log,
		watchers: map[int]func(bool){}, quiet: map[string]time.Time{}, denials: map[string]time.Time{}, awaiting: map[string]*awaited{}, closed: make(chan struct{}),
	}
	c.life, c.end = context.WithCancel(context.Background())
	c.dialer.begin()
	c.stopping, c.stop = context.WithCancel(context.Background())
	c.starving = map[*Source]struct{}{}
	c.subs.all, c.limits.sent = map[*subscription]struct{}{}, map[*sending]struct{}{}
	return c
}

func newJetStream(nc *nats.Conn, cfg Config) (natsjs.JetStream, error) {
	opt := natsjs.WithDefaultTimeout(apiTimeout)
	switch {
	case cfg.APIPrefix != "":
		return natsjs.NewWithAPIPrefix(nc, strings.TrimSuffix(cfg.APIPrefix, "."), opt)
	case cfg.Domain != "":
		return natsjs.NewWithDomain(nc, cfg.Domain, opt)
	default:
		return natsjs.New(nc, opt)
	}
}

func apiPrefix(cfg Config) string {
	switch {
	case cfg.APIPrefix != "":
		return strings.TrimSuffix(cfg.APIPrefix, ".") + "."
	case cfg.Domain != "":
		return "$JS." + cfg.Domain + ".API."
	default:
		return "$JS.API."
	}
}

func (c *Conn) options(cfg Config) ([]nats.Option, error) {
	opts := []nats.Option{
		nats.Name(cfg.Name),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // credentials can be given back: never close for good
		nats.Timeout(connectTimeout),
		nats.SetCustomDialer(&c.dialer),
		nats.SkipHostLookup(), // the dialer does that
		nats.PingInterval(10 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.ReconnectToServer(func(pool []nats.Server, info nats.ServerInfo) (*nats.Server, time.Duration) {
			c.beforeTry(cfg)
			return c.dialer.choose(pool, info)
		}),
		// Nothing is buffered over a reconnect: an ack that waited there could reach a stream made anew.
		nats.ReconnectBufSize(-1),
		nats.ConnectHandler(c.onConnect),
		nats.ReconnectHandler(c.onConnect),
		nats.DisconnectErrHandler(c.onDisconnect),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
			if c.stopping.Err() == nil {
				c.onUnreachable(redact(c.dialer.why(err), cfg))
			}
		}),
		nats.ClosedHandler(c.onClosed),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { c.onAsyncError(err) }),
	}
	auth, err := authOptions(cfg)
	if err != nil {
		return nil, err
	}
	secure, err := tlsOptions(cfg.TLS)
	if err != nil {
		return nil, err
	}
	return append(append(opts, auth...), secure...), nil
}

func authOptions(cfg Config) ([]nats.Option, error) {
	switch {
	case cfg.CredsFile != "":
		if err := CheckCreds(cfg.CredsFile); err != nil {
			return nil, fmt.Errorf("nats.creds_file: %w", err)
		}
		return []nats.Option{nats.UserCredentials(cfg.CredsFile)}, nil
	case cfg.NkeySeedFile != "":
		opt, err := nkeyOption(cfg.NkeySeedFile)
		if err != nil {
			return nil, fmt.Errorf("nats.nkey_seed_file: %w", err)
		}
		return []nats.Option{opt}, nil
	case cfg.Token != "":
		return []nats.Option{nats.Token(cfg.Token)}, nil
	case cfg.User != "":
		return []nats.Option{nats.UserInfo(cfg.User, cfg.Password)}, nil
	default:
		return nil, nil
	}
}

// CheckCreds reads a credentials file as the client does when it connects, so that one that is broken is told at the start.
func CheckCreds(file string) error {
	contents, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if _, err := nkeys.ParseDecoratedJWT(contents); err != nil {
		return fmt.Errorf("%s: no user JWT in it: %w", file, err)
	}
	key, err := nkeys.ParseDecoratedUserNKey(contents)
	if err != nil {
		return fmt.Errorf("%s: no user seed in it: %w", file, err)
	}
	key.Wipe()
	return nil
}

// CheckNkeySeed reads a file with an nkey seed as Dial does.
func CheckNkeySeed(file string) error {
	_, err := nkeyOption(file)
	return err
}

func nkeyOption(file string) (nats.Option, error) {
	opt, err := nats.NkeyOptionFromSeed(file)
	if err != nil {
		return nil, fmt.Errorf("%s: no seed of a user in it: %w", file, err)
	}
	return opt, nil
}

// nkeyAnew is the option with the nkey as it is in its file now; none if there is none, or it cannot be read: then it is the one before.
func nkeyAnew(cfg Config) []nats.Option {
	if cfg.NkeySeedFile == "" {
		return nil
	}
	opt, err := nkeyOption(cfg.NkeySeedFile)
	if err != nil {
		return nil
	}
	return []nats.Option{opt}
}

// readNkey has the client's next handshake use the public key of the seed that is in the file now, as its signature does. The client's lock is held.
// Credentials the library reads anew by itself.
func (c *Conn) readNkey(file string) {
	nc := c.trying.Load()
	if nc == nil {
		return
	}
	if opt, err := nkeyOption(file); err == nil {
		_ = opt(&nc.Opts) // fails only without a func that signs
	}
}

func tlsOptions(cfg TLSConfig) ([]nats.Option, error) {
	var opts []nats.Option
	if cfg.HandshakeFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	if cfg.CAFile == "" && cfg.CertFile == "" && cfg.ServerName == "" {
		return opts, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cfg.ServerName}
	if cfg.CAFile != "" {
		roots, err := certs.Pool(cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("nats.tls.ca_file: %w", err)
		}
		conf.RootCAs = roots
	}
	if cfg.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("nats.tls.cert_file: %w", err)
		}
		conf.Certificates = []tls.Certificate{cert}
	}
	return append(opts, nats.Secure(conf)), nil
}

// Connected reports whether there is a connection now. It waits for nothing.
func (c *Conn) Connected() bool { return c.dialer.up() }

// Flush waits until the server has processed everything sent so far.
func (c *Conn) Flush(ctx context.Context) error {
	if !c.Connected() {
		return ErrNotConnected
	}
	return c.nc().FlushWithContext(ctx)
}

// unsubscribe ends a subscription. Without a connection that may have to wait for the client: it is done beside then.
func (c *Conn) unsubscribe(sub interface{ Unsubscribe() error }) {
	if c.Connected() || c.stopping.Err() != nil {
		_ = sub.Unsubscribe() // fails only if it is gone already
		return
	}
	c.leaving.Go(func() { _ = sub.Unsubscribe() })
}

// drain ends a subscription once all that was sent to it has come.
func (c *Conn) drain(sub *subscription) {
	if !c.Connected() {
		c.unsubscribe(sub) // what was sent is lost
		return
	}
	_ = sub.Drain() // fails only if it is gone already
}

// mostPayload is the size of the largest message that the server says it takes; 0 if that is not known yet.
func (c *Conn) mostPayload() int64 {
	if c.Connected() {
		c.payload.Store(c.nc().MaxPayload())
	}
	return c.payload.Load()
}

// watch calls f at each change of the connection, until the returned func is called.
func (c *Conn) watch(f func(connected bool)) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.nextID
	c.nextID++
	c.watchers[id] = f
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watchers, id)
	}
}

func (c *Conn) notify(connected bool) {
	c.mu.Lock()
	fs := make([]func(bool), 0, len(c.watchers))
	for _, f := range c.watchers {
		fs = append(fs, f)
	}
	c.mu.Unlock()
	for _, f := range fs {
		f(connected)
	}
}

func (c *Conn) onConnect(nc *nats.Conn) {
	c.awaitUse()
	told := c.outages.told()
	addr, version := nc.ConnectedAddr(), nc.ConnectedServerVersion() // empty if it was cut again
	c.payload.Store(nc.MaxPayload())
	c.dialer.connected(nc)
	c.mu.Lock()
	c.trouble, c.version = "", cmp.Or(version, c.version)
	for key := range c.quiet {
		if told && strings.HasPrefix(key, "connect ") {
			delete(c.quiet, key)
		}
	}
	c.mu.Unlock()
	var attrs []any
	if addr != "" && version != "" {
		attrs = append(attrs, slog.String("server", addr), slog.String("version", version))
	}
	if told {
		c.log.Info("connected to nats", attrs...)
	}
	c.notify(true)
}

func (c *Conn) onDisconnect(nc *nats.Conn, err error) {
	if c.stopping.Err() != nil || !c.dialer.triesAgain() && nc.IsClosed() {
		return // onClosed is told next
	}
	msg := "connection closed"
	if err != nil {
		msg = oneLine(err.Error(), 300)
	}
	if c.outages.begin(c.comesAndGoes) {
		c.log.Warn("disconnected from nats", slog.String("error", msg))
	}
	c.limits.forget()
	c.away()
}

// comesAndGoes tells of outages that were not told one by one.
func (c *Conn) comesAndGoes(times int) {
	c.log.Warn("the connection to nats comes and goes", slog.Int("disconnections", times), slog.Bool("connected", c.Connected()))
}

func (c *Conn) onAsyncError(err error) {
	if errors.Is(err, nats.ErrBadHeaderMsg) {
		return // seen on the message itself, and counted there
	}
	if isOfHandshake(err) {
		return // see tellHandshake
	}
	text := oneLine(err.Error(), 300)
	kind := text
	if !c.Connected() {
		kind = unreachable(text)
	}
	if errors.Is(err, nats.ErrMaxSubscriptionsExceeded) {
		c.refusedForLimit()
		return
	}
	if errors.Is(err, nats.ErrPermissionViolation) {
		c.refused(text)
		c.endRefused(err.Error())
		if subject, subscription, ok := parseRefusal(text); ok {
			kind = fmt.Sprintf("refused %t %s", subscription, c.refusedKind(subject))
			if subscription && strings.HasPrefix(subject, nats.InboxPrefix) {
				defer c.resubscribe(subject)
			}
		}
	}
	c.complain(kind, "nats reported an error", slog.String("error", text))
}

// maxDenials bounds how many refusals are remembered.
const maxDenials = 100

// refused notes that the server refused a subject, which the text names in quotes.
func (c *Conn) refused(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.denials) >= maxDenials {
		clear(c.denials)
	}
	c.denials[text] = time.Now()
}

// denied reports whether the server refused a subject within the last minute, for lack of permission.
func (c *Conn) denied(subject string) bool {
	_, yes := c.deniedAt(subject)
	return yes
}

// deniedAt is denied that also tells when.
func (c *Conn) deniedAt(subject string) (at time.Time, yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for text, at := range c.denials {
		if time.Since(at) < time.Minute && strings.Contains(text, `"`+subject+`"`) {
			return at, true
		}
	}
	return time.Time{}, false
}

// deniedSince is denied for a request that was sent then or later.
func (c *Conn) deniedSince(subject string, began time.Time) bool {
	at, yes := c.deniedAt(subject)
	return yes && !at.Before(began)
}

// unreachable is the kind of complaint that is forgotten when there is a connection.
func unreachable(text string) string { return "connect " + strings.ToLower(text) }

// onUnreachable is called for each try to connect that does not succeed.
func (c *Conn) onUnreachable(err error) {
	text := oneLine(err.Error(), 300)
	c.mu.Lock()
	c.trouble = text
	c.mu.Unlock()
	c.complain(unreachable(text), "nats is not reachable, trying on", slog.String("error", text))
}

// Trouble is why there is no connection, as far as is known; empty while there is one.
func (c *Conn) Trouble() string {
	if c.Connected() {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trouble == "" {
		return "not connected"
	}
	return "not connected: " + c.trouble
}

// complain logs a warning, but not the same one again within quietFor.
func (c *Conn) complain(key, msg string, attrs ...slog.Attr) {
	now := time.Now()
	c.mu.Lock()
	last, seen := c.quiet[key]
	if seen && now.Sub(last) < quietFor {
		c.mu.Unlock()
		return
	}
	if len(c.quiet) >= 100 {
		clear(c.quiet)
	}
	c.quiet[key] = now
	c.mu.Unlock()
	c.log.LogAttrs(context.Background(), slog.LevelWarn, msg, attrs...)
}

// bounded is a context for a request: it ends after a time, and with the connection, since a request that was under way then
// is never answered.
func (c *Conn) bounded(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	c.mu.Lock()
	life := c.life
	c.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	ctx, done := context.WithTimeout(ctx, most)
	stop := context.AfterFunc(life, func() { cancel(ErrNotConnected) })
	return ctx, func() {
		stop()
		done()
		cancel(nil)
	}
}

// api sends one request to the JetStream API and decodes its answer into out. A refusal by the server is a *natsjs.APIError.
func (c *Conn) api(ctx context.Context, subject string, request []byte, out any) error {
	return c.ask(ctx, subject, request, out, c.nc().RequestWithContext)
}

// inquire is api for a question that may be asked more than once.
func (c *Conn) inquire(ctx context.Context, subject string, out any) error {
	return c.ask(ctx, subject, nil, out, c.insist)
}

type requester func(ctx context.Context, subject string, request []byte) (*nats.Msg, error)

func (c *Conn) ask(ctx context.Context, subject string, request []byte, out any, send requester) error {
	if !c.Connected() {
		return ErrNotConnected
	}
	ctx, cancel := c.bounded(ctx, apiTimeout)
	defer cancel()
	msg, err := send(ctx, c.prefix+subject, request)
	if err != nil && (isAway(err) || errors.Is(context.Cause(ctx), ErrNotConnected)) {
		return ErrNotConnected
	}
	if err != nil {
		return err
	}
	var answer struct {
		Error *natsjs.APIError `json:"error"`
	}
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		return fmt.Errorf("decoding the answer to %s: %w", subject, err)
	}
	if answer.Error != nil {
		return answer.Error
	}
	return json.Unmarshal(msg.Data, out)
}

// insist asks again, at longer and longer intervals, while there is no answer, and takes the first that comes. While a stream or a durable has no
// leader its servers are silent (nats-server jetstream_api.go, jsConsumerInfoRequest), and a question from then is not answered later.
func (c *Conn) insist(ctx context.Context, subject string, request []byte) (*nats.Msg, error) {
	type answer struct {
		msg *nats.Msg
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	answers := make(chan answer)
	var asked sync.WaitGroup
	defer asked.Wait()
	defer cancel()
	for wait := askAgain; ; wait *= 2 {
		asked.Go(func() {
			msg, err := c.nc().RequestWithContext(ctx, subject, request)
			select {
			case answers <- answer{msg, err}:
			case <-ctx.Done():
			}
		})
		again := time.NewTimer(wait)
		select {
		case a := <-answers:
			again.Stop()
			return a.msg, a.err
		case <-ctx.Done():
			again.Stop()
			return nil, ctx.Err()
		case <-again.C:
		}
	}
}

// redact takes user and password of the configured URLs out of an error's text.
func redact(err error, cfg Config) error {
	text := err.Error()
	for _, s := range cfg.URLs {
		u, perr := url.Parse(s)
		if perr != nil || u.User == nil {
			continue
		}
		text = strings.ReplaceAll(text, u.User.String()+"@", "")
		if p, ok := u.User.Password(); ok && p != "" {
			text = strings.ReplaceAll(text, p, "[redacted]")
		}
	}
	return errors.New(text)
}

// olderThan reports whether the server is of an older version: the one there is a connection to, or was last. One that is not known
// is not older.
func (c *Conn) olderThan(major, minor int) bool {
	text, _, _ := strings.Cut(c.serverVersion(), "-")
	parts := strings.Split(text, ".")
	if len(parts) < 2 {
		return false
	}
	a, err1 := strconv.Atoi(parts[0])
	b, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (a < major || a == major && b < minor)
}

// serverVersion is the version of the server that there is a connection to, or was last; empty if there never was one.
func (c *Conn) serverVersion() string {
	now := ""
	if c.Connected() {
		now = c.nc().ConnectedServerVersion() // empty without a connection
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now != "" {
		c.version = now
	}
	return c.version
}
