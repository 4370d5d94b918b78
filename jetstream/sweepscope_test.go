package jetstream

import (
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// record makes the stream of the advisories as a sidecar does, and returns when it was made.
func (b *bench) record() time.Time {
	b.t.Helper()
	b.must(nil, NewSource(b.conn, b.config(), quiet()).createAdvisories(b.ctx, 1))
	info, err := b.conn.streamInfo(b.ctx, AdvisoryStream)
	b.must(nil, err)
	return info.Created
}

// taking edits the durable to take these subjects.
func (b *bench) taking(subjects ...string) {
	b.t.Helper()
	c := b.info().Config
	c.FilterSubject, c.FilterSubjects = "", subjects
	b.must(b.js.UpdateConsumer(b.ctx, "S", c))
}

// onSubject publishes a message on a subject.
func (b *bench) onSubject(subject string) {
	b.t.Helper()
	b.must(b.js.Publish(b.ctx, subject, []byte("x")))
}

// narrowBench is a work queue whose durable takes s.a and has delivered one, the second message. The first is on s.b.
func narrowBench(t *testing.T) *bench {
	b := newBench(t, natsjs.StreamConfig{Retention: natsjs.WorkQueuePolicy})
	b.must(b.js.CreateConsumer(b.ctx, "S", natsjs.ConsumerConfig{
		Durable: "d", AckPolicy: natsjs.AckExplicitPolicy, AckWait: time.Minute, MaxDeliver: 2, MaxAckPending: 1000, FilterSubjects: []string{"s.a"},
	}))
	b.onSubject("s.b")
	b.onSubject("s.a")
	return b
}

func (b *bench) ackOne() {
	b.t.Helper()
	b.next().Ack()
	b.eventually("it is acked", b.settled)
}

// What was stored since the advisories are kept is told by them, whatever the durable took then.
func TestSweepLeavesWhatTheAdvisoriesTell(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{Retention: natsjs.WorkQueuePolicy})
	b.must(b.js.CreateConsumer(b.ctx, "S", natsjs.ConsumerConfig{
		Durable: "d", AckPolicy: natsjs.AckExplicitPolicy, AckWait: time.Minute, MaxDeliver: 2, MaxAckPending: 1000, FilterSubjects: []string{"s.a"},
	}))
	b.record()
	b.onSubject("s.b")
	b.onSubject("s.a")
	b.run(b.config())
	b.ackOne()
	b.taking("s.a", "s.b")
	b.look(b.source.Sweep(), true)
}

// A durable that was made after the advisories were kept has given up on nothing that they do not tell of.
func TestSweepOfADurableYoungerThanTheRecord(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{Retention: natsjs.WorkQueuePolicy})
	b.onSubject("s.b")
	b.onSubject("s.a")
	b.record()
	b.must(b.js.CreateConsumer(b.ctx, "S", natsjs.ConsumerConfig{
		Durable: "d", AckPolicy: natsjs.AckExplicitPolicy, AckWait: time.Minute, MaxDeliver: 2, MaxAckPending: 1000, FilterSubjects: []string{"s.a"},
	}))
	b.run(b.config())
	b.ackOne()
	b.taking("s.a", "s.b")
	b.look(b.source.Sweep(), true)
}

// What a durable takes only since a sweep began was not delivered before it.
func TestSweepWhileTheFilterIsWidened(t *testing.T) {
	b := narrowBench(t)
	b.run(b.config())
	m := b.next()
	w := b.source.Sweep()
	b.look(w, true)
	m.Ack()
	b.eventually("it is acked", b.settled)
	b.taking("s.a", "s.b")
	b.look(w, true)
	b.look(w, true)
}

// A sweep that is over is so for later starts too, until the durable or the record is made anew.
func TestSweepOnce(t *testing.T) {
	b := narrowBench(t)
	b.run(b.config())
	b.ackOne()
	first := b.source.Sweep()
	b.look(first, true)
	if first.Keep(b.ctx) == nil {
		t.Fatal("it is kept where there is no durable for the advisories yet")
	}
	b.must(b.js.CreateConsumer(b.ctx, AdvisoryStream, natsjs.ConsumerConfig{
		Durable: b.source.advisoryConsumer().Durable, AckPolicy: natsjs.AckExplicitPolicy, FilterSubject: b.source.advisories(), Metadata: map[string]string{"mine": "stays"},
	}))
	b.must(nil, first.Keep(b.ctx))
	reader, err := b.source.advisoryDurable(b.ctx)
	b.must(nil, err)
	if c := reader.Config; c.Metadata["mine"] != "stays" || c.FilterSubject != b.source.advisories() {
		t.Errorf("the durable of the advisories is %+v", c)
	}
	b.taking("s.a", "s.b")
	later := b.source.Sweep()
	b.look(later, true)
	b.must(nil, later.Keep(b.ctx))

	b.must(nil, b.js.DeleteStream(b.ctx, AdvisoryStream))
	b.record()
	anew := b.source.Sweep()
	b.look(anew, false)
	b.look(anew, true, 1)
	if anew.Known() {
		t.Error("it is taken for known how often a message was delivered that never was")
	}
}

