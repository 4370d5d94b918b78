package test

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/policy"
)

// late is how much later than its delay a redelivery may be, on a busy machine. It is less than what is left of the ack wait after
// the longest delay: then a message whose nak was lost would come.
const late = patience

// delays are the delays that were decided for a message, by the log.
func (s *sidecar) delays(seq uint64) []time.Duration {
	var all []time.Duration
	for _, l := range s.log.settled(seq) {
		if l["verdict"] == "retry" {
			d, err := time.ParseDuration(fmt.Sprint(l["delay"]))
			if err != nil {
				s.t.Error(err)
			}
			all = append(all, d)
		}
	}
	return all
}

// gaps are the times between the end of one call and the begin of the next.
func gaps(calls []call) []time.Duration {
	var all []time.Duration
	for i := 1; i < len(calls); i++ {
		all = append(all, calls[i].begun.Sub(calls[i-1].ended))
	}
	return all
}

// waited checks each gap against the delay that was decided. The server's times are rounded to less than a millisecond.
func (w *world) waited(s *sidecar, seq uint64) {
	w.t.Helper()
	delays, gaps := s.delays(seq), gaps(w.app.of(seq))
	if len(gaps) > len(delays) {
		w.t.Fatalf("message %d: gaps %v, delays %v", seq, gaps, delays)
	}
	for i, gap := range gaps {
		if gap < delays[i]-time.Millisecond || gap > delays[i]+late {
			w.t.Errorf("message %d: %s after a delay of %s", seq, gap, delays[i])
		}
	}
}

func TestRetrySchedule(t *testing.T) {
	w := newWorld(t)
	w.app.on(always(reply{status: 500}))
	s := w.running(consumer(func(c *config.Consumer) {
		c.MaxDeliver = 6
		c.Retry = policy.RetryConfig{Initial: 80 * time.Millisecond, Multiplier: 2, Max: 400 * time.Millisecond, Jitter: 0.5, RetryAfterMax: time.Minute}
	}))
	var seqs []uint64
	for range 10 {
		seqs = append(seqs, w.publish("orders.a", "x"))
	}
	w.balance()
	different := map[time.Duration]bool{}
	for _, seq := range seqs {
		s.log.waitSettled(t, seq, 6)
		delays := s.delays(seq)
		for i, longest := range []time.Duration{80, 160, 320, 400, 400} {
			longest *= time.Millisecond
			if len(delays) != 5 || delays[i] < longest/2 || delays[i] > longest {
				t.Fatalf("delays %v, number %d is not in %s to %s", delays, i+1, longest/2, longest)
			}
			different[delays[i]] = true
		}
		w.waited(s, seq)
	}
	if len(different) < 25 {
		t.Errorf("%d different delays of 50: no jitter", len(different))
	}
}

func TestDelayIsNeverBelowATenth(t *testing.T) {
	w := newWorld(t)
	w.app.on(always(reply{status: 500}))
	s := w.running(consumer(func(c *config.Consumer) {
		c.MaxDeliver = 3
		c.Retry = policy.RetryConfig{Initial: 200 * time.Millisecond, Multiplier: 1, Max: 200 * time.Millisecond, Jitter: 1, RetryAfterMax: time.Minute}
	}))
	for range 40 {
		w.publish("orders.a", "x")
	}
	w.balance()
	for _, seq := range w.published {
		s.log.waitSettled(t, seq, 3)
		for _, d := range s.delays(seq) {
			if d < 20*time.Millisecond || d > 200*time.Millisecond {
				t.Errorf("delay %s", d)
			}
		}
		w.waited(s, seq)
	}
}

func TestRetryAfter(t *testing.T) {
	w := newWorld(t)
	s := w.running(consumer(func(c *config.Consumer) { c.Retry.RetryAfterMax = 1200 * time.Millisecond }))
	for _, c := range []struct {
		name, value     string
		status          int
		action          string
		least, at, most time.Duration
	}{
		{name: "seconds", value: "1", status: 503, least: time.Second, most: time.Second},
		{name: "of a 429", value: "1", status: 429, least: time.Second, most: time.Second},
		{name: "of an action", value: "1", status: 200, action: "retry", least: time.Second, most: time.Second},
		{name: "date", at: time.Hour, status: 503, least: 1200 * time.Millisecond, most: 1200 * time.Millisecond},
		{name: "large", value: "86400", status: 503, least: 1200 * time.Millisecond, most: 1200 * time.Millisecond},
		{name: "huge", value: "99999999999999999999999", status: 503, least: 1200 * time.Millisecond, most: 1200 * time.Millisecond},
		{name: "past", at: -time.Hour, status: 503, most: 10 * time.Millisecond},
		{name: "zero", value: "0", status: 503, most: 10 * time.Millisecond},
		{name: "negative", value: "-5", status: 503, most: 10 * time.Millisecond},
		{name: "nonsense", value: "soon", status: 503, most: 10 * time.Millisecond},
		{name: "fraction", value: "1.5", status: 503, most: 10 * time.Millisecond},
	} {
		value := c.value
		if c.at != 0 {
			value = time.Now().Add(c.at).UTC().Format(http.TimeFormat)
		}
		w.app.on(each(reply{status: c.status, header: map[string]string{"Retry-After": value, "Sidecar-Action": c.action}}, reply{status: 200}))
		seq := w.publish("orders.a", "x")
		s.log.waitSettled(t, seq, 2)
		if d := s.delays(seq); len(d) != 1 || d[0] < max(c.least, time.Millisecond) || d[0] > c.most {
			t.Errorf("%s: delays %v, want %s to %s", c.name, d, c.least, c.most)
		}
		w.waited(s, seq)
	}
	w.balance()
}

