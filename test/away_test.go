package test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

// untouched holds that an outage cost no attempt: each message was called once, and none is dead.
//
// A message that the server sends just as the pulling stops comes back to it, and that counts as a delivery. Where this
// cannot happen, untouchedAtFirst holds more.
func (w *world) untouched() {
	w.t.Helper()
	w.balance()
	for _, c := range w.app.all() {
		if c.nth != 1 {
			w.t.Errorf("message %d: call %d", c.seq, c.nth)
		}
	}
	if dead := w.dead(); len(dead) > 0 {
		w.t.Errorf("%d entries in the DLQ", len(dead))
	}
}

// untouchedAtFirst is untouched, with each message called on its first delivery.
func (w *world) untouchedAtFirst() {
	w.t.Helper()
	w.untouched()
	for _, c := range w.app.all() {
		if c.delivered != "1" {
			w.t.Errorf("message %d was called on delivery %s", c.seq, c.delivered)
		}
	}
}

// outage is the configuration in which an outage that counted would show: one attempt, and a short ack wait.
var outage = consumer(func(c *config.Consumer) {
	c.MaxDeliver, c.AckWait, c.Concurrency, c.Prefetch = 1, shortAckWait, 2, 2
})

func TestAppAwayAtStart(t *testing.T) {
	w := newWorld(t)
	w.app.down()
	for range 10 {
		w.publish("orders.a", "x")
	}
	s := w.sidecar(outage)
	s.waitCheck("app", false)
	s.waitCheck("consumer", true)
	s.waitCheck("dlq", true)
	throughout(t, 500*time.Millisecond, func() bool { return w.consumer(durable).Delivered.Consumer == 0 }, text("nothing is pulled"))
	w.app.up()
	s.waitReady()
	w.untouchedAtFirst()
}

func TestAppGoesAwayUnderWay(t *testing.T) {
	w := newWorld(t)
	s := w.running(outage)
	for range 4 {
		w.publish("orders.a", "x")
	}
	w.waitDone()
	w.app.down()
	for range 10 {
		w.publish("orders.a", "x")
	}
	s.waitCheck("app", false)
	eventually(t, func() bool { return w.consumer(durable).NumWaiting == 0 }, text("the pulling to stop"))
	leased := w.consumer(durable)
	if leased.NumAckPending > 4 {
		t.Errorf("%d messages are leased", leased.NumAckPending)
	}
	// Longer than two ack waits: what is leased stays leased.
	throughout(t, 2*shortAckWait+time.Second, func() bool {
		now := w.consumer(durable)
		return now.Delivered.Consumer == leased.Delivered.Consumer && now.NumAckPending == leased.NumAckPending
	}, text("leases stay and nothing is pulled"))
	w.app.up()
	s.waitReady()
	w.untouched()
}

// What is leased and not sent yet when the app goes away stays leased, and spends no delivery.
func TestLeasesOutliveAnOutage(t *testing.T) {
	w := newWorld(t)
	open := make(chan struct{})
	w.app.on(func(*call) reply { return reply{status: 200, gate: open} })
	s := w.running(outage, func(c *config.Config) { c.App.Ready.Path = "/" })
	for range 10 {
		w.publish("orders.a", "x")
	}
	eventually(t, func() bool { return w.consumer(durable).NumAckPending == 4 && w.app.inFlight() == 2 }, text("leases"))
	w.app.setReady(503)
	s.waitCheck("app", false)
	close(open)
	throughout(t, 2*shortAckWait+time.Second, func() bool { return w.app.count() == 2 && w.consumer(durable).Delivered.Consumer == 4 },
		text("nothing is called or delivered"))
	if n := w.consumer(durable).NumAckPending; n != 2 {
		t.Errorf("%d messages are leased, want 2", n)
	}
	w.app.setReady(200)
	s.waitReady()
	w.untouchedAtFirst()
}

func TestAppComesAndGoes(t *testing.T) {
	w := newWorld(t)
	s := w.running(consumer(func(c *config.Consumer) { c.MaxDeliver = 3 }))
	for range 5 {
		for range 10 {
			w.publish("orders.a", "x")
		}
		w.waitDone()
		w.app.down()
		w.publish("orders.a", "x")
		s.waitCheck("app", false)
		w.app.up()
	}
	w.untouched()
}

