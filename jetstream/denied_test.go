package jetstream

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// denied connects the bench to a server where a bucket of marks is, and returns the connection of a user who may not publish to a subject.
func (b *bench) denied(subject string) *Conn {
	opts := *b.opts
	opts.Port, opts.StoreDir = -1, b.t.TempDir()
	opts.NoAuthUser = "all"
	opts.Users = []*server.User{{Username: "all", Password: "p"}, {Username: "u", Password: "p", Permissions: &server.Permissions{
		Publish: &server.SubjectPermission{Deny: []string{subject}},
	}}}
	s := startServer(b.t, &opts)
	b.t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	b.connect(s.ClientURL())
	b.must(b.js.CreateKeyValue(b.ctx, natsjs.KeyValueConfig{Bucket: StateBucket}))
	conn, err := Dial(Config{URLs: []string{s.ClientURL()}, User: "u", Password: "p"}, quiet())
	b.must(conn, err)
	b.t.Cleanup(conn.Close)
	b.eventually("a connection", conn.Connected)
	return conn
}

// What the user may not do is told from what nobody answers, and in the same words for every message of a stream.
func TestDenied(t *testing.T) {
	for name, c := range map[string]struct {
		deny, named string // subjects
		do          func(b *bench, conn *Conn, stream string) error
	}{
		"removing": {"$JS.API.STREAM.MSG.DELETE.*", "$JS.API.STREAM.MSG.DELETE.S", func(b *bench, conn *Conn, stream string) error {
			_, err := conn.RemoveStored(b.ctx, stream, 4711)
			return err
		}},
		"storing a dead letter": {"dlq.>", "dlq.S.w.s.a", func(b *bench, conn *Conn, stream string) error {
			d := NewDeadLetters(conn, DeadLetterConfig{Stream: "D", Subject: "dlq.{stream}.{consumer}.{subject}", Create: true}, stream, "w", quiet())
			_, err := d.Put(b.ctx, DeadLetter{Message: &Message{Subject: "s.a", Sequence: 4711}})
			if errors.Is(err, ErrUnsure) {
				b.t.Error("it is not stored, that is sure")
			}
			return err
		}},
		"publishing again": {"s.a", "s.a", func(b *bench, conn *Conn, stream string) error {
			return conn.Republish(b.ctx, stream, "s.a", "id", nil, nil)
		}},
		"claiming": {"$KV.>", "$KV.sidecar-state." + claimsKey("S"), func(b *bench, conn *Conn, stream string) error {
			_, _, err := conn.OpenClaims(b.ctx, stream, "", ManageNone, "id", "owner")
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{})
			conn := b.denied(c.deny)
			b.must(b.js.CreateStream(b.ctx, natsjs.StreamConfig{Name: "S", Subjects: []string{"s.>"}}))
			err := c.do(b, conn, "S")
			if !errors.Is(err, ErrDenied) || !strings.HasSuffix(err.Error(), ": the user may not publish to "+c.named) || strings.Contains(err.Error(), "4711") {
				t.Errorf("%v", err)
			}
		})
	}
}

// A user who may not ack is told from one who may, also where the subjects of acks have domain and account in them.
func TestAcksDenied(t *testing.T) {
	for name, flags := range map[string]map[string]bool{"as ever": nil, "with domain and account": {"js_ack_fc_v2": true}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{})
			b.opts.FeatureFlags = flags
			b.conn = b.denied("$JS.ACK.>")
			b.must(b.js.CreateStream(b.ctx, natsjs.StreamConfig{Name: "S", Subjects: []string{"s.>"}}))
			b.run(b.config())
			b.publish(1)
			m := b.next()
			b.source.mu.Lock()
			subject := b.source.ackSubject()
			b.source.mu.Unlock()
			if !strings.HasPrefix(m.reply, subject) || strings.Count(subject, ".") != 4+len(flags)*2 {
				t.Errorf("acks to %s go to %s", m.reply, subject)
			}
			m.Ack()
			b.eventually("it is told that acks are refused", func() bool {
				st := b.source.Status()
				return !st.Bound && st.Detail == "the user may not ack: no permission to publish to "+subject+">"
			})
		})
	}
}

// With acks that nothing confirms, the durable shows that they work again after they were refused.
func TestAcksDeniedAndAllowedAgain(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	cfg := b.config()
	cfg.AckAsync = true
	b.run(cfg)
	b.publish(1)
	b.next().Ack()
	b.conn.mu.Lock()
	b.conn.denials[`Permissions Violation for Publish to "$JS.ACK.S.d.1.1.1.1.0"`] = time.Now()
	b.conn.mu.Unlock()
	b.eventually("it is told that acks are refused", func() bool { return strings.Contains(b.source.Status().Detail, "may not ack") })
	b.eventually("it is told no more", func() bool {
		b.publish(1)
		b.next().Ack()
		return b.source.Status().Bound
	})
}
