package dedupe

import (
	"sync"
	"time"
)

// Memory remembers keys in this process, each for a time and up to a number of keys; the oldest makes room. It is safe for
// concurrent use. An entry costs less than 64 bytes at any number of entries, and entries that ended give their memory back
// as later calls come.
type Memory struct {
	ttl time.Duration
	max int
	now func() time.Time

	mu    sync.Mutex
	base  time.Time // entries hold their time as the distance from here
	table table
}

// NewMemory makes an empty store whose entries live for ttl, at most maxEntries of them. With either at 0 it remembers
// nothing. The clock is now, usually time.Now.
func NewMemory(ttl time.Duration, maxEntries int, now func() time.Time) *Memory {
	return &Memory{ttl: ttl, max: maxEntries, now: now, base: now(), table: newTable()}
}

// Seen reports whether k is remembered.
func (m *Memory) Seen(k Key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.purge()
	_, found := m.table.find(k)
	return found
}

// Remember keeps k for the store's time from now on, also if it was remembered before.
func (m *Memory) Remember(k Key) {
	if m.ttl <= 0 || m.max <= 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keep(k, m.purge())
}

// keep keeps k from a time on, in the table's terms.
func (m *Memory) keep(k Key, at int64) {
	if n, found := m.table.find(k); found {
		m.table.refresh(n, at)
		return
	}
	if m.table.len() >= m.max {
		m.table.dropOldest()
	}
	m.table.add(k, at)
}

// Len is the number of keys remembered.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.purge()
	return m.table.len()
}

// purge forgets what is too old and returns the time, in the table's terms.
func (m *Memory) purge() int64 {
	now := int64(m.now().Sub(m.base))
	deadline := now - int64(m.ttl)
	if newest, ok := m.table.newest(); ok && newest <= deadline {
		m.table = newTable() // all of it at once
		return now
	}
	for {
		oldest, ok := m.table.oldest()
		if !ok || oldest > deadline {
			return now
		}
		m.table.dropOldest()
	}
}
