package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
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

// The library says that it is disconnected, and then closes the connection: that is the end of a client too, and told as such alone.
func TestEndIsNoDisconnection(t *testing.T) {
	onWire(t, func(conn *Conn, w *fakeWire, log *lockedText) {
		synctest.Wait()
		ended := conn.nc()
		w.send([]byte("-ERR 'Maximum Payload Violation'\r\n"))
		synctest.Wait()
		var told atomic.Int32
		defer conn.watch(func(bool) { told.Add(1) })()
		lost := conn.dialer.lost.Swap(0) // it is not closed yet
		conn.onDisconnect(ended, nil)
		conn.dialer.lost.Store(lost)
		if n := told.Load(); n > 0 || strings.Contains(log.String(), "disconnected") {
			t.Errorf("told %d times, log:\n%s", n, log)
		}
	})
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

// putAgain stores a dead letter that the server closes the connection over a few times. It is not stored by then.
func (b *bench) putAgain(d *DeadLetters, dl DeadLetter, most uint64) {
	b.t.Helper()
	before := b.conn.connections()
	var err error
	b.eventually("it is stored", func() bool {
		_, err = d.Put(b.ctx, dl)
		return err == nil
	})
	if n := b.conn.connections() - before; n == 0 || n > most {
		b.t.Errorf("it was stored after %d connections", n)
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

// setPayload has the server take another size than it told the client that is connected.
func (b *bench) setPayload(to int32) {
	b.t.Helper()
	opts := *b.opts
	opts.MaxPayload = to
	b.must(nil, b.server.ReloadOptions(&opts))
}

// A dead letter that is larger than a max_payload which the client was not told of is stored in two parts after that.
func TestPayloadIsLearnt(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	d := testLetters(b.conn)
	b.must(nil, d.Ensure(b.ctx))
	b.setPayload(400 << 10)
	b.putAgain(d, letter(make([]byte, 600<<10), nil), 1)
	if n := b.conn.mostPayload(); n != 400<<10 {
		t.Errorf("at most %d", n)
	}
}

// innocents stores small messages one after the other, several at a time, until it is ended: then it returns what none of them may be told.
func (b *bench) innocents(subject string) (end func() error) {
	ctx, stop := context.WithCancel(b.ctx)
	var all sync.WaitGroup
	var mu sync.Mutex
	var blamed error
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				within, cancel := b.conn.bounded(ctx, putTimeout)
				_, err := b.conn.publish(within, &nats.Msg{Subject: subject, Data: make([]byte, 1000)})
				cancel()
				mu.Lock()
				if errors.Is(err, ErrUnpublishable) {
					blamed = err
				}
				mu.Unlock()
				if err != nil {
					_ = pause(ctx, time.Millisecond)
				}
			}
		})
	}
	return func() error {
		stop()
		all.Wait()
		return blamed
	}
}

// Where the server closes the connection over one of several messages that are published at a time, whatever the one hears of it, none of the others
// is refused, then or later.
func TestNobodyElseIsBlamed(t *testing.T) {
	for name, guilty := range map[string]*nats.Msg{
		"payload": {Subject: "s.large", Data: make([]byte, 6<<20)},
		"line":    {Subject: "s." + strings.Repeat("x", 2000)},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{})
			opts := *b.opts
			opts.MaxControlLine = 1024
			b.opts = &opts
			b.limited(func(*server.Options) {})
			for range 5 {
				b.setPayload(8 << 20)
				b.must(nil, b.conn.nc().ForceReconnect())
				b.eventually("connected", func() bool { b.conn.limits.forget(); return b.conn.Connected() && b.conn.mostPayload() == 8<<20 })
				b.setPayload(400 << 10)
				end := b.innocents("s.small")
				before := b.conn.connections()
				b.eventually("it is refused", func() bool {
					within, cancel := b.conn.bounded(b.ctx, putTimeout)
					defer cancel()
					_, err := b.conn.publish(within, guilty)
					return errors.Is(err, ErrUnpublishable)
				})
				b.eventually("connected again", b.conn.Connected)
				if err := end(); err != nil {
					t.Fatal(err)
				}
				if n := b.conn.connections() - before; n > 3 {
					t.Errorf("%d connections", n)
				}
				if n := b.conn.limits.longest(); name == "line" && n < 1024 {
					t.Errorf("a line of %d bytes at most", n)
				}
			}
		})
	}
}

// What an account's limit is comes after the handshake. Nothing is published before.
func TestLimitOfTheAccount(t *testing.T) {
	onWire(t, func(conn *Conn, w *fakeWire, _ *lockedText) {
		w.slowDown(100 * time.Millisecond)
		w.send([]byte("INFO {\"server_id\":\"model\",\"version\":\"2.15.2\",\"proto\":1,\"headers\":true,\"max_payload\":1000}\r\n"))
		ctx, cancel := conn.bounded(context.Background(), putTimeout)
		defer cancel()
		_, err := conn.publish(ctx, &nats.Msg{Subject: "a", Data: make([]byte, 2000)})
		if !errors.Is(err, ErrUnpublishable) || conn.connections() != 1 {
			t.Errorf("%v", err)
		}
	})
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

// Over a line that is too long the longest is blamed of what the server may have read, and none if as long a one was answered.
func TestWhoMadeTheLine(t *testing.T) {
	const line, payload = "nats: maximum control line exceeded", "nats: Maximum Payload Violation"
	for name, c := range map[string]struct {
		number uint64 // of the connection over which the long one failed
		ends   string // what becomes of it before
		why    string
		blamed string
	}{
		"under way":                 {1, "", line, "long"},
		"not written":               {1, "failed", line, "long"},
		"answered":                  {1, "answered", line, ""},
		"over an earlier one":       {0, "failed", line, "short"},
		"the payload":               {1, "", payload, ""},
		"the payload, not written":  {1, "failed", payload, ""},
		"something else altogether": {1, "", "nats: gone", ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := &limits{sent: map[*sending]struct{}{}}
			send := func(n int) *sending {
				s, err := l.begin(&nats.Msg{Subject: strings.Repeat("x", n)}, 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			short, long := send(10), send(1000)
			if c.ends != "" {
				l.end(long, c.ends == "answered", c.number)
			}
			l.closed(c.why, 1)
			if over := l.end(short, false, 1); (over != "") != (c.blamed == "short") {
				t.Errorf("the short one: %q", over)
			}
			if over := l.end(long, false, 1); (over != "") != (c.blamed == "long" && c.ends == "") {
				t.Errorf("the long one: %q", over)
			}
			want := map[string]int{"short": short.line - 1, "long": long.line - 1, "": maxLine}[c.blamed]
			if n := l.longest(); n != want {
				t.Errorf("a line of %d at most, want %d", n, want)
			}
		})
	}
}

func TestLimitsAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := &limits{sent: map[*sending]struct{}{}}
		learn := func() {
			if _, err := l.begin(&nats.Msg{Subject: "a"}, 1<<20); err != nil {
				t.Fatal(err)
			}
			l.closed("nats: maximum control line exceeded", 1)
			if n := l.longest(); n >= maxLine {
				t.Errorf("a line of %d at most", n)
			}
		}
		learn()
		time.Sleep(limitsLast + 1)
		if n := l.longest(); n != maxLine {
			t.Errorf("a line of %d at most an hour later", n)
		}
		learn()
		l.forget()
		if n := l.longest(); n != maxLine {
			t.Errorf("a line of %d at most over another connection", n)
		}
	})
}
