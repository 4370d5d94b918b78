package dedupe

import (
	"encoding/binary"
	"math/rand/v2"
)

// table is a set of keys in the order they were added or refreshed. Entries lie in small chunks, linked oldest to newest, and are
// found through an open-addressing index of entry numbers. Neither a built-in map (its size can double at once) nor a queue
// with tombstones (refreshing one key for ever would fill it) keeps the promised size at every number of entries.
//
// Entry numbers start at 1; 0 is none.
type table struct {
	chunks []*[chunkEntries]entry
	used   uint32 // entries handed out from the chunks, live or free
	live   int
	free   uint32 // freed entries, linked by next
	first  uint32 // oldest
	last   uint32 // newest

	slots []uint32 // entry numbers, by hash, linear probing; a power of two
	seed  [2]uint64
}

type entry struct {
	key        Key
	at         int64 // time of the last refresh
	prev, next uint32
}

const (
	chunkEntries = 64
	leastSlots   = 16
)

func newTable() table {
	return table{
		slots: make([]uint32, leastSlots),
		seed:  [2]uint64{rand.Uint64(), rand.Uint64() | 1},
	}
}

func (t *table) len() int { return t.live }

// oldest is the time of the oldest entry.
func (t *table) oldest() (int64, bool) { return t.time(t.first) }

// newest is the time of the newest entry.
func (t *table) newest() (int64, bool) { return t.time(t.last) }

func (t *table) time(n uint32) (int64, bool) {
	if n == 0 {
		return 0, false
	}
	return t.entry(n).at, true
}

// find is the number of k's entry.
func (t *table) find(k Key) (uint32, bool) {
	for i := t.home(k); ; i = t.step(i) {
		n := t.slots[i]
		if n == 0 {
			return 0, false
		}
		if t.entry(n).key == k {
			return n, true
		}
	}
}

// add makes k, which is not in the table, the newest.
func (t *table) add(k Key, at int64) {
	if (t.live+1)*4 > len(t.slots)*3 {
		t.reindex(len(t.slots) * 2)
	}
	n := t.alloc()
	e := t.entry(n)
	e.key, e.at = k, at
	t.link(n)
	t.index(n)
	t.live++
}

// refresh makes entry n the newest.
func (t *table) refresh(n uint32, at int64) {
	t.unlink(n)
	t.entry(n).at = at
	t.link(n)
}

// dropOldest removes the oldest entry.
func (t *table) dropOldest() {
	n := t.first
	t.unindex(n)
	t.unlink(n)
	t.entry(n).next = t.free
	t.free = n
	t.live--
	if int(t.used) > chunkEntries && t.live < int(t.used)*7/8 {
		t.compact()
	}
}

// compact moves the entries into no more memory than they need.
func (t *table) compact() {
	fresh := newTable()
	for len(fresh.slots)*3 < (t.live+1)*4 {
		fresh.slots = make([]uint32, len(fresh.slots)*2)
	}
	for n := t.first; n != 0; n = t.entry(n).next {
		e := t.entry(n)
		fresh.add(e.key, e.at)
	}
	*t = fresh
}

func (t *table) entry(n uint32) *entry {
	return &t.chunks[(n-1)/chunkEntries][(n-1)%chunkEntries]
}

// alloc hands out an entry: a freed one, else the next of the last chunk, else of a new chunk.
func (t *table) alloc() uint32 {
	if n := t.free; n != 0 {
		t.free = t.entry(n).next
		return n
	}
	if int(t.used) == len(t.chunks)*chunkEntries {
		t.chunks = append(t.chunks, new([chunkEntries]entry))
	}
	t.used++
	return t.used
}

func (t *table) link(n uint32) {
	e := t.entry(n)
	e.prev, e.next = t.last, 0
	if t.last != 0 {
		t.entry(t.last).next = n
	} else {
		t.first = n
	}
	t.last = n
}

func (t *table) unlink(n uint32) {
	e := t.entry(n)
	if e.prev != 0 {
		t.entry(e.prev).next = e.next
	} else {
		t.first = e.next
	}
	if e.next != 0 {
		t.entry(e.next).prev = e.prev
	} else {
		t.last = e.prev
	}
}

// home is the slot where k's entry would lie if no other were there. The keys are hashes already; the seed keeps a publisher
// from choosing ids whose keys fall together.
func (t *table) home(k Key) int {
	h := (binary.LittleEndian.Uint64(k[:8]) ^ t.seed[0]) * t.seed[1]
	return int(h>>32) & (len(t.slots) - 1)
}

func (t *table) step(i int) int { return (i + 1) & (len(t.slots) - 1) }

func (t *table) index(n uint32) {
	i := t.home(t.entry(n).key)
	for t.slots[i] != 0 {
		i = t.step(i)
	}
	t.slots[i] = n
}

// unindex empties n's slot and moves later entries of its run up, so that no tombstone is left.
func (t *table) unindex(n uint32) {
	hole := t.home(t.entry(n).key)
	for t.slots[hole] != n {
		hole = t.step(hole)
	}
	mask := len(t.slots) - 1
	for i := t.step(hole); t.slots[i] != 0; i = t.step(i) {
		home := t.home(t.entry(t.slots[i]).key)
		if (i-home)&mask >= (i-hole)&mask { // the hole is between its home and where it lies
			t.slots[hole] = t.slots[i]
			hole = i
		}
	}
	t.slots[hole] = 0
}

func (t *table) reindex(slots int) {
	t.slots = make([]uint32, slots)
	for n := t.first; n != 0; n = t.entry(n).next {
		t.index(n)
	}
}
