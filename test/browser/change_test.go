package browser

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/jetsidecar/jetsidecar/internal/dlq"
	"github.com/jetsidecar/jetsidecar/internal/pipeline"
	"github.com/jetsidecar/jetsidecar/internal/telemetry"
)

func TestDelete(t *testing.T) {
	w := newWorld(t)
	w.letters.Fill(3)
	b := open(t, w.url, "#/dlq/ORDERS_DLQ/2")
	b.see(".entry", "total must not be negative")
	b.click("Delete …")
	b.see("dialog", "cannot be brought back")
	b.click("Cancel")
	b.gone("dialog")
	if n := w.letters.Len(); n != 3 {
		t.Fatalf("%d entries are left although it was cancelled", n)
	}
	b.click("Delete …")
	b.click("Delete")
	b.see(".entry .outcome", "Deleted.")
	b.see(".bar", "2 entries")
	if n := w.letters.Len(); n != 2 {
		t.Errorf("%d entries are left", n)
	}
	b.goTo("#/dlq/ORDERS_DLQ/77")
	b.see(".entry", "No such entry")
	b.see(".entry", "or it never was")
}

// What is no dead letter is shown, and cannot be replayed or deleted.
func TestNoDeadLetter(t *testing.T) {
	w := newWorld(t)
	seq := w.letters.Add(dlq.Letter{Body: []byte("something else")})
	b := open(t, w.url, fmt.Sprintf("#/dlq/ORDERS_DLQ/%d", seq))
	b.see(".entry", "no dead letter")
	b.see(".entry", "something else")
	if n := eval[int](b, "document.querySelectorAll('.entry-body > .buttons button').length"); n != 0 {
		t.Errorf("there are %d buttons", n)
	}
	b.calm()
}

// What a replay comes to is said, whatever it is.
func TestOutcomes(t *testing.T) {
	w := newWorld(t)
	w.letters.Fill(4)
	w.letters.App = func(l *dlq.Letter) dlq.Outcome {
		return []dlq.Outcome{
			{Result: dlq.Failed, Reason: "max_deliver", Status: 503, Why: "still <b>busy</b>"},
			{Result: dlq.Kept, Why: "it was replayed too often"},
			{Result: dlq.Dropped, Status: 200},
			{Result: dlq.Gone},
		}[l.Seq-1]
	}
	b := opened(t, w.url)
	for i, want := range []string{
		"It failed again (503 Service Unavailable): still <b>busy</b>. A new entry holds the new cause.",
		"It was left as it is: it was replayed too often.",
		"The app does not want it (200 OK).",
		"Somebody else replayed or removed it meanwhile.",
	} {
		b.goTo(fmt.Sprintf("#/dlq/ORDERS_DLQ/%d", i+1))
		b.click("Replay …")
		b.click("Replay")
		b.see(".entry .outcome", want)
		b.see("#said", want)
	}
	b.see(".letters", "replayed 1×")
	b.calm()
}

func TestReplayAllAndCancel(t *testing.T) {
	w := newWorld(t)
	w.letters.Fill(60)
	w.letters.App = func(l *dlq.Letter) dlq.Outcome {
		if l.Status == 503 {
			return dlq.Outcome{Result: dlq.Kept, Status: 503, Why: "inventory is not reachable"}
		}
		return dlq.Outcome{Result: dlq.Acked, Status: 200}
	}
	b := open(t, w.url, "#/dlq")
	b.see(".bar", "60 entries")
	release := w.letters.Hold()
	defer release()
	b.click("Replay all 60 …")
	b.see("dialog", "60 entries that are there now, without a filter.")
	b.shot("bulk")
	b.click("Replay")
	b.see("dialog", "Selecting")
	b.wait("document.querySelector('dialog progress')")
	b.until("the sidecar to begin", func() bool { return w.letters.Held() > 0 })
	b.click("Cancel")
	b.see("dialog", "Cancelled")
	b.wait("document.activeElement.innerText === 'Close'")
	b.until("the sidecar to hear of the end", func() bool { return w.letters.Held() == 0 })
	release()
	b.click("Close")
	b.see(".bar", "60 entries")
	if n := w.letters.Len(); n != 60 {
		t.Errorf("%d entries are left after the cancel", n)
	}
	b.click("Replay all 60 …")
	b.click("Replay")
	b.see("dialog", "Done")
	b.see("dialog", "42 replayed, 18 kept")
	b.see("dialog table", "inventory is not reachable")
	b.shot("bulk-done")
	b.click("Close")
	b.see(".bar", "18 entries")
	b.click("Delete all 18 …")
	b.click("Delete")
	b.see("dialog", "Done: 18 deleted.")
	b.click("Close")
	b.see("main", "No dead letters")
}

