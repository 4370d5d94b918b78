//go:build unix

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if hidden(os.Args) {
		return
	}
	os.Exit(m.Run())
}

// A short campaign, as anyone can run it, holds every promise, and leaves nothing behind.
func TestShortCampaign(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out, errs bytes.Buffer
	if code := command([]string{"-duration", "5s", "-seed", "12"}, &out, &errs); code != exitHeld {
		t.Errorf("code %d\n%s\n%s", code, &out, &errs)
	}
	if left, _ := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "campaign*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	t.Log(out.String())
}

// A campaign that is interrupted ends its processes, and soon.
func TestInterrupted(t *testing.T) {
	h, err := newHouse(false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := runCampaign(ctx, h, newPlan(1, time.Minute), "/nonexistent", 10); err == nil {
		t.Error("no error")
	}
	h.close()
	if len(h.alive) > 0 {
		t.Errorf("%d processes are left", len(h.alive))
	}
	if _, err := os.Stat(h.dir); err == nil {
		t.Error("the directory is left")
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"x"}, {"-duration", "1ms"}, {"-seeds", "0"}, {"-rate", "0"}, {"-nonsense"}} {
		if code := command(args, &bytes.Buffer{}, &bytes.Buffer{}); code != exitFailed {
			t.Errorf("%v: code %d", args, code)
		}
	}
}

// The same seed is the same plan, and a longer one begins as a shorter one.
func TestPlanIsReproducible(t *testing.T) {
	kinds := map[kind]bool{}
	for seed := range uint64(200) {
		p := newPlan(seed, time.Minute)
		if !reflect.DeepEqual(p, newPlan(seed, time.Minute)) {
			t.Fatalf("seed %d: two plans", seed)
		}
		short := newPlan(seed, 20*time.Second)
		if !reflect.DeepEqual(short.Faults, p.Faults[:len(short.Faults)]) {
			t.Fatalf("seed %d: a longer plan begins otherwise", seed)
		}
		for _, f := range p.Faults {
			kinds[f.Kind] = true
			if f.At < quietStart || f.At >= p.Duration || f.Sidecar >= p.Sidecars || f.Node >= nodes || f.Length < 0 {
				t.Fatalf("seed %d: %s", seed, f)
			}
		}
	}
	if len(kinds) != len(shapes) {
		t.Errorf("%d kinds of faults of %d", len(kinds), len(shapes))
	}
}

// At most one disturbance of the nodes lasts at a time: the cluster keeps its quorum.
func TestPlanKeepsAQuorum(t *testing.T) {
	for seed := range uint64(200) {
		until := time.Duration(0)
		for _, f := range newPlan(seed, time.Minute).Faults {
			switch f.Kind {
			case nodeKill, nodeStop, nodePause, nodeCut, routeCut, blackout:
				if f.At < until {
					t.Fatalf("seed %d: %s, and another lasts until %s", seed, f, until)
				}
				until = f.At + f.Length
			default:
			}
		}
	}
}

func TestMessages(t *testing.T) {
	seen := map[nature]int{}
	for i := range 2000 {
		seen[natureOf(7, i)]++
		if got := indexOf(bodyOf(7, i)); got != i {
			t.Fatalf("message %d is read as %d", i, got)
		}
	}
	for _, s := range natures {
		if seen[s.nature] < 10 {
			t.Errorf("%d of %s", seen[s.nature], s.nature)
		}
	}
	if indexOf([]byte("x")) != -1 || indexOf(nil) != -1 {
		t.Error("read an index where there is none")
	}
}

// The broken lines are in the sources, so that the mutants are what they say.
func TestMutantsApply(t *testing.T) {
	tree, err := moduleDir(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		text, err := os.ReadFile(filepath.Join(tree, m.file))
		if err != nil || strings.Count(string(text), m.old) == 0 {
			t.Errorf("%s: %s has no such line (%v)", m.name, m.file, err)
		}
	}
}
