package browser

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/admin/admintest"
	"github.com/jetsidecar/jetsidecar/internal/dlq"
	"github.com/jetsidecar/jetsidecar/internal/pipeline"
	"github.com/jetsidecar/jetsidecar/internal/telemetry"
)

// A DLQ that takes long to read and never stops growing is shown anew all the same.
func TestGrowingDLQ(t *testing.T) {
	w := newWorld(t)
	w.letters.Fill(3)
	release := w.letters.Hold()
	defer release()
	b := open(t, w.url, "#/dlq")
	b.until("the page to read", func() bool { return w.letters.Held() > 0 })
	since := eval[float64](b, "performance.now()")
	b.wait(fmt.Sprintf("performance.now() > %f", since+400)) // it waits 4 s from now on, and a change comes each second
	release()
	b.see(".bar", "3 entries")
	stop := make(chan struct{})
	var growing sync.WaitGroup
	defer growing.Wait()
	defer close(stop)
	growing.Go(func() {
		for tick := time.NewTicker(300 * time.Millisecond); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
				w.letters.Fill(1)
				w.consumers[0].Change(func(s *pipeline.Status, _ *telemetry.Counts, _ *[]telemetry.Failure) { s.DLQDepth++ })
			}
		}
	})
	b.wait("!document.querySelector('.bar').innerText.includes('3 entries') && document.querySelectorAll('.letters tbody tr').length > 3")
	b.calm()
}

// What changed while another view was shown is there on the way back.
func TestDLQChangedMeanwhile(t *testing.T) {
	w := newWorld(t)
	w.letters.Fill(1)
	b := open(t, w.url, "#/dlq")
	b.see(".bar", "1 entry")
	b.click("Consumers")
	b.see("h2", "orders-worker")
	w.letters.Fill(1)
	w.consumers[0].Change(func(s *pipeline.Status, _ *telemetry.Counts, _ *[]telemetry.Failure) { s.DLQDepth = 2 })
	b.see("#nav-depth", "2")
	b.click("Dead letters")
	b.see(".bar", "2 entries")
}

// The times go on, and leave the focus and the rows alone.
func TestTimesGoOn(t *testing.T) {
	w := newWorld(t)
	w.letters.Add(dlq.Letter{Entry: dlq.Entry{Time: time.Now().Add(-6 * time.Second), Stream: "S", Consumer: "c", Subject: "a", Reason: "rejected"}})
	b := open(t, w.url, "#/dlq/ORDERS_DLQ/1")
	b.see(".entry", "rejected")
	b.see(".bar", "1 entry")
	b.wait("(document.querySelector('.letters tbody a').focus(), window.row = document.querySelector('.letters tbody tr'))")
	for _, where := range []string{".letters .time", ".bar .quiet", ".entry .pairs"} {
		text := "document.querySelector('" + where + "').innerText"
		before := eval[string](b, text)
		if !strings.Contains(before, "s ago") {
			t.Errorf("%s says %q", where, before)
		}
		b.wait(fmt.Sprintf("%s !== %q", text, before))
	}
	if !eval[bool](b, "window.row === document.querySelector('.letters tbody tr') && document.activeElement === window.row.querySelector('a')") {
		t.Error("the row was made anew, or lost the focus")
	}
}

// Consumers that share a DLQ stream say how much is in it, and that it is in it.
func TestSharedDLQ(t *testing.T) {
	w := newWorld(t, func(w *world) { w.consumers = append(w.consumers, admintest.NewConsumer("ORDERS", "mailer")) })
	b := open(t, w.url, "")
	w.consumers[1].Change(func(s *pipeline.Status, _ *telemetry.Counts, _ *[]telemetry.Failure) { s.DLQDepth = 84143 })
	b.see("article:nth-child(1)", "84,143 in ORDERS_DLQ")
	b.see("article:nth-child(2)", "84,143 in ORDERS_DLQ")
	b.see("#nav-depth", "84,143")
}

// A subject that is very long leaves the buttons in sight, and can be read below.
func TestLongSubject(t *testing.T) {
	w := newWorld(t)
	subject := strings.Repeat("orders.", 700) + "end"
	w.letters.Add(dlq.Letter{Entry: dlq.Entry{Stream: "S", Consumer: "c", Subject: subject, Reason: "rejected"}})
	b := open(t, w.url, "#/dlq/ORDERS_DLQ/1")
	for _, width := range []int64{1280, 390} {
		b.size(width, 844)
		b.wait(fmt.Sprintf("[...document.querySelectorAll('.entry dd')].some((d) => d.innerText === %q)", subject))
		b.wait("document.querySelector('.entry h2').title.length === 4903")
		if lines := eval[float64](b, "(() => { const h = document.querySelector('.entry h2'); return h.offsetHeight / parseFloat(getComputedStyle(h).lineHeight); })()"); lines > 3.1 {
			t.Errorf("the heading has %v lines", lines)
		}
		if bottom := eval[float64](b, "document.querySelector('.entry .buttons').getBoundingClientRect().bottom"); bottom > 844 {
			t.Errorf("the buttons end at %v", bottom)
		}
		b.calm()
	}
}