// Nothing starts while the rate is none: only a 0 that is typed is no limit.
func TestRate(t *testing.T) {
	w := newWorld(t)
	w.letters.Fill(3)
	b := open(t, w.url, "#/dlq")
	b.see(".bar", "3 entries")
	b.click("Replay all 3 …")
	b.see("dialog", "0 is no limit")
	for _, wrong := range []string{"", "-5", "e", "1000001"} {
		b.fill("#rate", wrong)
		b.click("Replay")
		b.see("dialog #rate-fault", "The rate: ")
		b.see("dialog #rate-fault", eval[string](b, "document.querySelector('#rate').validationMessage"))
		if on := eval[string](b, "document.activeElement.id"); on != "rate" {
			t.Errorf("%q: the focus is on %q", wrong, on)
		}
	}
	b.shot("rate")
	if n := w.letters.Len(); n != 3 {
		t.Fatalf("%d entries are left", n)
	}
	b.fill("#rate", "0")
	b.gone("dialog #rate-fault")
	b.click("Replay")
	b.see("dialog", "Done: 3 replayed.")
	b.calm()
}

// What failed until a replay was cancelled is shown, with the cause.
func TestCancelShowsWhatFailed(t *testing.T) {
	w := newWorld(t)
	w.letters.Fill(9)
	goOn := make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	w.letters.App = func(l *dlq.Letter) dlq.Outcome {
		if l.Seq == 4 {
			<-goOn
		}
		return dlq.Outcome{Result: dlq.Kept, Status: 503, Why: "no stock"}
	}
	b := open(t, w.url, "#/dlq")
	b.click("Replay all 9 …")
	b.click("Replay")
	b.see("dialog", "3 of 9")
	b.click("Cancel")
	b.see("dialog", "Cancelled")
	b.see("dialog", "About 6 were not touched")
	b.see("dialog table", "no stock")
	b.see("dialog table td", "3")
	b.calm()
}

// What was counted and is not there any more when it begins is told.
func TestGoneSinceItWasCounted(t *testing.T) {
	w := newWorld(t)
	w.letters.Fill(5)
	b := open(t, w.url, "#/dlq")
	b.see(".bar", "5 entries")
	b.click("Delete all 5 …")
	b.see("dialog", "5 entries that are there now")
	if _, err := w.letters.Remove(t.Context(), dlq.Filter{Last: 2}, dlq.RemoveOptions{}); err != nil {
		t.Fatal(err)
	}
	b.click("Delete")
	b.see("dialog", "Done: 3 deleted.")
	b.see("dialog", "2 of the 5 were gone or changed meanwhile")
	b.calm()
}