// How often a message was delivered that the server gave up on is known from the durable's books.
func TestSweepKnowsTheDeliveries(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{Retention: natsjs.WorkQueuePolicy})
	b.must(b.js.CreateConsumer(b.ctx, "S", natsjs.ConsumerConfig{
		Durable: "d", AckPolicy: natsjs.AckExplicitPolicy, AckWait: time.Second, MaxDeliver: 2, MaxAckPending: 1000,
	}))
	b.publish(2)
	for range 2 {
		b.elsewhere(2)
	}
	cons, err := b.js.Consumer(b.ctx, "S", "d")
	b.must(nil, err)
	b.eventually("the server has given up", func() bool {
		_, err := cons.Fetch(1, natsjs.FetchMaxWait(100*time.Millisecond)) // it looks when it is asked for messages
		return err == nil && b.info().NumAckPending == 0
	})
	b.run(b.config())
	w := b.source.Sweep()
	b.look(w, false)
	b.look(w, true, 1, 2)
	if !w.Known() {
		t.Error("it is taken for unknown how often they were delivered")
	}
}

// A message that another durable of a work queue has at work, which was edited not to take it any more, is not stranded.
func TestSweepOfWhatIsAtWorkElsewhere(t *testing.T) {
	b := narrowBench(t)
	other, err := b.js.CreateConsumer(b.ctx, "S", natsjs.ConsumerConfig{Durable: "other", AckPolicy: natsjs.AckExplicitPolicy, FilterSubjects: []string{"s.b", "s.c"}})
	b.must(nil, err)
	m, err := other.Next()
	b.must(nil, err)
	c := other.CachedInfo().Config
	c.FilterSubjects = []string{"s.c", "s.d"}
	b.must(b.js.UpdateConsumer(b.ctx, "S", c))
	b.must(nil, b.elsewhere(1)[0].DoubleAck(b.ctx))
	b.taking("s.a", "s.b")
	b.run(b.config())
	w := b.source.Sweep()
	for range 3 {
		b.look(w, false)
	}
	b.must(nil, m.DoubleAck(b.ctx))
	b.look(w, true)
}

// lostBench is a work queue whose durable takes s.a and has a limit of two deliveries, and a record of the advisories that a sidecar has swept with.
func lostBench(t *testing.T) *bench {
	b := newBench(t, natsjs.StreamConfig{Retention: natsjs.WorkQueuePolicy})
	b.record()
	b.must(b.js.CreateConsumer(b.ctx, "S", natsjs.ConsumerConfig{
		Durable: "d", AckPolicy: natsjs.AckExplicitPolicy, AckWait: time.Second, MaxDeliver: 2, MaxAckPending: 1000, FilterSubjects: []string{"s.a"},
	}))
	b.must(b.js.CreateConsumer(b.ctx, AdvisoryStream, natsjs.ConsumerConfig{
		Durable: NewSource(b.conn, b.config(), quiet()).advisoryConsumer().Durable, AckPolicy: natsjs.AckExplicitPolicy, FilterSubject: advisorySubject + "S.d",
	}))
	first := NewSource(b.conn, b.config(), quiet()).Sweep()
	b.look(first, true)
	b.must(nil, first.Keep(b.ctx))
	return b
}

// lose has the server give up on n messages of s.a, and loses the advisories.
func (b *bench) lose(n int) {
	b.t.Helper()
	for range n {
		b.onSubject("s.a")
	}
	b.elsewhere(n)
	b.elsewhere(n)
	cons, err := b.js.Consumer(b.ctx, "S", "d")
	b.must(nil, err)
	record, err := b.js.Stream(b.ctx, AdvisoryStream)
	b.must(nil, err)
	b.eventually("the server has given up", func() bool {
		_, err := cons.Fetch(1, natsjs.FetchMaxWait(100*time.Millisecond)) // it looks when it is asked for messages
		info, infoErr := record.Info(b.ctx)
		return err == nil && infoErr == nil && b.info().NumAckPending == 0 && info.State.Msgs == uint64(n)
	})
	b.must(nil, record.Purge(b.ctx))
}

