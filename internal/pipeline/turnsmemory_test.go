package pipeline

import (
	"runtime"
	"testing"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

// A million keys, of which a few have messages at a time, take the memory of a few.
func TestTurnsForgetKeys(t *testing.T) {
	const leases, keys = 32, 1_000_000
	turns := newTurns[jetstream.Key](func(p *parcel) uint64 { return uint64(p.sequence) })
	key := func(i int) jetstream.Key { return jetstream.Key{Alone: uint64(i)} }
	leased := map[int]*parcel{}
	before := heap()
	for i := range keys {
		leased[i] = &parcel{sequence: i}
		turns.join(key(i), leased[i])
		if old := i - leases + 1; old >= 0 {
			turns.leave(key(old), leased[old])
			delete(leased, old)
		}
		if n := len(turns.lines); n > leases {
			t.Fatalf("%d keys are known", n)
		}
	}
	for i, p := range leased {
		turns.leave(key(i), p)
	}
	if n := len(turns.lines); n > 0 {
		t.Errorf("%d keys are known in the end", n)
	}
	if grown := heap() - before; grown > 64<<10 {
		t.Errorf("%d bytes are kept", grown)
	}
	runtime.KeepAlive(turns)
}

// heap is what is in use after a collection.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
