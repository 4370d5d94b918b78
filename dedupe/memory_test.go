package dedupe

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

var scope = NewScope("ORDERS", time.Unix(1700000000, 0), "worker")

func key(n uint64) Key { return scope.Message(n, time.Unix(0, int64(n))) }

func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(time.Hour, 3, time.Now)
		expect := func(want ...uint64) {
			t.Helper()
			for n := uint64(1); n <= 9; n++ {
				if got := m.Seen(key(n)); got != slices.Contains(want, n) {
					t.Errorf("%d seen: %v", n, got)
				}
			}
			if m.Len() != len(want) {
				t.Errorf("len %d, want %d", m.Len(), len(want))
			}
		}
		expect()
		m.Remember(key(1))
		time.Sleep(20 * time.Minute)
		m.Remember(key(2))
		time.Sleep(20 * time.Minute)
		m.Remember(key(3))
		expect(1, 2, 3)

		m.Remember(key(1)) // refreshed: 2 is the oldest now
		expect(1, 2, 3)
		m.Remember(key(4)) // makes room
		expect(1, 3, 4)

		time.Sleep(time.Hour - 1)
		expect(1, 3, 4)
		time.Sleep(time.Nanosecond)
		expect()
	})
}

func TestMemoryOfNothing(t *testing.T) {
	for _, m := range []*Memory{NewMemory(0, 10, time.Now), NewMemory(time.Hour, 0, time.Now), NewMemory(-1, -1, time.Now)} {
		m.Remember(key(1))
		if m.Seen(key(1)) || m.Len() != 0 {
			t.Error("remembers")
		}
	}
}

// Against a plain model, through growing, expiring, refreshing and shrinking.
func TestMemoryModel(t *testing.T) {
	type item struct {
		k  Key
		at time.Time
	}
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(0, 0)
		limit := rapid.IntRange(1, 150).Draw(t, "max")
		m := NewMemory(time.Minute, limit, func() time.Time { return now })
		var model []item
		t.Repeat(map[string]func(*rapid.T){
			"remember": func(t *rapid.T) {
				for range rapid.IntRange(1, 100).Draw(t, "count") {
					k := key(rapid.Uint64Range(0, 250).Draw(t, "key"))
					m.Remember(k)
					model = slices.DeleteFunc(model, func(i item) bool { return i.k == k })
					model = append(model, item{k, now})
					if len(model) > limit {
						model = model[1:]
					}
				}
			},
			"wait": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(40*time.Second)).Draw(t, "time")))
				model = slices.DeleteFunc(model, func(i item) bool { return now.Sub(i.at) >= time.Minute })
			},
			"": func(t *rapid.T) {
				if m.Len() != len(model) {
					t.Fatalf("len %d, want %d", m.Len(), len(model))
				}
				for n := range uint64(251) {
					k := key(n)
					want := slices.ContainsFunc(model, func(i item) bool { return i.k == k })
					if m.Seen(k) != want {
						t.Fatalf("%d seen: %v", n, !want)
					}
				}
			},
		})
	})
}

func TestMemoryClockGoesBack(t *testing.T) {
	now := time.Unix(1000, 0)
	m := NewMemory(time.Minute, 10, func() time.Time { return now })
	m.Remember(key(1))
	now = now.Add(-time.Hour)
	m.Remember(key(2))
	if !m.Seen(key(1)) || !m.Seen(key(2)) {
		t.Error("forgotten")
	}
	now = now.Add(2 * time.Hour)
	if m.Len() != 0 {
		t.Error("kept")
	}
}

func TestMemoryIsConcurrent(t *testing.T) {
	m := NewMemory(time.Hour, 100, time.Now)
	var wg sync.WaitGroup
	for w := range uint64(8) {
		wg.Go(func() {
			for i := range uint64(5000) {
				m.Remember(key(w*1000 + i%150))
				m.Seen(key(i))
			}
		})
	}
	wg.Wait()
	if m.Len() != 100 {
		t.Errorf("len %d", m.Len())
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// quickKey is a key without hashing, spread as a hash is.
func quickKey(n uint64) (k Key) {
	n *= 0x9e3779b97f4a7c15
	binary.LittleEndian.PutUint64(k[:], n^n>>29)
	binary.LittleEndian.PutUint64(k[8:], n)
	return k
}

const (
	entryBytes = 64
	fixedBytes = 16 << 10 // of a store with nothing in it, and of measuring: told apart below 1000 entries only
)

// At any number of entries, going up and coming down, an entry costs at most 64 bytes.
func TestMemorySize(t *testing.T) {
	for _, limit := range []int{100_000, 1_000_000} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			now := time.Unix(0, 0)
			before := heap()
			m := NewMemory(time.Hour, limit, func() time.Time { return now })
			worst := 0.0
			check := func() {
				t.Helper()
				n := m.Len()
				size := heap() - before
				limit := int64(n) * entryBytes
				if n < 1000 {
					limit += fixedBytes
				}
				if size > limit {
					t.Errorf("%d entries: %d bytes, %.1f each", n, size, float64(size)/float64(n))
				}
				if n >= 1000 {
					worst = max(worst, float64(size)/float64(n))
				}
			}
			check()
			next := 1.0
			for i := range limit {
				now = now.Add(time.Millisecond)
				m.Remember(quickKey(uint64(i)))
				// Right before and after every doubling of the index, and all along.
				n := m.Len()
				if doubling := n*4 > 3*len(m.table.slots)-4 || n == 3*len(m.table.slots)/8+1; float64(n) >= next || doubling {
					check()
					next = max(next*1.2, next+1)
				}
			}
			check()
			for m.Len() > 10 {
				now = now.Add(time.Duration(m.Len()/8+1) * time.Millisecond)
				if m.Len() == limit {
					now = time.Unix(0, 0).Add(time.Hour)
				}
				check()
			}
			t.Logf("at most %.1f bytes an entry, from 1000 entries", worst)
			runtime.KeepAlive(m)
		})
	}
}

// Long runs, with refreshing, leave no traces.
func TestMemoryStaysFlat(t *testing.T) {
	const limit = 10_000
	inserts := uint64(5_000_000)
	if raceDetector {
		inserts /= 10
	}
	now := time.Unix(0, 0)
	before := heap()
	m := NewMemory(time.Hour, limit, func() time.Time { return now })
	for i := range inserts {
		now = now.Add(time.Millisecond)
		m.Remember(quickKey(i))
		m.Remember(quickKey(i / 1000)) // one hot key
		if (i+1)%(inserts/10) == 0 {
			if size := heap() - before; size > limit*entryBytes || m.Len() != limit {
				t.Fatalf("after %d: %d bytes, %d entries", i, size, m.Len())
			}
		}
	}
	runtime.KeepAlive(m)
}

func BenchmarkMemory(b *testing.B) {
	m := NewMemory(time.Hour, 100_000, time.Now)
	b.ReportAllocs()
	for i := uint64(0); b.Loop(); i++ {
		k := quickKey(i)
		if !m.Seen(k) {
			m.Remember(k)
		}
	}
}
