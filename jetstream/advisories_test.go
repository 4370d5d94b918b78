package jetstream

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

const advisoryOfBench = advisorySubject + "S.d"

func TestUnfitAdvisories(t *testing.T) {
	all := []string{advisorySubject + ">"}
	for name, c := range map[string]struct {
		have natsjs.StreamConfig
		fit  bool
	}{
		"all advisories":  {natsjs.StreamConfig{Subjects: all, Replicas: 3}, true},
		"this durable's":  {natsjs.StreamConfig{Subjects: []string{"x", advisoryOfBench}, Replicas: 3}, true},
		"another's":       {natsjs.StreamConfig{Subjects: []string{advisorySubject + "S.e"}, Replicas: 3}, false},
		"interest":        {natsjs.StreamConfig{Subjects: all, Replicas: 3, Retention: natsjs.InterestPolicy}, false},
		"one of each":     {natsjs.StreamConfig{Subjects: all, Replicas: 3, MaxMsgsPerSubject: 1}, false},
		"fewer replicas":  {natsjs.StreamConfig{Subjects: all, Replicas: 1}, false},
		"sealed":          {natsjs.StreamConfig{Subjects: all, Replicas: 3, Sealed: true}, false},
		"other subjects":  {natsjs.StreamConfig{Subjects: all, Replicas: 3, SubjectTransform: &natsjs.SubjectTransformConfig{}}, false},
		"small messages":  {natsjs.StreamConfig{Subjects: all, Replicas: 3, MaxMsgSize: 100}, false},
		"a bounded queue": {natsjs.StreamConfig{Subjects: all, Replicas: 3, Retention: natsjs.WorkQueuePolicy, MaxBytes: 1 << 20}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if why := unfitAdvisories(c.have, advisoryOfBench, 3); (why == "") != c.fit {
				t.Errorf("unfit: %q", why)
			}
		})
	}
}

// advisoryStream makes the stream of the advisories by hand, with some advisories about the bench's durable.
func (b *bench) advisoryStream(advisories int, change ...func(*natsjs.StreamConfig)) {
	b.t.Helper()
	c := natsjs.StreamConfig{Name: AdvisoryStream, Subjects: []string{advisorySubject + ">"}}
	for _, f := range change {
		f(&c)
	}
	b.must(b.js.CreateStream(b.ctx, c))
	b.must(b.js.Publish(b.ctx, advisorySubject+"S.another", []byte("0")))
	for i := range advisories {
		b.must(b.js.Publish(b.ctx, advisoryOfBench, fmt.Append(nil, i+1)))
	}
}

// readAdvisories reads them as with manage: none, until the test ends.
func (b *bench) readAdvisories(handle func(string) bool) {
	b.t.Helper()
	cfg := b.config()
	cfg.Manage = ManageNone
	s := NewSource(b.conn, cfg, quiet())
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.must(nil, s.EachAdvisory(ctx, quiet(), func(_ context.Context, body []byte) bool { return handle(string(body)) }))
	}()
	b.t.Cleanup(func() { cancel(); <-done })
}

func (b *bench) advisoriesLeft() uint64 {
	stream, err := b.js.Stream(b.ctx, AdvisoryStream)
	b.must(nil, err)
	return stream.CachedInfo().State.Msgs
}

// Without a durable each advisory of this durable is handled until it is done, then it is gone. One that is not done yet holds up no other.
func TestAdvisoriesWithoutADurable(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.eventually("a connection", b.conn.Connected)
	b.advisoryStream(3)
	var handled [4]atomic.Int32
	b.readAdvisories(func(body string) bool {
		n := handled[body[0]-'0'].Add(1)
		return body != "1" || n > 1
	})
	b.eventually("all are gone but another durable's", func() bool { return b.advisoriesLeft() == 1 })
	for i, want := range []int32{0, 2, 1, 1} {
		if n := handled[i].Load(); n != want {
			t.Errorf("advisory %d was handled %d times, want %d", i, n, want)
		}
	}
}

// Advisories that could not be removed are not handled at all: they would be again after each start.
func TestAdvisoriesThatCannotBeRemoved(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.eventually("a connection", b.conn.Connected)
	b.advisoryStream(1, func(c *natsjs.StreamConfig) { c.DenyDelete = true })
	cfg := b.config()
	cfg.Manage = ManageNone
	r := &advisoryReader{source: NewSource(b.conn, cfg, quiet()), log: quiet(), done: map[advisoryID]bool{}, handle: func(context.Context, []byte) bool {
		t.Error("it is handled")
		return true
	}}
	if err := r.pass(b.ctx); err == nil || !strings.Contains(err.Error(), "not permitted") {
		t.Errorf("error %v", err)
	}
}

// An advisory that is handled and could not be removed then is removed later, not handled again; one of a stream made anew is another.
func TestAdvisoryRemovedLater(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.eventually("a connection", b.conn.Connected)
	cfg := b.config()
	cfg.Manage = ManageNone
	handled := 0
	r := &advisoryReader{source: NewSource(b.conn, cfg, quiet()), log: quiet(), done: map[advisoryID]bool{}, removes: true}
	b.advisoryStream(1, func(c *natsjs.StreamConfig) { c.DenyDelete = true })
	r.handle = func(context.Context, []byte) bool { handled++; return true }
	for range 3 {
		if err := r.pass(b.ctx); err == nil {
			t.Fatal("it was removed")
		}
	}
	if handled != 1 {
		t.Errorf("handled %d times", handled)
	}
	b.must(nil, b.js.DeleteStream(b.ctx, AdvisoryStream))
	b.advisoryStream(1)
	b.must(nil, r.pass(b.ctx))
	if handled != 2 || b.advisoriesLeft() != 1 {
		t.Errorf("handled %d times, %d left", handled, b.advisoriesLeft())
	}
}

// checkWarns reports whether a check warns of something about the advisories.
func (b *bench) checkWarns(cfg ConsumerConfig, detail string) bool {
	return slices.ContainsFunc(b.conn.Check(b.ctx, cfg, DeadLetterConfig{}), func(f Finding) bool {
		return f.Level == Warning && f.What == "stream "+AdvisoryStream && strings.Contains(f.Detail, detail)
	})
}

func TestCheckOfTheAdvisories(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.eventually("a connection", b.conn.Connected)
	none := b.config()
	none.Manage = ManageNone
	durable := natsjs.ConsumerConfig{Durable: "d", AckPolicy: natsjs.AckExplicitPolicy}
	b.must(b.js.CreateConsumer(b.ctx, "S", durable))
	if b.checkWarns(none, "") {
		t.Error("a warning where the durable has no limit")
	}
	durable.MaxDeliver = 3
	b.must(b.js.UpdateConsumer(b.ctx, "S", durable))
	if !b.checkWarns(none, "it does not exist") {
		t.Error("no warning that there is no stream")
	}
	if b.checkWarns(b.config(), "") {
		t.Error("a warning about a stream that is to be made")
	}
	b.advisoryStream(0)
	if b.checkWarns(none, "") || b.checkWarns(b.config(), "") {
		t.Error("a warning about a stream that will do")
	}
	b.must(nil, b.js.DeleteStream(b.ctx, AdvisoryStream))
	b.advisoryStream(0, func(c *natsjs.StreamConfig) { c.DenyDelete, c.MaxMsgsPerSubject = true, 1 })
	if !b.checkWarns(none, "deny_delete") || !b.checkWarns(none, "max_msgs_per_subject") || b.checkWarns(b.config(), "deny_delete") {
		t.Error("what is wrong with the stream is not told")
	}
}