// A date is a whole second, so that the delay to it is known to one.
func TestRetryAfterDate(t *testing.T) {
	w := newWorld(t)
	s := w.running()
	at := time.Now().Add(2 * time.Second).Truncate(time.Second)
	w.app.on(each(reply{status: 503, header: map[string]string{"Retry-After": at.UTC().Format(http.TimeFormat)}}, reply{status: 200}))
	seq := w.publish("orders.a", "x")
	w.balance()
	s.log.waitSettled(t, seq, 2)
	if second := w.app.of(seq)[1].begun; second.Before(at.Add(-time.Millisecond)) {
		t.Errorf("called %s before the date", at.Sub(second))
	}
}

func TestMaxDeliverIsExact(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			w := newWorld(t)
			w.app.on(always(reply{status: 503}))
			s := w.running(consumer(func(c *config.Consumer) { c.MaxDeliver = n }))
			seq := w.publish("orders.a", "x")
			w.balance()
			e := w.deadOf(seq)
			if calls := len(w.app.of(seq)); calls != n || e.header.Get("Dlq-Reason") != "max_deliver" || e.header.Get("Dlq-Deliveries") != strconv.Itoa(n) {
				t.Errorf("%d calls, entry %v", calls, e.header)
			}
			s.log.waitSettled(t, seq, n)
			w.waited(s, seq)
		})
	}
}

func TestNoLimitRetriesOn(t *testing.T) {
	w := newWorld(t)
	w.app.on(func(c *call) reply {
		if c.nth < 15 {
			return reply{status: 500}
		}
		return reply{status: 200}
	})
	w.running(consumer(func(c *config.Consumer) { c.MaxDeliver = 0 }))
	seq := w.publish("orders.a", "x")
	w.balance()
	if n := len(w.app.of(seq)); n != 15 {
		t.Errorf("%d calls", n)
	}
}

func TestMaxAge(t *testing.T) {
	w := newWorld(t)
	w.app.on(func(c *call) reply {
		if c.subject == "orders.good" {
			return reply{status: 200}
		}
		return reply{status: 500}
	})
	const age = stall + time.Second // the young one is called before
	bad := w.publish("orders.bad", "x")
	good := w.publish("orders.good", "x")
	eventually(t, func() bool { return time.Since(w.storedAt(good)) > age }, text("the messages to be old"))
	w.running(consumer(func(c *config.Consumer) { c.MaxAge, c.MaxDeliver = age, 0 }))
	young := w.publish("orders.bad", "x")
	w.balance()
	for _, seq := range []uint64{bad, young} {
		e := w.deadOf(seq)
		if e.header.Get("Dlq-Reason") != "max_age" || e.header.Get("Dlq-Status") != "500" {
			t.Errorf("entry %v", e.header)
		}
		if failed, err := time.Parse(time.RFC3339Nano, e.header.Get("Dlq-Failed-At")); err != nil || failed.Sub(w.storedAt(seq)) < age {
			t.Errorf("dead-lettered at the age of %s, %v", failed.Sub(w.storedAt(seq)), err)
		}
	}
	if old, fresh := len(w.app.of(bad)), len(w.app.of(young)); old != 1 || fresh < 2 {
		t.Errorf("%d calls of the old message, %d of the young one", old, fresh)
	}
}

// The smaller limit counts: the server's, of a durable made by somebody else.
func TestMaxDeliverOfTheServer(t *testing.T) {
	w := newWorld(t)
	w.durableOf(func(c *natsjs.ConsumerConfig) { c.MaxDeliver = 3 })
	w.app.on(always(reply{status: 503}))
	w.running()
	seq := w.publish("orders.a", "x")
	w.waitDead(1)
	w.balance()
	e := w.deadOf(seq)
	if n := len(w.app.of(seq)); n != 3 || e.header.Get("Dlq-Reason") != "max_deliver" || e.header.Get("Dlq-Deliveries") != "3" {
		t.Errorf("%d calls, entry %v", n, e.header)
	}
	if got := w.app.of(seq)[0].header.Get("Nats-Max-Deliver"); got != "3" {
		t.Errorf("Nats-Max-Deliver %q", got)
	}
}
