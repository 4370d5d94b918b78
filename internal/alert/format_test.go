package alert

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

var began = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func sample(status Status) Alert {
	return Alert{
		Status: status, Stream: "ORDERS", Consumer: "worker", DLQStream: "ORDERS_DLQ", Depth: 11, Threshold: 10,
		Reasons: map[string]int{"max_deliver": 2, "rejected": 9}, Time: began.Add(time.Minute), since: began,
	}
}

func encoded(t *testing.T, f Format, a Alert, into any) {
	t.Helper()
	b, err := f.encode(a, began.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
}

func TestJSON(t *testing.T) {
	var b []byte
	for _, c := range []struct {
		a    Alert
		want string
	}{
		{sample(Firing), `{"status":"firing","stream":"ORDERS","consumer":"worker","dlq_stream":"ORDERS_DLQ","depth":11,"threshold":10,"reasons":{"max_deliver":2,"rejected":9},"time":"2026-05-01T12:01:00Z"}`},
		{Alert{Status: Resolved}, `{"status":"resolved","stream":"","consumer":"","dlq_stream":"","depth":0,"threshold":0,"reasons":{},"time":"0001-01-01T00:00:00Z"}`},
	} {
		if b, _ = JSON.encode(c.a, began); string(b) != c.want {
			t.Errorf("got  %s\nwant %s", b, c.want)
		}
	}
}

func TestSlack(t *testing.T) {
	var got map[string]string
	encoded(t, Slack, sample(Firing), &got)
	want := "ORDERS_DLQ has 11 entries, more than the 10 of alert_depth (stream ORDERS, consumer worker). The newest by reason: rejected 9, max_deliver 2."
	if len(got) != 1 || got["text"] != want {
		t.Errorf("%v", got)
	}
	encoded(t, Slack, sample(Resolved), &got)
	if !strings.HasPrefix(got["text"], "Resolved: ORDERS_DLQ has 11 entries") {
		t.Errorf("%v", got)
	}
	hostile := sample(Firing)
	hostile.Reasons = map[string]int{"<!channel> & <http://evil|click>": 1}
	encoded(t, Slack, hostile, &got)
	if strings.ContainsAny(got["text"], "<>") || !strings.Contains(got["text"], "&lt;!channel&gt; &amp; ") {
		t.Errorf("%v", got)
	}
}

func TestAlertmanager(t *testing.T) {
	var firing, resolved []managed
	encoded(t, Alertmanager, sample(Firing), &firing)
	encoded(t, Alertmanager, sample(Resolved), &resolved)
	if len(firing) != 1 || len(resolved) != 1 {
		t.Fatalf("%v %v", firing, resolved)
	}
	if f := firing[0]; !f.StartsAt.Equal(began) || !f.EndsAt.Equal(began.Add(time.Hour+renewFor)) || f.Annotations["reasons"] != "rejected 9, max_deliver 2" {
		t.Errorf("%+v", f)
	}
	if r := resolved[0]; !r.StartsAt.Equal(began) || !r.EndsAt.Equal(began.Add(time.Minute)) {
		t.Errorf("%+v", r)
	}
	for name, value := range firing[0].Labels {
		if resolved[0].Labels[name] != value || len(firing[0].Labels) != len(resolved[0].Labels) {
			t.Errorf("label %s differs: it would be another alert", name)
		}
	}
	if firing[0].Labels["alertname"] == "" || firing[0].Labels["dlq_stream"] != "ORDERS_DLQ" {
		t.Errorf("%v", firing[0].Labels)
	}
}

func TestAlertmanagerIsToldAgain(t *testing.T) {
	s := watched(t, Alertmanager, func(s *story) {
		s.at(11, 10*time.Minute)
		s.at(1, 10*time.Minute)
	})
	if n := len(s.bodies); n < 10 || n > 12 {
		t.Errorf("%d posts", n)
	}
	var believed time.Time
	for i, b := range s.bodies {
		var got []managed
		if err := json.Unmarshal([]byte(b), &got); err != nil {
			t.Fatal(err)
		}
		last := i == len(s.bodies)-1
		if over := !got[0].EndsAt.After(s.tried[i]); over != last {
			t.Errorf("post %d at %v ends at %v", i+1, s.tried[i], got[0].EndsAt)
		}
		if i > 0 && s.tried[i].After(believed) {
			t.Errorf("post %d comes at %v, when the alert had ended by itself at %v", i+1, s.tried[i], believed)
		}
		believed = got[0].EndsAt
		if s.posts[i].URL.Path != "/hunter2" {
			t.Errorf("posted to %s", s.posts[i].URL.Path)
		}
	}
}

func TestTarget(t *testing.T) {
	for _, c := range []struct {
		f           Format
		given, want string
	}{
		{Alertmanager, "http://am:9093", "http://am:9093/api/v2/alerts"},
		{Alertmanager, "http://u:p@am:9093/?a=b", "http://u:p@am:9093/api/v2/alerts?a=b"},
		{Alertmanager, "http://am/prefix/api/v2/alerts", "http://am/prefix/api/v2/alerts"},
		{JSON, "http://am:9093", "http://am:9093"},
		{Slack, "https://hooks.example/a/b", "https://hooks.example/a/b"},
	} {
		if got := c.f.target(c.given); got != c.want {
			t.Errorf("%s %s: %s", c.f, c.given, got)
		}
	}
}
