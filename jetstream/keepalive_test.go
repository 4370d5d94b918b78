package jetstream

import (
	"fmt"
	"testing"
	"time"
)

// Leases are kept over a network that is slow for their ack wait: a round that is not answered yet is not taken for lost, and looks at the durable
// are let come to their end.
func TestLeasesAreKeptOverASlowNetwork(t *testing.T) {
	for _, c := range []struct{ ackWait, roundTrip time.Duration }{
		{time.Second, 300 * time.Millisecond}, {2 * time.Second, 600 * time.Millisecond}, {3 * time.Second, 800 * time.Millisecond},
		{6 * time.Second, 1500 * time.Millisecond},
	} {
		for _, ordered := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, round trip %s, order %v", c.ackWait, c.roundTrip, ordered), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					b := runModel(t, c.ackWait, 6, func(cfg *ConsumerConfig) { cfg.Ordered, cfg.Prefetch = ordered, 6 })
					held := []*Message{b.next(), b.next()}
					b.wire.slowDown(c.roundTrip / 2)
					defer func() { b.wire.slowDown(0); time.Sleep(c.roundTrip) }()
					time.Sleep(10 * c.ackWait)
					for _, m := range held {
						if m.Lost() {
							t.Errorf("the lease of %d is lost", m.Sequence)
						}
						m.Ack()
					}
					for range 4 {
						m := b.next()
						time.Sleep(2 * c.ackWait)
						m.Ack()
					}
					time.Sleep(2 * c.ackWait)
					if n, p := b.deliveries(), b.pending(); n != 6 || p != 0 {
						t.Errorf("%d deliveries of 6 messages, %d pending", n, p)
					}
				})
			})
		}
	}
}

// A round that is not answered is missed in time, however many come after it, and so is one that an answer shows to have gone by.
func TestRoundsThatAreNotAnswered(t *testing.T) {
	const patience = time.Second
	at := time.Unix(0, 0)
	var r rounds
	for n := range uint64(10) {
		r.sent(n+1, at.Add(time.Duration(n)*patience/10))
	}
	if r.overdue(at.Add(patience-1), patience) {
		t.Error("missed too soon")
	}
	if !r.overdue(at.Add(patience), patience) {
		t.Error("later rounds hide that the first one is not answered")
	}
	if r.answered(1, at.Add(patience)) {
		t.Error("one is missing before the first")
	}
	if r.overdue(at.Add(patience+patience/10-1), patience) || !r.overdue(at.Add(patience+patience/10), patience) {
		t.Error("the second one is the oldest now")
	}
	if !r.answered(4, at.Add(patience)) {
		t.Error("the answer to the fourth does not tell that those before it went by")
	}
	if r.lose(); r.overdue(at.Add(time.Hour), patience) {
		t.Error("what is said again is missed again")
	}
	if r.answered(7, at.Add(patience)) {
		t.Error("what is said again is missed again, by an answer")
	}
	if r.answer < patience*4/10 || r.answer > patience {
		t.Errorf("answers take %s", r.answer)
	}
	if r.answered(2, at.Add(time.Hour)) || r.answer > patience {
		t.Error("an answer to what is forgotten counts")
	}
	for n := range uint64(10 * mostRounds) {
		r.sent(100+n, at)
	}
	if len(r.open) != mostRounds {
		t.Errorf("%d are remembered", len(r.open))
	}
}

// So it is with a long ack wait, where more rounds are sent in that time than are remembered; and the answer to a later one tells of it.
func TestRoundsThatAreNotAnsweredForLong(t *testing.T) {
	const patience, every = 10 * mostRounds * time.Second, time.Second
	for name, lost := range map[string]uint64{"none was lost before": 0, "some were lost before": mostRounds / 2} {
		t.Run(name, func(t *testing.T) {
			at := time.Unix(0, 0)
			var r rounds
			for n := range lost {
				r.sent(n+1, at)
			}
			r.lose()
			for n := range uint64(patience / every) {
				now := at.Add(time.Duration(n) * every)
				if r.overdue(now, patience) {
					t.Fatalf("missed after %s", now.Sub(at))
				}
				r.sent(lost+n+1, now)
			}
			if len(r.open) > mostRounds {
				t.Errorf("%d rounds are remembered", len(r.open))
			}
			if !r.overdue(at.Add(patience), patience) {
				t.Error("the first one is forgotten")
			}
			if !r.answered(lost+uint64(patience/every), at.Add(patience)) {
				t.Error("the answer to the last one does not tell that those before it went by")
			}
		})
	}
}
