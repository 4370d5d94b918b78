package browser

import (
	"strings"
	"testing"
)

// All that the address selects by is to be seen, stays while something else is edited, and is said before something is done.
func TestFiltersOfTheAddress(t *testing.T) {
	w := newWorld(t)
	w.letters.Fill(40)
	b := open(t, w.url, "#/dlq?since=2h&until=1m&status=none&limit=2")
	b.see(".bar", "2 selected")
	value := func(name string) string { return eval[string](b, "document.querySelector('[name="+name+"]').value") }
	for name, want := range map[string]string{"since": "2h", "until": "1m", "status": "none"} {
		if v := value(name); v != want {
			t.Errorf("%s is %q", name, v)
		}
	}
	b.see(".filters .since select", "since 2h ago")
	b.see(".filters .until", "Stored until")
	b.see(".filters .more", "and at most 2, the oldest, which the address says")
	b.see(".filters", "Clear filters")
	b.see(".pager", "1 to 2 of 2")
	b.wait("document.querySelector('.letters tbody tr').dataset.id === 'ORDERS_DLQ/9' && document.querySelector('.pager button:last-child').disabled")
	b.shot("filters")
	b.fill("[name=consumer]", "orders-worker")
	b.wait("location.hash.includes('consumer=orders-worker')")
	hash := eval[string](b, "location.hash")
	for _, part := range []string{"since=2h", "until=1m", "status=none", "limit=2"} {
		if !strings.Contains(hash, part) {
			t.Errorf("%s is gone from %s", part, hash)
		}
	}
	b.click("Delete all 2 …")
	b.see("dialog", "of consumer orders-worker, without an answer, stored since 2h ago, stored before 1m ago, at most 2, the oldest")
	b.click("Cancel")
	b.click("Clear filters")
	b.see(".bar", "40 entries")
	b.gone(".filters .link")
	b.gone(".filters .more")
	if v := value("since") + value("until"); v != "" {
		t.Errorf("after the clear there is %q", v)
	}
	b.fill("[name=until]", "2m")
	b.see(".bar", "selected")
	b.see(".filters", "Clear filters")
	b.calm()
}

// What the sidecar does not know is named, and can be cleared.
func TestUnknownFilters(t *testing.T) {
	w := newWorld(t)
	w.letters.Fill(3)
	b := open(t, w.url, "#/dlq?colour=red&stream=OTHER_DLQ&reason=nonsense")
	b.see("main [role=alert]", "colour")
	b.see(".filters .more", "with colour red")
	b.see(".filters .stream select", "OTHER_DLQ")
	b.see(".filters .reason select", "nonsense")
	b.calm()
	b.click("Clear filters")
	b.see(".bar", "3 entries")
}
