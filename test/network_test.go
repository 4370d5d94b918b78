package test

import (
	"bytes"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// far is a network between a sidecar and NATS that takes its time in either direction.
type far struct {
	ln    net.Listener
	to    string
	delay time.Duration
	wg    sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	apart bool // nothing gets through
	lose  int  // acks are lost on the way to NATS until so many are
	lost  int
	hold  string        // what is held on the way from NATS, and all after it
	let   chan struct{} // closed: nothing is held any more
}

// faraway puts NATS at a distance.
func faraway(t *testing.T, url string, delay time.Duration) *far {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &far{ln: ln, to: strings.TrimPrefix(url, "nats://"), delay: delay, let: make(chan struct{})}
	f.wg.Go(f.accept)
	t.Cleanup(func() { f.holdBack(""); f.close() })
	return f
}

// nats is an option to use NATS from there.
func (f *far) nats(c *config.Config) { c.NATS.URLs = []string{"nats://" + f.ln.Addr().String()} }

func (f *far) accept() {
	for near, err := f.ln.Accept(); err == nil; near, err = f.ln.Accept() {
		there, err := net.Dial("tcp", f.to)
		if err != nil {
			near.Close()
			continue
		}
		f.mu.Lock()
		f.conns = append(f.conns, near, there)
		if f.apart {
			near.Close()
		}
		f.mu.Unlock()
		f.wg.Go(func() { f.carry(near, there, f.eat) })
		f.wg.Go(func() { f.carry(there, near, f.wait) })
	}
}

// carry copies what comes, late.
func (f *far) carry(from, to net.Conn, eat func([]byte) bool) {
	type packet struct {
		at   time.Time
		data []byte
	}
	way := make(chan packet, 10000)
	f.wg.Go(func() {
		defer to.Close()
		for p := range way {
			<-time.After(time.Until(p.at))
			to.Write(p.data)
		}
	})
	defer close(way)
	for {
		buf := make([]byte, 32<<10)
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if !eat(buf[:n]) {
			way <- packet{time.Now().Add(f.delay), buf[:n]}
		}
	}
}

// eat loses acks, with what is sent together with them. The client library writes whole protocol messages.
func (f *far) eat(data []byte) bool {
	n := bytes.Count(data, []byte("+ACK")) + bytes.Count(data, []byte("+NXT"))
	f.mu.Lock()
	defer f.mu.Unlock()
	if n == 0 || f.lost >= f.lose {
		return false
	}
	f.lost += n
	return true
}

// wait holds what comes from NATS while it is to be held. Nothing is lost.
func (f *far) wait(data []byte) bool {
	f.mu.Lock()
	hold, let := f.hold, f.let
	f.mu.Unlock()
	if hold != "" && bytes.Contains(data, []byte(hold)) {
		<-let
	}
	return false
}

// holdBack holds the next answer of NATS that has this text in it, and all that comes after it on its connection, until it is called
// again. With an empty text nothing is held.
func (f *far) holdBack(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.let)
	f.hold, f.let = text, make(chan struct{})
}

// loseAcks lets acks be lost until so many are.
func (f *far) loseAcks(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lose = n
}

func (f *far) acksLost() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}

// cut cuts all connections there are.
func (f *far) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		c.Close()
	}
}

// part cuts all connections and lets none be made, or lets them be made again.
func (f *far) part(yes bool) {
	f.mu.Lock()
	f.apart = yes
	f.mu.Unlock()
	if yes {
		f.cut()
	}
}

func (f *far) close() {
	f.ln.Close()
	f.cut()
	f.wg.Wait()
}

// Leases are kept alive over a slow network too, with nothing to pull and with the app away.
func TestLeasesOverASlowNetwork(t *testing.T) {
	w := newWorld(t)
	open := make(chan struct{})
	w.app.on(func(*call) reply { return reply{status: 200, gate: open} })
	for range 2 {
		w.publish("orders.a", "x")
	}
	w.running(faraway(t, w.urls[0], 30*time.Millisecond).nats, consumer(func(c *config.Consumer) {
		c.AckWait, c.Concurrency, c.Prefetch = shortAckWait, 1, 1
	}))
	w.staysLeased(2)
	close(open)
	w.untouchedAtFirst()
}

// Much work over a slow network ends as it does over a fast one.
func TestLoadOverASlowNetwork(t *testing.T) {
	w := newWorld(t)
	w.app.on(badAndGood)
	w.running(faraway(t, w.urls[0], 30*time.Millisecond).nats)
	for i := range 200 {
		subject := "orders.good"
		if i%10 == 0 {
			subject = "orders.bad"
		}
		w.publish(subject, "x")
	}
	w.balance()
	if n := w.app.count(); n != 200 {
		t.Errorf("%d calls for 200 messages", n)
	}
}

// Acks that were written and never arrived are sent again, also without a new connection. Nothing is delivered again: the
// ack wait is far away.
func TestLostAcksAreSentAgain(t *testing.T) {
	for name, after := range map[string]func(*far){"cut": (*far).cut, "not cut": func(*far) {}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			open := make(chan struct{})
			w.app.on(func(*call) reply { return reply{status: 200, gate: open} })
			f := faraway(t, w.urls[0], 0)
			w.running(f.nats, consumer(func(c *config.Consumer) { c.AckWait, c.Concurrency, c.Prefetch = 10*time.Minute, 5, 0 }))
			for range 5 {
				w.publish("orders.a", "x")
			}
			eventually(t, func() bool { return w.app.inFlight() == 5 }, text("five calls"))
			f.loseAcks(math.MaxInt)
			close(open)
			eventually(t, func() bool { return f.acksLost() >= 5 }, text("five acks to be lost"))
			if n := w.consumer(durable).NumAckPending; n != 5 {
				t.Fatalf("%d are pending", n)
			}
			f.loseAcks(0)
			after(f)
			w.untouchedAtFirst()
			if n := w.consumer(durable).NumRedelivered; n != 0 {
				t.Errorf("%d were delivered again", n)
			}
		})
	}
}
