package jetstream

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// fakeWire is one client's way to a model of the server: it speaks the client protocol over a pipe, so that all of it can run in the time of
// a test bubble. It can be cut, and stalled: then what is sent arrives later.
type fakeWire struct {
	take func(w *fakeWire, subject, reply string, body []byte) // what the client published

	log  *slog.Logger // of the client; nil: none
	urls []string     // by which it knows the way; nil: one
	cfg  Config       // of the client, but for urls and name

	mu      sync.Mutex
	cut     bool
	cutAt   time.Time
	stalled bool
	flowing time.Time     // since when it is not
	slow    time.Duration // how long each way takes
	conn    net.Conn
	out     chan parcel
	subs    map[string]string // subject by sid
	hello   string            // the last CONNECT
}

// parcel is what is on its way.
type parcel struct {
	data   []byte
	sentAt time.Time
}

// stallStep is how exactly the end of a stall is noticed.
const stallStep = 20 * time.Millisecond

// client makes a client that uses the wire.
func (w *fakeWire) client() (*Conn, error) {
	c := newConn(Config{}, cmp.Or(w.log, quiet()))
	w.cfg.Name = "model"
	opts, err := c.options(w.cfg)
	if err != nil {
		return nil, err
	}
	c.dialer.open = w.dial
	if w.urls == nil {
		w.urls = []string{"nats://127.0.0.1:1"}
	}
	w.cfg.URLs = w.urls
	return c, c.start(w.cfg, opts)
}

// hangUp closes a client of a wire for good.
func hangUp(c *Conn) {
	c.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
}

// dial is what the client connects with.
func (w *fakeWire) dial(context.Context, string, string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut || w.stalled { // who waits for a handshake holds a lock too
		return nil, errors.New("cut off")
	}
	if w.out != nil {
		close(w.out) // of the one before, which the client ended
	}
	client, server := net.Pipe()
	w.conn, w.out, w.subs = server, make(chan parcel, 10000), map[string]string{}
	w.put([]byte("INFO {\"server_id\":\"model\",\"version\":\"2.15.2\",\"proto\":1,\"headers\":true,\"nonce\":\"n\",\"max_payload\":1048576}\r\n"))
	go w.write(server, w.out)
	go w.read(server)
	return client, nil
}

// set cuts the way, or lets the client connect again.
func (w *fakeWire) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut = cut; cut {
		w.cutAt = time.Now()
	}
	if w.conn != nil && cut {
		w.conn.Close()
		close(w.out)
		w.conn, w.out, w.subs = nil, nil, nil
	}
}

func (w *fakeWire) stall(yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stalled = yes; !yes {
		w.flowing = time.Now()
	}
}

// isApart reports whether the client is stalled, or was cut off at this very moment, or what came in a stall just arrives: it cannot know yet.
func (w *fakeWire) isApart() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stalled || time.Since(w.cutAt) < time.Millisecond || time.Since(w.flowing) < 2*stallStep
}

// flows waits while the way is stalled.
func (w *fakeWire) flows() {
	for {
		w.mu.Lock()
		stalled := w.stalled && !w.cut
		w.mu.Unlock()
		if !stalled {
			return
		}
		time.Sleep(stallStep)
	}
}

// slowDown has each way take so long from now on.
func (w *fakeWire) slowDown(each time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slow = each
}

// travels waits until what was sent arrives.
func (w *fakeWire) travels(sentAt time.Time) {
	w.mu.Lock()
	slow := w.slow
	w.mu.Unlock()
	time.Sleep(slow - time.Since(sentAt))
}

func (w *fakeWire) write(conn net.Conn, out <-chan parcel) {
	for p := range out {
		w.flows()
		w.travels(p.sentAt)
		if _, err := conn.Write(p.data); err != nil {
			return
		}
	}
}

// put sends something to the client. The caller holds mu.
func (w *fakeWire) put(data []byte) { w.out <- parcel{data: data, sentAt: time.Now()} }

// command is one that the client sent.
type command struct {
	words  []string
	body   []byte
	sentAt time.Time
}

// read takes what the client sends off the pipe at once, also while the way is stalled: a client that blocks on a write holds a lock, and with
// it stops the time of a bubble.
func (w *fakeWire) read(conn net.Conn) {
	commands := make(chan command, 10000)
	defer close(commands)
	go w.obey(conn, commands)
	in := bufio.NewReader(conn)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		c := command{words: strings.Fields(line), sentAt: time.Now()}
		if len(c.words) == 0 {
			continue
		}
		if name := c.words[0]; name == "PUB" || name == "HPUB" {
			size, _ := strconv.Atoi(c.words[len(c.words)-1])
			c.body = make([]byte, size+2)
			if _, err := io.ReadFull(in, c.body); err != nil {
				return
			}
			c.body = c.body[:size]
		}
		commands <- c
	}
}

// obey does what the client sent, if it is still connected the same way when that arrives.
func (w *fakeWire) obey(conn net.Conn, commands <-chan command) {
	for c := range commands {
		w.flows()
		w.travels(c.sentAt)
		if !w.isAt(conn) {
			continue
		}
		f := c.words
		switch f[0] {
		case "CONNECT":
			w.mu.Lock()
			w.hello = strings.Join(f[1:], " ")
			w.mu.Unlock()
		case "PING":
			w.send([]byte("PONG\r\n"))
		case "SUB":
			w.listen(f[len(f)-1], f[1])
		case "UNSUB":
			w.listen(f[1], "")
		case "PUB":
			w.take(w, f[1], strings.Join(f[2:len(f)-1], ""), c.body)
		case "HPUB":
			w.take(w, f[1], strings.Join(f[2:len(f)-2], ""), c.body)
		}
	}
}

func (w *fakeWire) isAt(conn net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.conn == conn
}

func (w *fakeWire) listen(sid, subject string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.subs == nil {
		return
	}
	if w.subs[sid] = subject; subject == "" {
		delete(w.subs, sid)
	}
}

// listens reports whether the client listens to a subject, as far as the server knows.
func (w *fakeWire) listens(subject string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pattern := range w.subs {
		if subjectMatches(pattern, subject) {
			return true
		}
	}
	return false
}

// deliver gives the client a message on a subject that it listens to, and reports whether it does.
func (w *fakeWire) deliver(subject, reply, header string, body []byte) bool {
	return w.deliverTo(subject, subject, reply, header, body)
}

// deliverTo gives the client a message by what it listens to, which may have another subject.
func (w *fakeWire) deliverTo(inbox, subject, reply, header string, body []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for sid, pattern := range w.subs {
		if !subjectMatches(pattern, inbox) {
			continue
		}
		if header == "" {
			w.put(fmt.Appendf(nil, "MSG %s %s %s %d\r\n%s\r\n", subject, sid, reply, len(body), body))
		} else {
			w.put(fmt.Appendf(nil, "HMSG %s %s %s %d %d\r\n%s%s\r\n", subject, sid, reply, len(header), len(header)+len(body), header, body))
		}
		return true
	}
	return false
}

func (w *fakeWire) send(b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.out != nil {
		w.put(b)
	}
}

func subjectMatches(pattern, subject string) bool {
	ps, ss := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, p := range ps {
		switch {
		case p == ">":
			return len(ss) > i
		case i >= len(ss) || p != "*" && p != ss[i]:
			return false
		}
	}
	return len(ps) == len(ss)
}
