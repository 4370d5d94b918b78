package test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

// reply is what the app does with one call.
type reply struct {
	status  int
	header  map[string]string
	body    string
	gate    <-chan struct{} // it answers when this is closed, or never: the caller went away first
	delay   time.Duration   // it answers that much later
	raw     string          // written to the connection instead of an answer, which is closed then
	reset   bool            // the connection is cut without an answer
	trickle bool            // it begins a 200 and never ends it, until the caller goes away
	means   string          // what the answer means where it is not the default
}

// accepted reports whether the message is done by this answer.
func (r reply) accepted() bool {
	if r.raw != "" || r.reset {
		return false
	}
	if r.means != "" {
		return r.means == "ack" || r.means == "drop"
	}
	switch strings.ToLower(strings.TrimSpace(r.header["Sidecar-Action"])) {
	case "ack", "drop":
		return true
	case "retry", "dlq":
		return false
	}
	return r.status/100 == 2
}

// call is one request that reached the app.
type call struct {
	protocol  int // HTTP's major version
	nth       int // of this message, from 1
	seq       uint64
	delivered string
	subject   string
	method    string
	uri, host string
	header    http.Header
	body      string
	length    int64
	encoding  []string
	begun     time.Time
	ended     time.Time // zero while it lasts
	reply     reply
	answered  bool // the answer was given; false if the caller went away before
}

// fakeApp is a real HTTP server on an address of its own, also while it is down.
type fakeApp struct {
	t       *testing.T
	network string
	address string

	mu      sync.Mutex
	script  func(*call) reply
	ready   func() int // status of GET requests
	calls   []*call
	probes  int
	open    int
	most    int // calls at a time
	server  *http.Server
	serving sync.WaitGroup
	conns   int // made so far
	// protocols it speaks when it is up the next time; nil: HTTP/1.1
	protocols *http.Protocols
}

func newApp(t *testing.T) *fakeApp {
	t.Helper()
	port, err := localnats.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return appAt(t, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}

// appAt runs an app at an address, which answers 200.
func appAt(t *testing.T, network, address string) *fakeApp {
	t.Helper()
	a := &fakeApp{t: t, network: network, address: address}
	a.script = func(*call) reply { return reply{status: 200} }
	a.ready = func() int { return 200 }
	a.up()
	t.Cleanup(a.down)
	return a
}

func (a *fakeApp) url() string { return "http://" + a.address }

// on sets what the app does from now on.
func (a *fakeApp) on(script func(*call) reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.script = script
}

// always is a script of the same answer.
func always(r reply) func(*call) reply { return func(*call) reply { return r } }

// each is a script of one answer after the other to every message; the last one stays.
func each(rs ...reply) func(*call) reply {
	return func(c *call) reply { return rs[min(c.nth, len(rs))-1] }
}

func (a *fakeApp) up() {
	a.t.Helper()
	ln, err := localnats.Listen(a.network, a.address)
	if err != nil {
		a.t.Fatal(err)
	}
	a.serve(ln)
}

// speakH2C makes it one that speaks HTTP/2 without TLS.
func (a *fakeApp) speakH2C() {
	a.down()
	a.protocols = new(http.Protocols)
	a.protocols.SetUnencryptedHTTP2(true)
	a.up()
}

func (a *fakeApp) upTLS(cert tls.Certificate) {
	a.t.Helper()
	ln, err := localnats.Listen(a.network, a.address)
	if err != nil {
		a.t.Fatal(err)
	}
	a.serve(tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{cert}}))
}

func (a *fakeApp) serve(ln net.Listener) {
	s := &http.Server{Handler: a, ConnState: a.connState}
	a.mu.Lock()
	s.Protocols = a.protocols
	a.server = s
	a.mu.Unlock()
	a.serving.Go(func() { _ = s.Serve(ln) })
}

func (a *fakeApp) connState(_ net.Conn, s http.ConnState) {
	if s == http.StateNew {
		a.mu.Lock()
		a.conns++
		a.mu.Unlock()
	}
}

// down stops listening and cuts all connections.
func (a *fakeApp) down() {
	a.mu.Lock()
	s := a.server
	a.server = nil
	a.mu.Unlock()
	if s != nil {
		s.Close()
	}
	a.serving.Wait()
	eventually(a.t, func() bool { return a.inFlight() == 0 }, text("the app's calls to end"))
}

