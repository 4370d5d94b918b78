package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// results are all runs of one comparison.
type results struct {
	Began   time.Time         `json:"began"`
	Machine map[string]string `json:"machine"`
	Rounds  int               `json:"rounds"`
	Results []*result         `json:"results"`
}

// result are the runs of one forwarder in one case.
type result struct {
	Case      benchCase     `json:"case"`
	Forwarder string        `json:"forwarder"`
	Runs      []measurement `json:"runs"`
	Failures  []string      `json:"failures,omitempty"`
}

func (r *results) of(c benchCase, name string) *result {
	for _, one := range r.Results {
		if one.Case == c && one.Forwarder == name {
			return one
		}
	}
	return nil
}

func (r *results) add(c benchCase, f forwarder, m measurement, err error) {
	one := r.of(c, f.name)
	if one == nil {
		one = &result{Case: c, Forwarder: f.name}
		r.Results = append(r.Results, one)
	}
	if err != nil {
		one.Failures = append(one.Failures, err.Error())
	} else {
		one.Runs = append(one.Runs, m)
	}
}

// sort puts the results of a case into the order of its forwarders.
func (r *results) sort(c benchCase, part []forwarder) {
	place := func(one *result) int {
		if one.Case != c {
			return -1
		}
		return slices.IndexFunc(part, func(f forwarder) bool { return f.name == one.Forwarder })
	}
	slices.SortStableFunc(r.Results, func(a, b *result) int { return place(a) - place(b) })
}

// cases are those that have results, in order.
func (r *results) cases() []benchCase {
	var all []benchCase
	for _, one := range r.Results {
		if !slices.Contains(all, one.Case) {
			all = append(all, one.Case)
		}
	}
	return all
}

// spread is the median of some runs, and the least and the most.
type spread struct{ median, least, most float64 }

func (one *result) spread(of func(measurement) float64) spread {
	if len(one.Runs) == 0 {
		return spread{}
	}
	values := make([]float64, len(one.Runs))
	for i, m := range one.Runs {
		values[i] = of(m)
	}
	slices.Sort(values)
	n := len(values)
	return spread{(values[(n-1)/2] + values[n/2]) / 2, values[0], values[n-1]}
}

func (r *results) write(file string) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o600)
}

// readResults reads what write wrote.
func readResults(file string) (*results, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &results{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

// machine describes what the comparison ran on.
func machine(ctx context.Context) map[string]string {
	m := map[string]string{
		"cpus": fmt.Sprint(runtime.NumCPU()), "go": runtime.Version(), "system": runtime.GOOS + "/" + runtime.GOARCH,
		"cpu": field("/proc/cpuinfo", "model name"), "memory": field("/proc/meminfo", "MemTotal"),
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m["kernel"] = strings.TrimSpace(string(b))
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		m["load before"] = strings.Join(strings.Fields(string(b))[:3], " ")
	}
	if b, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--tags").Output(); err == nil {
		m["sidecar"] = strings.TrimSpace(string(b))
	}
	return m
}

// field is the first value of a "name : value" file.
func field(file, name string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
