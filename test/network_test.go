package test

import (
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
}

// faraway puts NATS at a distance, and returns the address it has there.
func faraway(t *testing.T, url string, delay time.Duration) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &far{ln: ln, to: strings.TrimPrefix(url, "nats://"), delay: delay}
	f.wg.Go(f.accept)
	t.Cleanup(f.close)
	return "nats://" + ln.Addr().String()
}

func (f *far) accept() {
	for near, err := f.ln.Accept(); err == nil; near, err = f.ln.Accept() {
		there, err := net.Dial("tcp", f.to)
		if err != nil {
			near.Close()
			continue
		}
		f.mu.Lock()
		f.conns = append(f.conns, near, there)
		f.mu.Unlock()
		f.wg.Go(func() { f.carry(near, there) })
		f.wg.Go(func() { f.carry(there, near) })
	}
}

// carry copies what comes, late.
func (f *far) carry(from, to net.Conn) {
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
		way <- packet{time.Now().Add(f.delay), buf[:n]}
	}
}

func (f *far) close() {
	f.ln.Close()
	f.mu.Lock()
	for _, c := range f.conns {
		c.Close()
	}
	f.mu.Unlock()
	f.wg.Wait()
}

// Leases are kept alive over a slow network too, with nothing to pull and with the app away.
func TestLeasesOverASlowNetwork(t *testing.T) {
	w := newWorld(t)
	w.app.on(always(reply{status: 200, delay: 2500 * time.Millisecond}))
	for range 3 {
		w.publish("orders.a", "x")
	}
	address := faraway(t, w.urls[0], 30*time.Millisecond)
	w.running(func(c *config.Config) { c.NATS.URLs = []string{address} }, consumer(func(c *config.Consumer) {
		c.AckWait, c.Concurrency, c.Prefetch = time.Second, 1, 1
	}))
	w.untouchedAtFirst()
}

// Much work over a slow network ends as it does over a fast one.
func TestLoadOverASlowNetwork(t *testing.T) {
	w := newWorld(t)
	w.app.on(badAndGood)
	address := faraway(t, w.urls[0], 30*time.Millisecond)
	w.running(func(c *config.Config) { c.NATS.URLs = []string{address} })
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
