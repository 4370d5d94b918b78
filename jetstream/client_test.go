package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// endsForGood is what the library closes a connection over, and never connects again.
var endsForGood = []string{"Maximum Payload Violation", "maximum control line exceeded", "a text that no client knows"}

// connections is how many connections were begun.
func (c *Conn) connections() uint64 { return c.dialer.tries.Load() }

// Whatever the server says, there is another connection soon after, with all that was subscribed to and is still wanted.
func TestClosedByTheServer(t *testing.T) {
	for _, text := range endsForGood {
		t.Run(text, func(t *testing.T) {
			onWire(t, func(conn *Conn, w *fakeWire, log *lockedText) {
				var mu sync.Mutex
				var seen []string
				note := func(what string) {
					mu.Lock()
					defer mu.Unlock()
					seen = append(seen, what)
				}
				defer conn.watch(func(connected bool) { note(fmt.Sprint(connected)) })()
				take := func(m *nats.Msg) { note(string(m.Data)) }
				kept, err := conn.subscribe("kept", take, func() { note("kept ended") })
				if err != nil {
					t.Fatal(err)
				}
				ended, err := conn.subscribe("ended", take, func() { note("ended") })
				if err != nil {
					t.Fatal(err)
				}
				_ = ended.Unsubscribe()
				cutOff, err := conn.subscribe("cutoff", take, func() { note("cut off ended") })
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				before, first := conn.connections(), conn.nc()

				w.send([]byte("-ERR '" + text + "'\r\n"))
				synctest.Wait()
				if !first.IsClosed() {
					t.Fatal("the library did not close it")
				}
				if conn.Connected() || !strings.Contains(conn.Trouble(), text) {
					t.Errorf("connected %t, trouble %q", conn.Connected(), conn.Trouble())
				}
				_ = cutOff.Unsubscribe()
				time.Sleep(time.Second)
				synctest.Wait()
				if !conn.Connected() || conn.connections() != before+1 {
					t.Errorf("connected %t, %d connections", conn.Connected(), conn.connections()-before)
				}
				if !strings.Contains(log.String(), text) {
					t.Errorf("the log does not say why:\n%s", log)
				}
				w.deliver("ended", "", "", []byte("to nobody"))
				w.deliver("cutoff", "", "", []byte("to nobody"))
				if !w.deliver("kept", "", "", []byte("hello")) {
					t.Error("it is not subscribed to any more")
				}
				synctest.Wait()
				_ = kept.Unsubscribe()
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if got, want := strings.Join(seen, ", "), "ended, false, cut off ended, true, hello, kept ended"; got != want {
					t.Errorf("%s, want %s", got, want)
				}
			})
		})
	}
}

