package alert

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Format is what a receiver takes.
type Format string

// The formats.
const (
	JSON         Format = "json"         // one Alert
	Slack        Format = "slack"        // Slack's incoming webhooks: {"text": "..."}
	Alertmanager Format = "alertmanager" // its API, POST /api/v2/alerts
)

// Status is whether an alert begins or is over.
type Status string

// The statuses.
const (
	Firing   Status = "firing"
	Resolved Status = "resolved"
)

// Alert is what is posted as JSON.
type Alert struct {
	Status    Status         `json:"status"`
	Stream    string         `json:"stream"`
	Consumer  string         `json:"consumer"`
	DLQStream string         `json:"dlq_stream"`
	Depth     uint64         `json:"depth"`
	Threshold int            `json:"threshold"`
	Reasons   map[string]int `json:"reasons"` // of the newest entries
	Time      time.Time      `json:"time"`

	since time.Time // when it began
}

// encode is the body of a post.
func (f Format) encode(a Alert, now time.Time) ([]byte, error) {
	switch f {
	case Slack:
		return json.Marshal(map[string]string{"text": slackEscape.Replace(a.text())})
	case Alertmanager:
		return json.Marshal([]managed{a.managed(now)})
	default:
		if a.Reasons == nil {
			a.Reasons = map[string]int{}
		}
		return json.Marshal(a)
	}
}

// target is where a post goes: to the URL as given, but that an Alertmanager may be named without the path of its API.
func (f Format) target(given string) string {
	u, err := url.Parse(given)
	if f != Alertmanager || err != nil || strings.Trim(u.Path, "/") != "" {
		return given
	}
	u.Path = "/api/v2/alerts"
	return u.String()
}

// slackEscape keeps a text from being taken for links and mentions (Slack, "Formatting text", escaping).
var slackEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// text is an alert in words.
func (a Alert) text() string {
	if a.Status == Resolved {
		return fmt.Sprintf("Resolved: %s has %d entries, no more than the %d of alert_depth (stream %s, consumer %s).", a.DLQStream, a.Depth, a.Threshold, a.Stream, a.Consumer)
	}
	text := fmt.Sprintf("%s has %d entries, more than the %d of alert_depth (stream %s, consumer %s).", a.DLQStream, a.Depth, a.Threshold, a.Stream, a.Consumer)
	if causes := a.causes(); causes != "" {
		text += " The newest by reason: " + causes + "."
	}
	return text
}

// causes lists the reasons, the most frequent first.
func (a Alert) causes() string {
	reasons := slices.SortedFunc(maps.Keys(a.Reasons), func(x, y string) int {
		if n := a.Reasons[y] - a.Reasons[x]; n != 0 {
			return n
		}
		return strings.Compare(x, y)
	})
	words := make([]string, len(reasons))
	for i, r := range reasons {
		words[i] = fmt.Sprintf("%s %d", r, a.Reasons[r])
	}
	return strings.Join(words, ", ")
}

// managed is one alert of Alertmanager's API (its postableAlert).
type managed struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt"`
	EndsAt      time.Time         `json:"endsAt"`
}

// managed has the same labels whichever sidecar tells: the alerts of several are one.
func (a Alert) managed(now time.Time) managed {
	m := managed{
		Labels: map[string]string{
			"alertname": "SidecarDLQDepth", "severity": "warning", "stream": a.Stream, "consumer": a.Consumer, "dlq_stream": a.DLQStream,
		},
		Annotations: map[string]string{"summary": a.text(), "depth": fmt.Sprint(a.Depth)},
		StartsAt:    a.since, EndsAt: now.UTC().Add(renewFor),
	}
	if causes := a.causes(); causes != "" {
		m.Annotations["reasons"] = causes
	}
	if a.Status == Resolved {
		m.EndsAt = a.Time
	}
	return m
}
