package dedupe

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

func TestInFlight(t *testing.T) {
	var f InFlight[string]
	if !f.Begin(key(1), "a") || !f.Begin(key(2), "x") {
		t.Fatal("a free key was not taken")
	}
	for _, w := range []string{"b", "c", "d"} {
		if f.Begin(key(1), w) {
			t.Fatal("a held key was taken")
		}
	}
	if n := f.Cancel(key(1), func(w string) bool { return w == "c" || w == "a" }); n != 1 {
		t.Errorf("cancelled %d", n)
	}
	if n := f.Cancel(key(3), func(string) bool { return true }); n != 0 {
		t.Errorf("cancelled %d of a free key", n)
	}
	if got := f.End(key(1)); !slices.Equal(got, []string{"b", "d"}) {
		t.Errorf("waiters %v", got)
	}
	if !f.Begin(key(1), "b") || f.Begin(key(2), "y") {
		t.Error("the keys are not held as they should be")
	}
	if got := f.End(key(9)); got != nil {
		t.Errorf("waiters of a free key: %v", got)
	}
	f.Cancel(key(2), func(string) bool { return true })
	if got := f.End(key(2)); len(got) != 0 {
		t.Errorf("cancelled waiters: %v", got)
	}
	f.End(key(1))
	if f.Len() != 0 {
		t.Errorf("len %d", f.Len())
	}
}

// One holder at a time, and nobody is forgotten.
func TestInFlightIsConcurrent(t *testing.T) {
	const keys, each = 5, 400
	var f InFlight[uint64]
	var holders [keys]atomic.Int32
	var handled atomic.Int32
	var wg sync.WaitGroup
	var work func(n uint64)
	work = func(n uint64) {
		k := n % keys
		if !f.Begin(key(k), n) {
			return
		}
		if holders[k].Add(1) != 1 {
			t.Error("two hold one key")
		}
		handled.Add(1)
		holders[k].Add(-1)
		for _, w := range f.End(key(k)) {
			wg.Go(func() { work(w) })
		}
	}
	for n := range uint64(keys * each) {
		wg.Go(func() { work(n) })
	}
	wg.Wait()
	if handled.Load() != keys*each || f.Len() != 0 {
		t.Errorf("handled %d, held %d", handled.Load(), f.Len())
	}
}

func TestInFlightGivesMemoryBack(t *testing.T) {
	var f InFlight[int]
	before := heap()
	for n := range uint64(200_000) {
		f.Begin(quickKey(n), 0)
		f.Begin(quickKey(n), 1)
	}
	for n := range uint64(200_000) {
		f.End(quickKey(n))
	}
	if size := heap() - before; size > 100_000 {
		t.Errorf("%d bytes left", size)
	}
	if !f.Begin(key(1), 0) {
		t.Error("no longer works")
	}
}

func BenchmarkInFlight(b *testing.B) {
	var f InFlight[int]
	b.ReportAllocs()
	for i := uint64(0); b.Loop(); i++ {
		k := quickKey(i)
		f.Begin(k, 0)
		f.End(k)
	}
}
