// Package check holds that the alerting rules and the dashboard are what Prometheus and Grafana take, and that the rules tell
// of what they are for. It is a module of its own, to keep Prometheus out of the sidecar's.
package check

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
)

const rulesFile = "../prometheus/rules.yaml"

// rules are all of the file.
func rules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := parse(text)
	for _, err := range errs {
		t.Error(err)
	}
	var all []rulefmt.Rule
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("no rules")
	}
	return all
}

func TestRulesAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rules(t) {
		severity := r.Labels["severity"]
		if r.Alert == "" || seen[r.Alert] || severity != "critical" && severity != "warning" || !strings.HasSuffix(r.Annotations["summary"], ".") {
			t.Errorf("%+v", r)
		}
		seen[r.Alert] = true
	}
}

// healthy is a sidecar with nothing to tell, and another on the same durable.
const healthy = `
sidecar_build_info{instance="a",job="j"}                                             1x60
sidecar_nats_connected{instance="a",job="j"}                                         1x60
sidecar_app_up{instance="a",job="j"}                                                 1x60
sidecar_consumer_bound{instance="a",job="j",stream="S",consumer="c"}                 1x60
sidecar_breaker_open{instance="a",job="j",stream="S",consumer="c"}                   0x60
sidecar_dlq_alert{instance="a",job="j",stream="S",consumer="c"}                      0x60
sidecar_dlq_publish_failures_total{instance="a",job="j",stream="S",consumer="c"}     7x60
sidecar_dedupe_errors_total{instance="a",job="j",stream="S",consumer="c"}            7x60
sidecar_pending{instance="a",job="j",stream="S",consumer="c"}                        20000-100x60
sidecar_pending{instance="b",job="j",stream="S",consumer="c"}                        20000-100x60
sidecar_ack_pending{instance="a",job="j",stream="S",consumer="c"}                    790x60
sidecar_max_ack_pending{instance="a",job="j",stream="S",consumer="c"}                1000x60
sidecar_ack_pending{instance="a",job="j",stream="T",consumer="c"}                    790000x60
sidecar_max_ack_pending{instance="a",job="j",stream="T",consumer="c"}                0x60
sidecar_messages_total{instance="a",job="j",stream="S",consumer="c",verdict="ack"}   0+0x60
sidecar_messages_total{instance="b",job="j",stream="S",consumer="c",verdict="ack"}   0+100x60
sidecar_messages_total{instance="b",job="j",stream="S",consumer="c",verdict="retry"} 0+90x60
sidecar_messages_total{instance="b",job="j",stream="S",consumer="c",verdict="dlq"}   3x60
`

// with is the healthy sidecar with one series in place of another, or without it.
func with(t *testing.T, series, values string) []string {
	t.Helper()
	var lines []string
	found := false
	for line := range strings.Lines(strings.TrimSpace(healthy)) {
		line = strings.TrimSpace(line)
		if series != "" && strings.HasPrefix(line, series) {
			found = true
			if line = line[:strings.Index(line, "}")+1] + " " + values; values == "" {
				continue
			}
		}
		lines = append(lines, line)
	}
	if !found && series != "" {
		t.Fatalf("no series %s", series)
	}
	return lines
}

func TestRulesTell(t *testing.T) {
	all := rules(t)
	told := map[string]bool{}
	for _, c := range []struct{ series, values, alerts string }{
		{"", "", ""},
		{"sidecar_build_info", "", "SidecarAbsent"},
		{"sidecar_nats_connected", "0x60", "SidecarNoNATS"},
		{"sidecar_app_up", "0x60", "SidecarAppDown"},
		{"sidecar_consumer_bound", "0x60", "SidecarNotServing"},
		{"sidecar_breaker_open", "1x60", "SidecarBreakerOpen"},
		{"sidecar_dlq_alert", "1x60", "SidecarDLQDepth"},
		{"sidecar_dlq_publish_failures_total", "7+1x60", "SidecarDLQCannotStore"},
		{"sidecar_dedupe_errors_total", "7+1x60", "SidecarDedupeErrors"},
		{"sidecar_pending", "20000+100x60", "SidecarBehind"},
		{"sidecar_pending", "100+100x60", ""},
		{"sidecar_messages_total{instance=\"b\",job=\"j\",stream=\"S\",consumer=\"c\",verdict=\"ack\"", "50+50x60", "SidecarMostlyRetries"},
		{"sidecar_messages_total{instance=\"b\",job=\"j\",stream=\"S\",consumer=\"c\",verdict=\"dlq\"", "0x20 1x40", "SidecarDeadLetters"},
		{"sidecar_messages_total", "5x60", "SidecarStalled"},
		{"sidecar_ack_pending{instance=\"a\",job=\"j\",stream=\"S\"", "800x60", "SidecarParkedNearLimit"},
	} {
		t.Run(fmt.Sprintf("%s %s", strings.Trim(c.series+" "+c.values, " "), c.alerts), func(t *testing.T) {
			got := firing(t, all, with(t, c.series, c.values))
			if words := strings.Join(got, " "); words != c.alerts {
				t.Errorf("firing: %q, want %q", words, c.alerts)
			}
			told[c.alerts] = true
		})
	}
	for _, r := range all {
		if !told[r.Alert] {
			t.Errorf("%s: no case lets it fire", r.Alert)
		}
	}
}

// firing are the alerts whose condition is true after 30 minutes of these series. Each must be one alert, also where two
// sidecars share a durable.
func firing(t *testing.T, all []rulefmt.Rule, lines []string) []string {
	t.Helper()
	storage := loaded(t, lines)
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 10000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: queries})
	names := map[string]bool{}
	for _, r := range all {
		query, err := engine.NewInstantQuery(t.Context(), storage, nil, r.Expr, time.Unix(0, 0).Add(30*time.Minute))
		if err != nil {
			t.Fatalf("%s: %v", r.Alert, err)
		}
		vector, err := query.Exec(t.Context()).Vector()
		if err != nil {
			t.Fatalf("%s: %v", r.Alert, err)
		}
		if len(vector) > 1 {
			t.Errorf("%s tells of one thing %d times: %v", r.Alert, len(vector), vector)
		}
		if len(vector) > 0 {
			names[r.Alert] = true
		}
		query.Close()
	}
	return slices.Sorted(maps.Keys(names))
}