func TestUnixSocketThatIsNotThereYet(t *testing.T) {
	w := newWorld(t)
	dir, err := os.MkdirTemp("", "app")
	w.must(err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	w.app.down()
	socket := filepath.Join(dir, "app.sock")
	w.publish("orders.a", "x")
	s := w.sidecar(outage, func(c *config.Config) { c.App.URL = "unix://" + socket })
	s.waitCheck("app", false)
	w.app = appAt(t, "unix", socket)
	s.waitReady()
	w.untouched()
	if c := w.app.all()[0]; c.uri != "/" || c.host != "localhost" {
		t.Errorf("%s at %q", c.uri, c.host)
	}
}

func TestAddressThatDoesNotResolve(t *testing.T) {
	w := newWorld(t)
	w.publish("orders.a", "x")
	s := w.sidecar(outage, func(c *config.Config) { c.App.URL = "http://no-such-host.invalid:80" })
	s.waitCheck("app", false)
	throughout(t, 300*time.Millisecond, func() bool { return len(w.dead()) == 0 }, text("nothing is dead-lettered"))
	w.must(s.stop())
	w.running(outage)
	w.balance()
}

// A TLS handshake that never ends is no connection, so that it is no attempt.
func TestHandshakeThatHangs(t *testing.T) {
	w := newWorld(t)
	w.app.down()
	cert, file := selfSigned(t)
	hung := newHole(t, w.app.address)
	w.publish("orders.a", "x")
	s := w.sidecar(outage, func(c *config.Config) { c.App.URL, c.App.CAFile = "https://"+w.app.address, file })
	eventually(t, func() bool { return hung.taken() >= 2 }, text("the app to be tried"))
	throughout(t, time.Second, func() bool { return len(w.dead()) == 0 }, text("nothing is dead-lettered"))
	hung.close()
	w.app.upTLS(cert)
	s.waitReady()
	w.untouched()
}

// hole takes connections and says nothing.
type hole struct {
	ln    net.Listener
	conns chan net.Conn
	done  chan struct{}
}

func newHole(t *testing.T, address string) *hole {
	t.Helper()
	ln, err := localnats.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	h := &hole{ln: ln, conns: make(chan net.Conn, 1000), done: make(chan struct{})}
	go func() {
		defer close(h.done)
		for nc, err := ln.Accept(); err == nil; nc, err = ln.Accept() {
			h.conns <- nc
		}
	}()
	t.Cleanup(h.close)
	return h
}

func (h *hole) taken() int { return len(h.conns) }

func (h *hole) close() {
	h.ln.Close()
	<-h.done
	for len(h.conns) > 0 {
		(<-h.conns).Close()
	}
}

// selfSigned is a certificate for 127.0.0.1 and the file that says to trust it.
func selfSigned(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

// An app that takes the connection and the request and never answers has been called: that is an attempt.
func TestAppThatTakesRequestsAndHangs(t *testing.T) {
	w := newWorld(t)
	w.app.on(each(reply{gate: make(chan struct{})}, reply{status: 200}))
	s := w.running(func(c *config.Config) { c.App.Timeout = shortTimeout }, consumer(func(c *config.Consumer) { c.MaxDeliver = 2 }))
	seq := w.publish("orders.a", "x")
	w.balance()
	if n := len(w.app.of(seq)); n != 2 {
		t.Errorf("%d calls", n)
	}
	if l := s.log.waitSettled(t, seq, 2); l[0]["verdict"] != "retry" || l[0]["status"] != 0.0 {
		t.Errorf("log lines %v", l)
	}
}

func TestReadyPathGates(t *testing.T) {
	w := newWorld(t)
	w.app.setReady(503)
	for range 5 {
		w.publish("orders.a", "x")
	}
	s := w.sidecar(outage, func(c *config.Config) { c.App.Ready.Path = "/healthz" })
	s.waitCheck("app", false)
	s.waitCheck("consumer", true)
	probed := w.app.probed()
	eventually(t, func() bool { return w.app.probed() > probed+3 }, text("probes"))
	if n, info := w.app.count(), w.consumer(durable); n > 0 || info.Delivered.Consumer > 0 {
		t.Errorf("%d calls, %d deliveries before the app was ready", n, info.Delivered.Consumer)
	}
	w.app.setReady(204)
	s.waitReady()
	w.waitDone()

	w.app.setReady(500)
	s.waitCheck("app", false)
	eventually(t, func() bool { return w.consumer(durable).NumWaiting == 0 }, text("the pulling to stop"))
	calls := w.app.count()
	for range 5 {
		w.publish("orders.a", "x")
	}
	throughout(t, 500*time.Millisecond, func() bool { return w.app.count() == calls }, text("nothing is called"))
	w.app.setReady(200)
	w.untouched()
}