// What is done is what the dialog counted, whatever came since, and even if the page behind it has counted anew.
func TestNoMoreThanWasCounted(t *testing.T) {
	w := newWorld(t)
	w.letters.Fill(3)
	b := open(t, w.url, "#/dlq")
	b.see(".bar", "3 entries")
	for _, c := range []struct{ button, press, done, left string }{
		{"Replay all 3 …", "Replay", "Done: 3 replayed.", "2 entries"},
		{"Delete all 2 …", "Delete", "Done: 2 deleted.", "2 entries"},
	} {
		b.click(c.button)
		b.see("dialog", strings.Fields(c.button)[2]+" entries that are there now")
		w.letters.Fill(2)
		w.consumers[0].Change(func(s *pipeline.Status, _ *telemetry.Counts, _ *[]telemetry.Failure) { s.DLQDepth++ })
		b.wait("document.querySelector('.bar').innerText.includes(' " + fmt.Sprint(w.letters.Len()) + " …')")
		b.click(c.press)
		b.see("dialog", c.done)
		b.click("Close")
		b.see(".bar", c.left)
		if n := w.letters.Len(); n != 2 {
			t.Errorf("%s: %d entries are left", c.button, n)
		}
	}
	b.calm()
}

// Everything can be done without a mouse, and the focus is never lost.
func TestKeyboard(t *testing.T) {
	w := newWorld(t)
	w.letters.Fill(3)
	b := open(t, w.url, "")
	b.see("h2", "orders-worker")
	b.press(kb.Tab)
	if text := eval[string](b, "document.activeElement.innerText"); text != "Skip to the content" {
		t.Errorf("the first stop is %q", text)
	}
	b.tabTo("Dead letters")
	b.press(kb.Enter)
	b.see(".letters", "orders.new")
	b.tabTo("orders.cancelled")
	b.press(kb.ArrowDown)
	b.press(kb.Enter)
	b.see(".entry", "ORDERS_DLQ, sequence 2")
	b.tabTo("Replay …")
	b.press(kb.Enter)
	b.see("dialog", "The stream")
	b.press(kb.Escape)
	b.gone("dialog")
	if text := eval[string](b, "document.activeElement.innerText"); text != "Replay …" {
		t.Errorf("after the dialog the focus is on %q", text)
	}
	b.tabTo("JSON")
	b.press(kb.ArrowRight)
	if text := eval[string](b, "document.querySelector('[aria-selected=true]').innerText"); text != "Text" {
		t.Errorf("the tab is %q", text)
	}
	b.press(kb.Escape)
	b.gone(".entry")
	if text := eval[string](b, "document.activeElement.innerText"); text != "orders.changed" {
		t.Errorf("after the entry the focus is on %q", text)
	}
	b.press(kb.Enter)
	b.see(".entry", "ORDERS_DLQ, sequence 2")
	b.tabTo("Delete …")
	b.press(kb.Enter)
	b.tabTo("Delete")
	b.press(kb.Enter)
	b.see(".entry .outcome", "Deleted.")
	if inside := eval[bool](b, "document.querySelector('.entry').contains(document.activeElement)"); !inside {
		t.Error("the focus is lost after the deletion")
	}
	b.calm()
}

func TestPhone(t *testing.T) {
	w := newWorld(t)
	w.letters.Fill(120)
	w.letters.Add(dlq.Letter{Entry: dlq.Entry{
		Stream: "ORDERS", Consumer: strings.Repeat("w", 200), Subject: "orders." + strings.Repeat("x", 300), Sequence: 1, Reason: "rejected",
		Error: strings.Repeat("y", 900),
	}, Headers: map[string][]string{strings.Repeat("H", 300): {strings.Repeat("v", 3000)}}, Body: []byte(strings.Repeat("z", 5000))})
	b := opened(t, w.url)
	b.size(360, 740)
	b.goTo("#/dlq")
	b.see(".bar", "121 entries")
	b.shot("dlq-phone")
	eval[bool](b, "document.querySelector('.letters tbody a').click(), true")
	b.see(".entry", "zzzz")
	b.calm()
	b.click("Hex")
	b.see(".entry pre", "7a 7a")
	b.calm()
	b.goTo("#/dlq/ORDERS_DLQ/2")
	b.see(".entry", "Cause")
	b.shot("entry-phone")
	b.click("Replay …")
	b.see("dialog", "The stream")
	b.shot("replay-phone")
}
