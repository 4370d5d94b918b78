package browser

import (
	"strings"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/admin/admintest"
	"github.com/jetsidecar/jetsidecar/internal/pipeline"
	"github.com/jetsidecar/jetsidecar/internal/telemetry"
)

func failures(n int) []telemetry.Failure {
	all := []telemetry.Failure{}
	for i := range n {
		f := telemetry.Failure{
			Time: time.Now().Add(-time.Duration(i*i+2) * time.Second), Subject: "orders.new", Sequence: uint64(90210 - i), Delivered: uint64(1 + i%3),
			Result: pipeline.ResultRetry, Status: 503, Error: "inventory is not reachable", Delay: time.Duration(1+i%3) * 1300 * time.Millisecond,
		}
		if i%3 == 1 {
			f.Result, f.Reason, f.Status, f.Error, f.Subject = pipeline.ResultDLQ, "rejected", 422, "total must not be negative", "orders.changed"
		}
		all = append(all, f)
	}
	return all
}

func TestConsumers(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.consumers = append(w.consumers, admintest.NewConsumer("PAYMENTS", "ledger"))
	})
	b := open(t, w.url, "")
	b.see("h2", "orders-worker")
	b.see("article", "No errors since the start")
	w.busy()
	w.consumers[0].Change(func(s *pipeline.Status, _ *telemetry.Counts, f *[]telemetry.Failure) {
		*f = failures(12)
		s.DLQDepth = 42
	})
	w.consumers[1].Change(func(s *pipeline.Status, n *telemetry.Counts, _ *[]telemetry.Failure) {
		s.BreakerOpen, s.BreakerSince, s.BreakerCause, s.BreakerDetail = true, time.Now().Add(-95*time.Second), "status 503", "breaker open: status 503"
		n.InFlight = 0
	})
	b.see("article:nth-child(2)", "42 in ORDERS_DLQ")
	b.see("article:nth-child(2)", "inventory is not reachable")
	b.see("article:first-child", "The app fails message after message (status 503)")
	b.see("#nav-depth", "42")
	if n := eval[int](b, "document.querySelectorAll('article:nth-child(2) .errors tbody tr').length"); n != 5 {
		t.Errorf("%d errors are shown at first", n)
	}
	b.shot("consumers")
	b.click("Show all 12")
	b.wait("document.querySelectorAll('article:nth-child(2) .errors tbody tr').length === 12")
	for _, bars := range []string{"rect.longest", "rect.shortest"} {
		if n := eval[int](b, "document.querySelectorAll('article:nth-child(2) "+bars+"').length"); n != 9 {
			t.Errorf("the schedule of 10 attempts has %d %s", n, bars)
		}
	}
	if title := eval[string](b, "document.querySelector('.chart title').textContent"); !strings.Contains(title, "highest") {
		t.Errorf("the chart says %q", title)
	}
	b.size(390, 844)
	b.shot("consumers-phone")
	b.click("42 in ORDERS_DLQ")
	b.see("h1", "Dead letters")
	if v := eval[string](b, "document.querySelector('[name=consumer]').value"); v != "orders-worker" {
		t.Errorf("the filter is for %q", v)
	}
}

// Where there is no DLQ nothing is said to go there.
func TestConsumerWithoutDLQ(t *testing.T) {
	w := newWorld(t)
	w.consumers[0].Change(func(s *pipeline.Status, _ *telemetry.Counts, _ *[]telemetry.Failure) { s.DLQEnabled = false })
	b := open(t, w.url, "")
	b.see("article", "no DLQ")
	b.see("article .schedule-box", "A retry on attempt 10 is discarded")
	b.calm()
}

func TestFilterOpenReplayGone(t *testing.T) {
	w := newWorld(t)
	w.letters.Fill(250)
	b := open(t, w.url, "")
	b.click("Dead letters")
	b.see(".bar", "250 entries")
	b.see(".pager", "1 to 100 of 250")
	b.shot("dlq")
	b.fill("[name=status]", "404")
	b.wait("[...document.querySelectorAll('.letters tbody tr')].every((r) => r.innerText.includes('404')) && document.querySelectorAll('.letters tbody tr').length > 10")
	b.see(".bar", "selected")
	b.wait("document.querySelector('.letters tbody a')")
	id := eval[string](b, "document.querySelector('.letters tbody tr').dataset.id")
	eval[bool](b, "document.querySelector('.letters tbody a').click(), true")
	b.see(".entry", "unknown product")
	b.see(".entry pre", `"product": "lamp"`)
	b.shot("entry")
	b.click("Hex")
	b.see(".entry pre", "7b 22 63 75")
	b.click("Text")
	b.see(".entry pre", `{"customer":`)
	b.click("Replay …")
	b.see("dialog", "The stream")
	b.shot("replay")
	b.click("Replay")
	b.see(".entry .outcome", "The app accepted it (200 OK). The entry is gone.")
	b.wait("![...document.querySelectorAll('.letters tbody tr')].some((r) => r.dataset.id === '" + id + "')")
	b.shot("replayed")
	b.click("Back to the list")
	b.gone(".entry")
	if n := w.letters.Len(); n != 249 {
		t.Errorf("%d entries are left", n)
	}
}