// A server that closes each connection is not connected to in a tight loop, and is told of a few times a minute.
func TestClosedAgainAndAgain(t *testing.T) {
	onWire(t, func(conn *Conn, w *fakeWire, log *lockedText) {
		for range 10 * 60 * 10 { // ten minutes
			w.send([]byte("-ERR 'Maximum Payload Violation'\r\n"))
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		if n := conn.connections(); n < 100 || n > 400 {
			t.Errorf("%d connections in ten minutes", n)
		}
		if n := strings.Count(log.String(), "\n"); n > 10*8 {
			t.Errorf("%d lines in ten minutes:\n%s", n, log)
		}
	})
}

// breakOff has the server close the connection for good.
func (b *bench) breakOff() {
	b.t.Helper()
	before := b.conn.connections()
	b.must(nil, b.conn.nc().Publish("x."+strings.Repeat("x", 2*maxLine), nil))
	b.eventually("there is another connection", func() bool { return b.conn.Connected() && b.conn.connections() > before })
}

// A source goes on over a connection that was closed for good as over a reconnect: what is in work is settled, and no more is leased than may be.
func TestServedOnAfterTheEnd(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	cfg := b.config()
	cfg.AckWait = shortAckWait
	b.publish(40)
	b.run(cfg)
	m := b.next()
	for range 3 {
		b.breakOff()
		b.publish(20)
		if n := b.info().NumAckPending; n > cfg.Concurrency+cfg.Prefetch {
			t.Errorf("%d leased", n)
		}
	}
	m.Ack()
	ctx, cancel := context.WithCancel(b.ctx)
	var work sync.WaitGroup
	work.Go(func() {
		for m := b.source.Next(ctx); m != nil; m = b.source.Next(ctx) {
			m.Ack()
		}
	})
	b.eventually("everything is acked, also what was sent into nowhere", b.settled)
	cancel()
	work.Wait()
	if n := b.info().AckFloor.Stream; n != 100 {
		t.Errorf("%d acked", n)
	}
}

// Marks and claims are kept over the end of a connection.
func TestBucketAfterTheEnd(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	marks := NewMarks(b.conn, b.config())
	b.must(nil, marks.Set(b.ctx, "k", 2))
	k, _ := b.claims("a")
	b.take(k, 1)
	b.breakOff()
	if n, err := marks.Count(b.ctx, "k"); n != 2 || err != nil {
		t.Errorf("%d marks, %v", n, err)
	}
	if got, _ := b.take(k, 2); len(got) != 1 {
		t.Errorf("claimed %v", got)
	}
}

// limited is a bench with a server of smaller limits than a client is told, or knows.
func (b *bench) limited(change func(*server.Options)) {
	b.t.Helper()
	opts := *b.opts
	change(&opts)
	before := b.conn.connections()
	b.server.Shutdown()
	b.server.WaitForShutdown()
	b.server = startServer(b.t, &opts)
	server := b.server
	b.t.Cleanup(func() { server.Shutdown(); server.WaitForShutdown() })
	b.eventually("all are connected again", func() bool { return b.conn.connections() > before && b.conn.Connected() && b.nc.IsConnected() })
}

// putAgain stores a dead letter that the server closes the connection over a few times. It is not stored by then, and no other's fault.
func (b *bench) putAgain(d *DeadLetters, dl DeadLetter, most int) {
	b.t.Helper()
	for n := 0; ; n++ {
		_, err := d.Put(b.ctx, dl)
		if err == nil {
			if n == 0 || n > most {
				b.t.Errorf("it was stored after %d", n)
			}
			return
		}
		if !RefusedAlone(err) || errors.Is(err, ErrUnsure) || n > most {
			b.t.Fatal(err)
		}
		b.eventually("there is another connection", b.conn.Connected)
	}
}

// A dead letter whose subject is too long for the server's max_control_line, which it does not tell, is sent once like that.
func TestControlLineIsLearnt(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.limited(func(o *server.Options) { o.MaxControlLine = 1024 })
	d := testLetters(b.conn)
	b.must(nil, d.Ensure(b.ctx))
	before := b.conn.connections()
	for _, n := range []int{1200, 1100, 1300} {
		dl := letter([]byte("body"), nil)
		dl.Message.Subject, dl.Message.Sequence = "s."+strings.Repeat("x", n), uint64(n)
		if n == 1300 { // longer than one that was refused
			b.must(d.Put(b.ctx, dl))
		} else {
			b.putAgain(d, dl, 1)
		}
	}
	if n := b.conn.connections() - before; n != 2 {
		t.Errorf("%d connections were closed", n)
	}
	if stream, err := b.js.Stream(b.ctx, "S_DLQ"); err != nil || stream.CachedInfo().State.Msgs != 3 {
		t.Errorf("%v, %v", stream, err)
	}
}

// A dead letter that is larger than a max_payload which the client was not told of is stored in two parts after that.
func TestPayloadIsLearnt(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	d := testLetters(b.conn)
	b.must(nil, d.Ensure(b.ctx))
	opts := *b.opts
	opts.MaxPayload = 400 << 10
	b.must(nil, b.server.ReloadOptions(&opts))
	b.putAgain(d, letter(make([]byte, 600<<10), nil), 1)
}

// A message is published again with the longest line that a server takes by default, and not with a longer one.
func TestRepublishWithALongSubject(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	before := b.conn.connections()
	publish := func(n int) error {
		msg := &nats.Msg{Subject: "s.", Header: nats.Header{natsjs.MsgIDHeader: {"an id"}}, Data: []byte("body")}
		msg.Subject += strings.Repeat("x", n-measure(msg).line)
		return b.conn.Republish(b.ctx, "S", msg.Subject, "an id", nil, msg.Data)
	}
	b.must(nil, publish(maxLine))
	if err := publish(maxLine + 1); !errors.Is(err, ErrUnpublishable) {
		t.Errorf("%v", err)
	}
	if n := b.conn.connections(); n != before || !b.conn.Connected() {
		t.Error("the connection was closed")
	}
	// The same limit, held against the server.
	b.must(nil, b.conn.nc().PublishRequest("s."+strings.Repeat("x", maxLine-replySubject-5), strings.Repeat("r", replySubject), []byte("body")))
	b.must(nil, b.conn.nc().Flush())
	b.breakOff()
}

func TestLimitsAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newConn(Config{}, quiet())
		defer c.stop()
		send := func(bytes int) *sending {
			s, err := c.limits.begin(&nats.Msg{Subject: "a", Data: make([]byte, bytes)}, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		small, large := send(10), send(1000)
		c.limits.closed("nats: Maximum Payload Violation")
		if c.limits.end(small) != "" || c.limits.end(large) == "" {
			t.Error("it is not known which one it was")
		}
		if n := c.limits.largest(1 << 20); n != 750 {
			t.Errorf("at most %d", n)
		}
		time.Sleep(limitsLast + 1)
		if n := c.limits.largest(1 << 20); n != 1<<20 {
			t.Errorf("at most %d an hour later", n)
		}
		send(2000)
		c.limits.closed("nats: maximum control line exceeded")
		if n := c.limits.longest(); n >= maxLine {
			t.Errorf("a line of %d at most", n)
		}
		c.limits.forget()
		if n := c.limits.longest(); n != maxLine {
			t.Errorf("a line of %d at most over another connection", n)
		}
	})
}
