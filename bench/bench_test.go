package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test binary play the roles: they are started from it.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == roleArgument {
		if err := playRole(os.Args[2], os.Args[3:]); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// A tiny comparison of everything: each forwarder brings each message to the app, and the tables are whole.
func TestComparison(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	var out, progress bytes.Buffer
	arguments := []string{
		"-rounds", "1", "-messages", "120", "-time", "300ms", "-rate", "100", "-json", file,
		"-cases", "^1 KiB, 64 in flight(, 1 % fail|, 5ms to NATS|, dedupe kv)?$|latency|idle",
	}
	if err := run(t.Context(), arguments, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	r, err := readResults(file)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[kind]int{}
	for _, one := range r.Results {
		if len(one.Runs) != 1 || len(one.Failures) > 0 {
			t.Errorf("%s, %s: %d runs, failures %v", one.Case.Name, one.Forwarder, len(one.Runs), one.Failures)
			continue
		}
		kinds[one.Case.Kind]++
		m := one.Runs[0]
		requests := m.Requests >= one.Case.Messages || one.Forwarder == "ceiling: ack only" || one.Case.Kind == idle
		if !requests || m.Memory == 0 || (m.Rate > 0) != (one.Case.Kind == throughput) || (len(m.Latency) == len(quantiles)) != (one.Case.Kind == latency) {
			t.Errorf("%s, %s: %+v", one.Case.Name, one.Forwarder, m)
		}
		if one.Case.Fail > 0 && m.Requests == one.Case.Messages {
			t.Errorf("%s: nothing failed", one.Forwarder)
		}
		for i := 1; i < len(m.Latency); i++ {
			if m.Latency[i] < m.Latency[i-1] || m.Latency[0] <= 0 {
				t.Errorf("latencies %v", m.Latency)
			}
		}
	}
	if kinds[throughput] < 12 || kinds[latency] != 4 || kinds[idle] != 4 {
		t.Errorf("%v", kinds)
	}
	var again bytes.Buffer
	if err := run(t.Context(), []string{"-from", file, "-markdown"}, &again, &progress); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(again.String(), "| sidecar |") || !strings.Contains(out.String(), "sidecar") {
		t.Errorf("%s\n%s", &out, &again)
	}
}

// What a user has can be compared by its command line; what fails is told, and costs nobody else's results.
func TestWith(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "results.json")
	loop := self + " role loop nats={nats} stream={stream} durable={durable} app={app} concurrency={concurrency} < /dev/zero"
	var out, progress bytes.Buffer
	err = run(t.Context(), []string{
		"-rounds", "1", "-messages", "50", "-time", "1s", "-size", "256", "-only", "mine,broken", "-json", file,
		"-with", "mine=" + loop, "-with", "broken=echo no good; exit 3",
	}, &out, &progress)
	if err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	r, err := readResults(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Results) != 2 || len(r.Results[0].Runs) != 1 || len(r.Results[1].Failures) != 1 || !strings.Contains(out.String(), "no good") {
		b, _ := json.Marshal(r.Results)
		t.Errorf("%s\n%s", b, &out)
	}
}

func TestPlan(t *testing.T) {
	for _, c := range []struct {
		arguments string
		cases     int
	}{
		{"", 1 + len(oneByOne) + len(always) + 3},
		{"-quick", 1 + len(oneByOne) + len(always) + 2},
		{"-full", 27 + len(always) + 3},
		{"-size 256,1024 -delay 0s,5ms", 4},
		{"-fail 1", 1},
		{"-rate 0 -cases idle", 1},
	} {
		o, err := parse(strings.Fields(c.arguments), &bytes.Buffer{})
		if err != nil {
			t.Fatal(err)
		}
		all := plan(o)
		if len(all) != c.cases {
			t.Errorf("%q: %d cases", c.arguments, len(all))
		}
		for i, one := range all {
			if one.Messages < 1 && one.Kind != idle || one.Messages*one.Size > mostBytes {
				t.Errorf("%+v", one)
			}
			if slices.ContainsFunc(all[:i], func(other benchCase) bool { return other.Name == one.Name }) {
				t.Errorf("%q: %s comes twice", c.arguments, one.Name)
			}
		}
	}
	for _, wrong := range []string{"x", "-rounds -1", "-size 4", "-size 256,nonsense", "-fail 99", "-only nobody", "-with nothing", "-cases ("} {
		if _, err := parse(strings.Fields(wrong), &bytes.Buffer{}); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}

func TestSpread(t *testing.T) {
	one := &result{}
	for _, rate := range []float64{30, 10, 20, 40} {
		one.Runs = append(one.Runs, measurement{Rate: rate})
	}
	if s := one.spread(func(m measurement) float64 { return m.Rate }); s != (spread{25, 10, 40}) {
		t.Errorf("%+v", s)
	}
	loop := &result{Runs: []measurement{{Rate: 50}}}
	if got := one.ratio(loop, func(m measurement) float64 { return m.Rate }); got != "0.50" {
		t.Error(got)
	}
}

func TestMessagesOf(t *testing.T) {
	o := &options{messages: 100000, seconds: 10 * time.Second}
	for _, c := range []struct {
		size, concurrency int
		delay             time.Duration
		want              int
	}{
		{1 << 10, 64, 0, 100000},
		{64 << 10, 64, 0, 8192},
		{1 << 10, 1, 0, 60000},
		{1 << 10, 16, 50 * time.Millisecond, 3200},
	} {
		if got := o.messagesOf(benchCase{Size: c.size, Concurrency: c.concurrency, Delay: c.delay}); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