// close stops listening, and lets what is being answered end.
func (a *fakeApp) close() {
	a.mu.Lock()
	s := a.server
	a.mu.Unlock()
	ctx, cancel := within()
	defer cancel()
	_ = s.Shutdown(ctx)
}

// refuses waits until nobody can connect.
func (a *fakeApp) refuses() {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for {
		nc, err := net.Dial(a.network, a.address)
		if err != nil {
			return
		}
		nc.Close()
		<-look.C
	}
}

// ServeHTTP is the app.
func (a *fakeApp) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		a.probe(rw)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller was cut off while sending
	}
	c, script := a.begin(r, string(body))
	rep := script(c)
	answer(rw, r, rep, func(answered bool) { a.end(c, rep, answered) })
}

func (a *fakeApp) probe(rw http.ResponseWriter) {
	a.mu.Lock()
	a.probes++
	ready := a.ready
	a.mu.Unlock()
	rw.WriteHeader(ready())
}

func (a *fakeApp) begin(r *http.Request, body string) (*call, func(*call) reply) {
	seq, _ := strconv.ParseUint(r.Header.Get("Nats-Sequence"), 10, 64)
	c := &call{
		protocol: r.ProtoMajor,
		nth:      1, seq: seq, delivered: r.Header.Get("Nats-Num-Delivered"), subject: r.Header.Get("Nats-Subject"), method: r.Method,
		uri: r.RequestURI, host: r.Host, header: r.Header, body: body, length: r.ContentLength, encoding: r.TransferEncoding, begun: time.Now(),
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, other := range a.calls {
		if other.seq == seq && other.header.Get("Nats-Consumer") == r.Header.Get("Nats-Consumer") {
			c.nth++
		}
	}
	a.calls = append(a.calls, c)
	a.open++
	a.most = max(a.most, a.open)
	return c, a.script
}

// end notes the end of a call: before the caller can know of it, who may call again at once.
func (a *fakeApp) end(c *call, r reply, answered bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c.ended, c.reply, c.answered = time.Now(), r, answered
	a.open--
}

// answer gives the answer. It tells whether it can before the caller has any of it.
func answer(rw http.ResponseWriter, r *http.Request, rep reply, ended func(answered bool)) {
	if rep.delay > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), rep.delay)
		defer cancel()
		rep.gate = ctx.Done()
	}
	if rep.gate != nil {
		select {
		case <-rep.gate:
		case <-r.Context().Done():
			ended(false)
			return
		}
	}
	switch {
	case rep.raw != "" || rep.reset:
		cut(rw, rep.raw, ended)
		return
	case rep.trickle:
		ended(trickle(rw, r))
		return
	}
	for name, value := range rep.header {
		rw.Header().Set(name, value)
	}
	rw.WriteHeader(rep.status)
	ended(true)
	io.WriteString(rw, rep.body)
}

// trickle answers a byte at a time, for ever.
func trickle(rw http.ResponseWriter, r *http.Request) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		io.WriteString(rw, ".")
		if http.NewResponseController(rw).Flush() != nil {
			return false
		}
		select {
		case <-r.Context().Done():
			return false
		case <-tick.C:
		}
	}
}

// cut writes raw bytes, if any, and closes the connection.
func cut(rw http.ResponseWriter, raw string, ended func(answered bool)) {
	nc, _, err := http.NewResponseController(rw).Hijack()
	ended(err == nil)
	if err != nil {
		return
	}
	defer nc.Close()
	if tcp, ok := nc.(*net.TCPConn); ok && raw == "" {
		tcp.SetLinger(0)
	}
	io.WriteString(nc, raw)
}

// of returns the calls of a message, copied.
func (a *fakeApp) of(seq uint64) []call {
	return slices.DeleteFunc(a.all(), func(c call) bool { return c.seq != seq })
}

// all returns all calls, copied, as they came.
func (a *fakeApp) all() []call {
	a.mu.Lock()
	defer a.mu.Unlock()
	cs := make([]call, len(a.calls))
	for i, c := range a.calls {
		cs[i] = *c
	}
	return cs
}

// lastBegun is when the last call came.
func (a *fakeApp) lastBegun() (last time.Time) {
	for _, c := range a.all() {
		if c.begun.After(last) {
			last = c.begun
		}
	}
	return last
}

func (a *fakeApp) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.calls)
}

func (a *fakeApp) inFlight() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open
}

func (a *fakeApp) peak() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.most
}

func (a *fakeApp) probed() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.probes
}

// setReady sets what the ready path answers.
func (a *fakeApp) setReady(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ready = func() int { return status }
}