// An advisory that is lost leaves nothing in a work queue for ever: the next sweep finds it in the durable's books.
func TestSweepOfALostAdvisory(t *testing.T) {
	b := lostBench(t)
	b.onSubject("s.b")
	b.lose(2)
	b.run(b.config())
	w := b.source.Sweep()
	b.look(w, false)
	b.look(w, true, 2, 3)
	if !w.Known() {
		t.Error("it is taken for unknown how often they were delivered")
	}
}

// A message that a durable passed over is not told where its filter was narrow for a while, also beside what was given up on.
func TestSweepAfterTheFilterWasNarrow(t *testing.T) {
	for name, lost := range map[string]int{"nothing lost": 0, "lost": 2} {
		t.Run(name, func(t *testing.T) {
			b := lostBench(t)
			b.onSubject("s.b")
			if lost > 0 {
				b.lose(lost)
			}
			b.onSubject("s.a")
			b.must(nil, b.elsewhere(1)[0].DoubleAck(b.ctx))
			b.taking("s.a", "s.b")
			b.run(b.config())
			w := b.source.Sweep()
			if lost > 0 {
				b.look(w, false) // what is not counted may yet leave the stream
			}
			b.look(w, true)
			b.look(w, true)
		})
	}
}

// What a durable gave up on of subjects that it takes no more does not stand for what it passed over of others.
func TestSweepAfterTheFilterWasMoved(t *testing.T) {
	b := lostBench(t)
	b.onSubject("s.b")
	b.lose(2)
	b.taking("s.b")
	b.run(b.config())
	w := b.source.Sweep()
	b.look(w, false)
	b.look(w, true)
	b.must(b.conn.RemoveStored(b.ctx, "S", 1))
	b.must(nil, w.Keep(b.ctx))
	b.taking("s.a")
	later := b.source.Sweep()
	b.look(later, false)
	b.look(later, true, 2, 3)
}

// Of what a durable ever took no more is kept than the server takes.
func TestTookToo(t *testing.T) {
	of := incarnation{time.Unix(1, 0), time.Unix(2, 0)}
	long := strings.Repeat("x", mostTook)
	for kept, want := range map[string]string{
		"":                           "s.a",
		of.key() + " s.b s.a":        "s.a s.b",
		incarnation{}.key() + " s.b": "s.a",
		of.key() + " " + long:        ">",
	} {
		if got := strings.Join(tookToo(kept, of, []string{"s.a"}), " "); got != want {
			t.Errorf("%.40q and s.a: %.40q, want %q", kept, got, want)
		}
	}
}

// Since when a record has all advisories.
func TestRecordedSince(t *testing.T) {
	made := time.Now().Add(-24 * time.Hour)
	now := made.Add(24 * time.Hour)
	for name, c := range map[string]struct {
		change func(*natsjs.StreamInfo)
		want   time.Time
	}{
		"as it is made":     {func(*natsjs.StreamInfo) {}, made},
		"an age limit":      {func(i *natsjs.StreamInfo) { i.Config.MaxAge = time.Hour }, now.Add(-time.Hour)},
		"a long age limit":  {func(i *natsjs.StreamInfo) { i.Config.MaxAge = 48 * time.Hour }, made},
		"the server's time": {func(i *natsjs.StreamInfo) { i.Config.MaxAge, i.TimeStamp = time.Hour, now.Add(-time.Minute) }, now.Add(-61 * time.Minute)},
		"full of bytes":     {func(i *natsjs.StreamInfo) { i.State.Bytes = advisoryBytes - 100 }, time.Time{}},
		"full of messages":  {func(i *natsjs.StreamInfo) { i.Config.MaxMsgs, i.State.Msgs = 2, 2 }, time.Time{}},
		"one of a subject":  {func(i *natsjs.StreamInfo) { i.Config.MaxMsgsPerSubject = 1 }, time.Time{}},
		"interest":          {func(i *natsjs.StreamInfo) { i.Config.Retention = natsjs.InterestPolicy }, time.Time{}},
		"other subjects":    {func(i *natsjs.StreamInfo) { i.Config.Subjects = []string{"x"} }, time.Time{}},
		"sealed":            {func(i *natsjs.StreamInfo) { i.Config.Sealed = true }, time.Time{}},
	} {
		record := &natsjs.StreamInfo{Created: made, Config: natsjs.StreamConfig{Subjects: []string{advisorySubject + ">"}, MaxBytes: advisoryBytes}}
		c.change(record)
		if got := recordedSince(record, advisorySubject+"S.d", now); !got.Equal(c.want) {
			t.Errorf("%s: since %v, want %v", name, got, c.want)
		}
	}
}
