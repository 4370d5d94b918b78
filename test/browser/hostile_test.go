package browser

import (
	"strings"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/dlq"
	"github.com/jetsidecar/jetsidecar/internal/pipeline"
	"github.com/jetsidecar/jetsidecar/internal/telemetry"
)

// hostile are texts that must be shown as they are, wherever they come from.
var hostile = []string{
	`<script>window.owned = 1</script>`,
	`<img src=x onerror="window.owned = 1">`,
	`"><svg onload=window.owned=1>`,
	`javascript:window.owned=1`,
	`{{constructor.constructor('window.owned=1')()}}`,
	`</textarea></title></style><iframe srcdoc="<script>parent.owned=1</script>">`,
	"\u202Egnp.exe\u202C \u2066hidden\u2069 zero\u200Bwidth",
	"bell\a escape\x1b[31m null\x00 back\b\r\nnext",
	"\xff\xfe not utf-8",
}

// Whatever a message holds is shown as text: no script runs, the policy is not even asked, and what cannot be seen is made visible.
func TestHostile(t *testing.T) {
	w := newWorld(t)
	for i, x := range hostile {
		h := map[string][]string{"X-Evil": {x, x}, x: {"as a name"}, "Dlq-Response": {x}, "Dlq-Failed-At": {x}, "Dlq-Time-Stamp": {x}}
		w.letters.Add(dlq.Letter{
			Entry: dlq.Entry{
				Stream: x, Consumer: x, Subject: x, Sequence: uint64(i), Reason: x, Status: 400, Error: x, MsgID: x, Time: time.Now(), Part: x,
			},
			Headers: h, Body: []byte(x),
		})
	}
	w.letters.Add(dlq.Letter{Entry: dlq.Entry{Reason: "rejected", Subject: "json"}, Body: []byte(`{"__proto__": {"owned": 1}, "<img src=x onerror=window.owned=1>": "<script>window.owned=1</script>", "n": 12345678901234567890, "e": "\u202e"}`)})
	w.consumers[0].Change(func(s *pipeline.Status, _ *telemetry.Counts, f *[]telemetry.Failure) {
		s.Detail, s.DLQOK, s.DLQDetail = hostile[1], false, hostile[2]
		s.BreakerOpen, s.BreakerCause, s.BreakerDetail, s.BreakerSince = true, hostile[0], hostile[0], time.Now()
		for _, x := range hostile {
			*f = append(*f, telemetry.Failure{Time: time.Now(), Subject: x, Result: pipeline.ResultDLQ, Reason: x, Error: x})
		}
	})
	w.letters.App = func(*dlq.Letter) dlq.Outcome { return dlq.Outcome{Result: dlq.Kept, Why: hostile[1]} }

	b := open(t, w.url, "")
	b.see("article", hostile[0])
	b.click("Show all")
	b.see(".errors", hostile[5])
	b.see(".errors", "⟨U+202E⟩gnp.exe")
	b.innocent()
	b.shot("hostile-consumers")
	b.goTo("#/dlq")
	b.see(".letters", hostile[2])
	b.see(".causes", hostile[0])
	b.innocent()
	b.shot("hostile-list")
	for i, x := range hostile {
		shown := x
		switch i {
		case 6:
			shown = "⟨U+202E⟩gnp.exe⟨U+202C⟩ ⟨U+2066⟩hidden⟨U+2069⟩ zero⟨U+200B⟩width"
		case 7:
			shown = "bell⟨U+0007⟩ escape⟨U+001B⟩[31m null⟨U+0000⟩ back⟨U+0008⟩"
		case 8:
			shown = "ff fe 20 6e"
		}
		eval[bool](b, "document.querySelectorAll('.letters tbody a')["+string(rune('0'+len(hostile)-i))+"].click(), true")
		b.see(".entry pre", shown)
		if i != 8 {
			b.see(".entry .headers", strings.Fields(shown)[0])
		}
		b.innocent()
	}
	b.shot("hostile-entry")
	b.goTo("#/dlq/ORDERS_DLQ/10")
	b.see(".entry pre", `"<img src=x onerror=window.owned=1>": "<script>window.owned=1</script>"`)
	b.see(".entry pre", "12345678901234567890")
	b.see(".entry pre", "⟨U+202E⟩")
	b.click("Replay …")
	b.click("Replay")
	b.see(".entry .outcome", hostile[1])
	b.innocent()

	// The address is foreign text too.
	for _, hash := range []string{"#/dlq?subject=<img src=x onerror=window.owned=1>", "#/dlq/<script>/1", "#/dlq/%E0%A4%A/1", "#/<b>", "#//../../x"} {
		b.goTo(hash)
		b.see(".top", "Consumers")
		b.innocent()
	}
}

// innocent checks that nothing of a message became part of the page.
func (b *tab) innocent() {
	b.t.Helper()
	if eval[bool](b, "'owned' in window || 'owned' in {}") {
		b.t.Error("a script of a message ran")
	}
	if n := eval[int](b, "document.querySelectorAll('main script, main img, main iframe, main svg[onload], main b b').length"); n > 0 {
		b.t.Errorf("%d elements of a message are in the page", n)
	}
	b.calm()
}
