package browser

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/jetsidecar/jetsidecar/internal/admin/admintest"
	"github.com/jetsidecar/jetsidecar/internal/pipeline"
	"github.com/jetsidecar/jetsidecar/internal/telemetry"
)

func TestNoConsumers(t *testing.T) {
	w := newWorld(t, func(w *world) { w.consumers = nil })
	b := open(t, w.url, "")
	b.see("main", "No consumers")
	b.calm()
}

func TestNoDeadLetters(t *testing.T) {
	w := newWorld(t)
	b := open(t, w.url, "#/dlq")
	b.see("main", "No dead letters")
	b.shot("dlq-empty")
	if !eval[bool](b, "[...document.querySelectorAll('.bar button')].every((e) => e.disabled)") {
		t.Error("there is something to replay or delete")
	}
	// The first one shows by itself.
	w.letters.Fill(1)
	w.consumers[0].Change(func(s *pipeline.Status, _ *telemetry.Counts, _ *[]telemetry.Failure) { s.DLQDepth++ })
	b.see(".letters", "orders.new")
	b.see("#nav-depth", "1")
	b.fill("[name=subject]", "nothing.like.it")
	b.see("main", "Nothing matches")
	b.see("main", "with subject nothing.like.it")
	// What is to be pressed there stays while the page looks for news.
	eval[bool](b, "(window.before = document.querySelector('.empty button'), true)")
	for range 2 {
		release := w.letters.Hold()
		w.consumers[0].Change(func(s *pipeline.Status, _ *telemetry.Counts, _ *[]telemetry.Failure) { s.DLQDepth++ })
		b.until("the page to look again", func() bool { return w.letters.Held() > 0 })
		if !eval[bool](b, "window.before === document.querySelector('.empty button')") {
			t.Error("a button was made anew while it could be pressed")
		}
		release()
		b.until("the page to have looked", func() bool { return w.letters.Held() == 0 })
	}
	b.click("Clear filters")
	b.see(".letters", "orders.new")
}

func TestLoading(t *testing.T) {
	w := newWorld(t)
	w.letters.Fill(3)
	release := w.letters.Hold()
	defer release()
	b := open(t, w.url, "#/dlq")
	b.see("main", "Loading …")
	if !eval[bool](b, "[...document.querySelectorAll('.bar button')].every((e) => e.disabled)") {
		t.Error("all can be replayed or deleted before it is known how many there are")
	}
	b.shot("dlq-loading")
	release()
	b.see(".bar", "3 entries")
	b.gone(".state .loading")
}

func TestDLQCannotBeRead(t *testing.T) {
	w := newWorld(t)
	w.letters.Fill(3)
	w.letters.Fail(errors.New("NATS is not connected"))
	away := "no servers available for connection"
	w.nats.Store(&away)
	b := open(t, w.url, "#/dlq")
	b.see("main [role=alert]", "NATS is not connected")
	b.see("#notice", "NATS is away: no servers available")
	b.see("#health .bad", "NATS")
	b.shot("nats-away")
	w.letters.Fail(nil)
	w.nats.Store(nil)
	b.gone("#notice")
	b.click("Try again")
	b.see(".bar", "3 entries")
	b.gone("[role=alert]")
}

func TestSidecarAway(t *testing.T) {
	w := newWorld(t)
	b := open(t, w.url, "")
	b.see("h2", "orders-worker")
	w.stop()
	b.see("#notice", "Not connected")
	b.shot("sidecar-away")
	w.start()
	b.gone("#notice")
	b.see("h2", "orders-worker")
}

func TestToken(t *testing.T) {
	w := newWorld(t, func(w *world) { w.token = "the-right-one" })
	w.letters.Fill(1)
	b := open(t, w.url, "#/dlq")
	b.see("form", "The token of this sidecar")
	b.shot("token")
	b.fill("#token", "another")
	b.press("\r")
	b.see("form [role=alert]", "This token is not the right one")
	b.fill("#token", "the-right-one")
	b.press("\r")
	b.see(".letters", "orders.new")
	b.click("Consumers")
	b.see("h2", "orders-worker")
	b.do(chromedp.Reload()) // asks for no token
	b.see("h2", "orders-worker")
	if v := eval[string](b, "JSON.stringify([document.cookie, Object.values(localStorage)])"); v != `["",[]]` {
		t.Errorf("the token is kept longer than the tab: %s", v)
	}
	b.calm()
}

// Pages of 100 keep a DLQ of 10,000 entries quick: the page never holds more rows, and each is there soon.
func TestTenThousand(t *testing.T) {
	w := newWorld(t)
	w.letters.Fill(10000)
	b := open(t, w.url, "#/dlq")
	b.see(".bar", "10,000 entries")
	b.see(".pager", "1 to 100 of 10,000")
	first := func() string { return eval[string](b, "document.querySelector('.letters tbody tr').dataset.id") }
	for n := range 99 {
		if id, want := first(), fmt.Sprintf("ORDERS_DLQ/%d", 10000-100*n); id != want {
			t.Fatalf("page %d begins with %s, want %s", n+1, id, want)
		}
		if rows := eval[int](b, "document.querySelectorAll('.letters tbody tr').length"); rows != 100 {
			t.Fatalf("page %d has %d rows", n+1, rows)
		}
		if n == 50 {
			b.shot("dlq-10000")
		}
		eval[bool](b, "document.querySelector('.pager button:last-child').click(), true")
		b.wait(fmt.Sprintf("document.querySelector('.letters tbody tr').dataset.id === 'ORDERS_DLQ/%d' && !document.querySelector('.stale')", 10000-100*(n+1)))
	}
	if !eval[bool](b, "document.querySelector('.pager button:last-child').disabled") {
		t.Error("there is a page after the last one")
	}
	b.click("Previous")
	b.see(".pager", "9,801 to 9,900")
	b.click("Order: newest first")
	b.wait("document.querySelector('.letters tbody tr').dataset.id === 'ORDERS_DLQ/1'")
	if nodes := eval[int](b, "document.querySelectorAll('*').length"); nodes > 2500 {
		t.Errorf("the page holds %d elements", nodes)
	}
}

func TestSeveralStreams(t *testing.T) {
	w := newWorld(t, func(w *world) { w.letters = admintest.NewLetters("A_DLQ", "B_DLQ") })
	w.letters.Fill(2)
	b := open(t, w.url, "#/dlq?stream=B_DLQ")
	b.see("main", "Nothing matches")
	b.see(".filters .stream", "DLQ stream")
	eval[bool](b, "(() => { const s = document.querySelector('[name=stream]'); s.value = 'A_DLQ'; s.dispatchEvent(new Event('input', {bubbles: true})); return true; })()")
	b.see(".bar", "2 selected")
	if hash := eval[string](b, "location.hash"); !strings.Contains(hash, "stream=A_DLQ") {
		t.Errorf("the address is %s", hash)
	}
}
