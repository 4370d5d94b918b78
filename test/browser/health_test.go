package browser

import (
	"fmt"
	"testing"

	"github.com/jetsidecar/jetsidecar/internal/admin/admintest"
	"github.com/jetsidecar/jetsidecar/internal/pipeline"
	"github.com/jetsidecar/jetsidecar/internal/telemetry"
)

// Of many consumers those that are not well come first, and what is wrong is one click away, in words.
func TestManyConsumers(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.consumers = nil
		for i := range 30 {
			w.consumers = append(w.consumers, admintest.NewConsumer("ORDERS", fmt.Sprintf("worker-%02d", i)))
		}
	})
	w.consumers[17].Change(func(s *pipeline.Status, _ *telemetry.Counts, _ *[]telemetry.Failure) {
		s.Bound, s.Detail = false, "the durable was <b>deleted</b>"
	})
	w.consumers[22].Change(func(s *pipeline.Status, _ *telemetry.Counts, _ *[]telemetry.Failure) {
		s.DLQOK, s.DLQDetail = false, "the DLQ stream is full"
	})
	at := func(n int, name string) string {
		return fmt.Sprintf("document.querySelector('article:nth-child(%d) h2')?.textContent === '%s'", n, name)
	}
	b := open(t, w.url, "#/dlq")
	b.see("#health .bad", "Consumers")
	b.gone("#failing")
	b.click("Consumers") // the pill, which comes after the link
	b.see("#failing", "worker-17 on ORDERS: the durable was <b>deleted</b>")
	b.wait("location.hash === '#/consumers'")
	b.wait(at(1, "worker-17"))
	b.wait(at(2, "worker-22"))
	b.wait(at(3, "worker-00"))
	b.wait(at(20, "worker-18"))
	focus := "document.activeElement.querySelector('h2')?.textContent"
	b.wait(focus + " === 'worker-17'")
	b.shot("not-well")
	b.click("DLQ")
	b.see("#failing", "worker-22 on ORDERS: the DLQ stream is full")
	b.wait(focus + " === 'worker-22'")
	b.wait("(() => { const r = document.activeElement.getBoundingClientRect(); return r.top >= document.querySelector('.top').offsetHeight && r.top < innerHeight; })()")
	// The one that is looked at keeps the focus when others move, and all go back to their places.
	w.consumers[17].Change(func(s *pipeline.Status, _ *telemetry.Counts, _ *[]telemetry.Failure) { s.Bound, s.Detail = true, "" })
	b.wait(at(1, "worker-22"))
	b.wait(focus + " === 'worker-22'")
	w.consumers[22].Change(func(s *pipeline.Status, _ *telemetry.Counts, _ *[]telemetry.Failure) { s.DLQOK, s.DLQDetail = true, "" })
	b.wait(at(23, "worker-22"))
	b.gone("#failing")
	b.gone("#health .bad")
	if text := eval[string](b, "document.getElementById('health').textContent"); text == "" {
		t.Error("the pills are gone")
	}
	b.size(390, 844)
	b.calm()
}
