package jetstream

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Servers that close each connection right after the handshake, or after a while, are not connected to in a tight loop, however many there are.
func TestServersThatCloseEachConnection(t *testing.T) {
	for _, servers := range []int{1, 3} {
		for _, lasts := range []time.Duration{0, 100 * time.Millisecond, time.Second} {
			t.Run(fmt.Sprint(servers, " ", lasts), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					w := &fakeWire{take: func(*fakeWire, string, string, []byte) {}}
					for i := range servers {
						w.urls = append(w.urls, fmt.Sprintf("nats://127.0.0.1:%d", i+1))
					}
					c, err := w.client()
					if err != nil {
						t.Fatal(err)
					}
					defer w.set(true)
					defer hangUp(c)
					for began, n := time.Now(), 0; time.Since(began) < 5*time.Minute; {
						synctest.Wait()
						if !c.Connected() {
							time.Sleep(time.Millisecond)
							continue
						}
						time.Sleep(lasts)
						if n++; n%3 == 0 {
							w.send([]byte("-ERR 'gone'\r\n")) // another client takes over
						} else {
							w.set(true)
							w.set(false)
						}
					}
					if n := c.connections(); n < 60 || n > 200 {
						t.Errorf("%d connections in 5 minutes", n)
					}
				})
			})
		}
	}
}

// An outage is waited in from round to round over all servers, longer and longer. One after a connection that lasted begins without a wait.
func TestPace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := pace{delay: func(n int) time.Duration { return time.Duration(n) }}
		number := uint64(0)
		outage := func(lasted time.Duration, want ...time.Duration) {
			t.Helper()
			number++
			p.connected(number)
			time.Sleep(lasted)
			p.loses(number)
			p.loses(number)
			p.connected(number)
			for i, want := range want {
				if got := p.next(3); got != want {
					t.Errorf("wait %d is %d, want %d", i, got, want)
				}
				number++
				p.loses(number) // in the handshake
			}
		}
		outage(time.Hour, 0, 0, 1, 0, 0, 2, 0, 0, 3)
		outage(0, 1, 0, 2, 0)
		outage(brief-1, 2)
		if n := p.anew(0); n != 2 {
			t.Errorf("another client after %d", n)
		}
		outage(0, 3, 0, 4)
		outage(brief, 0, 0, 1)
		if n := p.anew(0); n != 1 {
			t.Errorf("another client after %d", n)
		}

		number++
		p.loses(number) // before it is told that there was one
		p.connected(number)
		if got := p.next(3); got != 1 {
			t.Errorf("a wait of %d", got)
		}
	})
}
