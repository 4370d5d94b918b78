//go:build unix

package main

import (
	"os"
	"strings"
	"testing"
)

// looksOf are looks at the steady sidecar, all alike, and at another one.
func looksOf(n int, change func(i int, l *look)) []look {
	var all []look
	for i := range n {
		l := look{storm: i, life: "0.0", rss: 20 << 20, goroutines: 40, files: 11, sockets: 2}
		change(i, &l)
		all = append(all, l, look{storm: i, slot: 1, life: "1.0", rss: int64(i) << 20})
	}
	return all
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name   string
		looks  int
		change func(i int, l *look)
		want   string // what is said; empty if it is flat
	}{
		{"alike", 30, func(int, *look) {}, ""},
		{"few", 4, func(int, *look) {}, ""},
		{"too few", 3, func(int, *look) {}, "only 3 looks"},
		{"warming up", 30, func(i int, l *look) { l.goroutines += int64(max(0, 5-i)) * 100 }, ""},
		{"one high look", 30, func(i int, l *look) { l.files += int64(i / 28 * 100) }, ""},
		{"memory within the margin", 30, func(i int, l *look) { l.rss += int64(i) << 18 }, ""},
		{"memory grows", 30, func(i int, l *look) { l.rss += int64(i) << 20 }, "resident memory"},
		{"goroutines grow", 30, func(i int, l *look) { l.goroutines += int64(i / 4) }, "goroutines grew"},
		{"files grow", 30, func(i int, l *look) { l.files += int64(i / 4) }, "open files grew"},
		{"sockets grow", 30, func(i int, l *look) { l.sockets += int64(i / 4) }, "sockets grew"},
		{"replaced", 30, func(i int, l *look) {
			if i > 20 {
				l.life = "0.1"
			}
		}, "its process was replaced"},
	} {
		t.Run(c.name, func(t *testing.T) {
			looks := looksOf(c.looks, c.change)
			f := judge(looks, steadySlot)
			var out strings.Builder
			printFlatness(&out, f, looks)
			if f.flat() != (c.want == "") || !strings.Contains(out.String(), c.want) {
				t.Errorf("flat %v:\n%s", f.flat(), &out)
			}
		})
	}
}

func TestNumber(t *testing.T) {
	text := "# TYPE go_goroutines gauge\ngo_goroutines 42\nVmRSS:\t   1234 kB\n"
	for name, want := range map[string]int64{"go_goroutines ": 42, "VmRSS:": 1234} {
		if got, err := number(strings.NewReader(text), name); got != want || err != nil {
			t.Errorf("%s: %d, %v", name, got, err)
		}
	}
	if _, err := number(strings.NewReader(text), "nothing"); err == nil {
		t.Error("a number of nothing")
	}
	if n, err := field("/proc/self/status", "VmRSS:"); n <= 0 || err != nil {
		if _, there := os.Stat("/proc/self/status"); there == nil {
			t.Errorf("resident memory of this process: %d, %v", n, err)
		}
	}
}

// In a soak one sidecar is left running, and each storm has other faults.
func TestSoakPlan(t *testing.T) {
	p := soakPlan(7, longStorm*12)
	kinds := map[kind]bool{}
	for n := range 200 {
		for _, f := range p.stormFaults(n) {
			kinds[f.Kind] = true
			switch f.Kind {
			case sidecarKill, sidecarStop, stopCutOff:
				if f.Sidecar == steadySlot {
					t.Fatalf("storm %d: %s", n, f)
				}
			default:
			}
		}
	}
	if len(kinds) != len(shapes) {
		t.Errorf("%d kinds of faults of %d", len(kinds), len(shapes))
	}
	for n := range 10 {
		if !p.breakerOn(steadySlot, n) {
			t.Error("the steady sidecar has no breaker")
		}
	}
}
