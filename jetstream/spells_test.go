package jetstream

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A connection that comes and goes is told three times in a minute, and then in one line of how often it did in 30 s, which ends with the truth.
func TestConnectionThatComesAndGoes(t *testing.T) {
	onWire(t, func(conn *Conn, w *fakeWire, log *lockedText) {
		for range 120 {
			w.set(true)
			time.Sleep(500 * time.Millisecond)
			w.set(false)
			time.Sleep(500 * time.Millisecond)
			synctest.Wait()
		}
		time.Sleep(quietFor)
		synctest.Wait()
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) > 3*3+5*3 { // of 360
			t.Errorf("%d lines:\n%s", len(lines), log)
		}
		if n := strings.Count(log.String(), "comes and goes"); n < 3 || n > 5 {
			t.Errorf("%d summaries:\n%s", n, log)
		}
		if last := lines[len(lines)-1]; !strings.Contains(last, "connected=true") && !strings.Contains(last, "connected to nats") {
			t.Errorf("the log ends with %s", last)
		}
		time.Sleep(2 * spellsIn)
		before := len(log.String())
		w.set(true)
		time.Sleep(500 * time.Millisecond)
		w.set(false)
		time.Sleep(time.Second)
		synctest.Wait()
		if text := log.String()[before:]; !strings.Contains(text, "disconnected from nats") || !strings.Contains(text, "msg=\"connected to nats") {
			t.Errorf("one outage, later:\n%s", text)
		}
	})
}

// How often it went is told exactly: by a line each, or in a sum.
func TestSpells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s spells
		var told, sums atomic.Int64
		tell := func(times int) { told.Add(int64(times)); sums.Add(1) }
		const n = 1000
		for range n {
			if s.begin(tell) {
				told.Add(1)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(quietFor)
		synctest.Wait()
		if told.Load() != n || sums.Load() > n/30+1 || !s.told() {
			t.Errorf("%d of %d are told, in %d sums; quiet: %t", told.Load(), n, sums.Load(), !s.told())
		}
		s.begin(tell)
		for range spellsTold + 1 {
			s.begin(tell)
		}
		s.end()
		before := sums.Load()
		if time.Sleep(time.Hour); sums.Load() != before {
			t.Error("told after the end")
		}
	})
}
