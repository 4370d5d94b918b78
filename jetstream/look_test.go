package jetstream

import (
	"testing"
	"testing/synctest"
	"time"
)

// An ack wait that is edited to a short one is kept to: leases are looked after more often.
func TestShorterAckWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := runModel(t, 30*time.Second, 1, func(*ConsumerConfig) {})
		m := b.next()
		b.durable.setAckWait(300 * time.Millisecond)
		time.Sleep(2 * infoEvery) // it is noticed, and the message is here again
		before := b.deliveries()
		time.Sleep(time.Minute)
		if n := b.deliveries() - before; n != 0 || m.Lost() {
			t.Errorf("delivered again %d times, lost %v", n, m.Lost())
		}
		m.Ack()
		synctest.Wait()
	})
}

// Where a pull request proves that the durable is the one bound to, it is not asked for.
func TestProvedLanesAreAskedFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := runModel(t, 30*time.Second, 0, func(*ConsumerConfig) {})
		time.Sleep(3*infoEvery + infoEvery/2)
		b.source.mu.Lock()
		defer b.source.mu.Unlock()
		now := time.Now()
		b.source.evidence = now.Add(-freshEvidence * 3 / 4)
		if !b.source.mayPublish(now) || b.source.lookAhead {
			t.Errorf("a look is asked for: %v", b.source.lookAhead)
		}
	})
}

// While the question for the durable is not answered leases are kept alive, however short the ack wait: each message is delivered once.
func TestLeasesOutliveUnansweredLooks(t *testing.T) {
	for name, change := range map[string]func(*ConsumerConfig){
		"all leased":        func(*ConsumerConfig) {},
		"more could be":     func(c *ConsumerConfig) { c.Prefetch = 8 },
		"in order":          func(c *ConsumerConfig) { c.Ordered = true },
		"in order and more": func(c *ConsumerConfig) { c.Ordered, c.Prefetch = true, 8 },
		"not confirmed":     func(c *ConsumerConfig) { c.AckAsync = true },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := runModel(t, 2*time.Second, 4, change)
				one, two := b.next(), b.next()
				for range 5 {
					b.loseQuestions(true)
					time.Sleep(3 * time.Second)
					b.loseQuestions(false)
					time.Sleep(time.Second)
				}
				if one.Lost() || two.Lost() {
					t.Error("a lease is lost")
				}
				one.Ack()
				two.Ack()
				b.next().Ack()
				b.next().Ack()
				time.Sleep(5 * time.Second)
				if n, p := b.deliveries(), b.pending(); n != 4 || p != 0 {
					t.Errorf("%d deliveries of 4 messages, %d pending", n, p)
				}
			})
		})
	}
}

// What is sent over a connection that is dead on one side keeps nothing alive: that the lease is lost is known in time.
func TestLeasesOverADeadConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := runModel(t, 3*time.Second, 2, func(c *ConsumerConfig) { c.Prefetch = 8 })
		m := b.next()
		time.Sleep(time.Minute)
		if m.Lost() {
			t.Error("the lease is lost while all is well")
		}
		b.wire.stall(true)
		time.Sleep(3*time.Second + silence)
		if !m.Lost() {
			t.Error("the lease is not known to be lost")
		}
		b.wire.stall(false)
	})
}

// A verdict does not wait for a look that nothing needed, as long as a pull request vouches for the durable.
func TestVerdictsDoNotWaitForALookAhead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := runModel(t, 30*time.Second, 2, func(c *ConsumerConfig) { c.Prefetch = 8 })
		one, two := b.next(), b.next()
		time.Sleep(3 * infoEvery) // the request is proved
		b.loseQuestions(true)
		time.Sleep(apiTimeout + infoEvery)
		one.Ack()
		time.Sleep(10 * time.Millisecond)
		if n := b.pending(); n != 1 || !b.source.Status().Bound {
			t.Errorf("%d are pending, status %+v", n, b.source.Status())
		}
		two.Ack()
		b.loseQuestions(false)
		time.Sleep(time.Second)
	})
}

// A look that was begun before another server led the durable is cut off: the question is asked anew.
func TestLooksAreAskedAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := runModel(t, 30*time.Second, 0, func(*ConsumerConfig) {})
		time.Sleep(infoEvery + infoEvery/2)
		b.loseQuestions(true)
		b.source.doubt()
		time.Sleep(time.Second) // it is asked again in more than a second
		b.loseQuestions(false)
		b.durable.endRequests("409 Leadership Change")
		time.Sleep(10 * time.Millisecond)
		b.source.mu.Lock()
		defer b.source.mu.Unlock()
		if b.source.suspect || b.source.looks.underWay {
			t.Errorf("it is not known yet: %v", b.source.looks)
		}
	})
}

// The durable is known as of when it was asked for, not of when the answer came.
func TestEvidenceIsAsOldAsTheQuestion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := runModel(t, 30*time.Second, 0, func(*ConsumerConfig) {})
		time.Sleep(infoEvery + infoEvery/2)
		b.wire.stall(true)
		b.source.doubt()
		time.Sleep(askAgain / 2)
		b.wire.stall(false)
		time.Sleep(2 * stallStep)
		b.source.mu.Lock()
		defer b.source.mu.Unlock()
		if asked := b.source.looks.asked; b.source.suspect || !b.source.evidence.Equal(asked) {
			t.Errorf("known as of %s after the question", b.source.evidence.Sub(asked))
		}
	})
}

// A verdict that nobody is there to hear, although the durable answers, is sent again after a pause, and not given up.
func TestVerdictsThatNobodyHears(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := runModel(t, 30*time.Second, 4, func(c *ConsumerConfig) { c.Concurrency = 4 })
		ack, term, nak, back := b.next(), b.next(), b.next(), b.next()
		b.source.Pull(PullNothing)
		before := b.durable.loseVerdicts(true)
		ack.Ack()
		term.Term("no")
		nak.Nak(time.Hour)
		back.HandBack()
		time.Sleep(20 * time.Second)
		if n := b.durable.loseVerdicts(false) - before; n < 40 || n > 400 {
			t.Errorf("they were sent %d times in 20 s", n)
		}
		time.Sleep(5 * time.Second)
		if n := b.pending(); n != 2 || b.source.Flush(t.Context()) != 0 {
			t.Errorf("%d are pending, want 2: %s", n, b.durable.state())
		}
	})
}
