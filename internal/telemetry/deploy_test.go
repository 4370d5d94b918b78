package telemetry

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var metricName = regexp.MustCompile(`\bsidecar_[a-z_]+\b`)

// TestDeployedNamesAreServed holds that alerting rules and the dashboard ask for metrics that there are.
func TestDeployedNamesAreServed(t *testing.T) {
	for _, file := range []string{"../../deploy/prometheus/rules.yaml", "../../deploy/grafana/dashboard.json", "../../docs/operating.md", "../../README.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names := metricName.FindAllString(string(text), -1)
		if len(names) == 0 {
			t.Errorf("%s: no metrics", file)
		}
		for _, name := range names {
			base := name
			for _, of := range []string{"_bucket", "_sum", "_count"} {
				base = strings.TrimSuffix(base, of)
			}
			if _, ok := served[base]; !ok {
				t.Errorf("%s: %s is not served", file, name)
			}
		}
	}
}

// TestDashboardShowsAll holds that every metric is in the dashboard.
func TestDashboardShowsAll(t *testing.T) {
	text, err := os.ReadFile("../../deploy/grafana/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	for name := range served {
		if name != "sidecar_parked" && !strings.Contains(string(text), name) { // that one is summed from its parts: it is each sidecar's
			t.Errorf("%s is not in the dashboard", name)
		}
	}
}
