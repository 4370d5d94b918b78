package dedupe

// heldTogether is how many keys are looked up or remembered before others get at the memory.
const heldTogether = 128

// Lookup asks whether a message was answered: one of its keys is remembered. Two keys that are the same are looked up once.
type Lookup struct {
	Keys [2]Key
	Seen bool
}

// SeenAll fills in Seen of each look-up, as Seen does for one.
func (m *Memory) SeenAll(all []Lookup) {
	for len(all) > 0 {
		n := min(len(all), heldTogether)
		m.seenSome(all[:n])
		all = all[n:]
	}
}

func (m *Memory) seenSome(some []Lookup) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.purge()
	for i := range some {
		l := &some[i]
		if _, l.Seen = m.table.find(l.Keys[0]); !l.Seen && l.Keys[1] != l.Keys[0] {
			_, l.Seen = m.table.find(l.Keys[1])
		}
	}
}

// RememberAll keeps keys, as Remember does one.
func (m *Memory) RememberAll(all []Key) {
	if m.ttl <= 0 || m.max <= 0 {
		return
	}
	for len(all) > 0 {
		n := min(len(all), heldTogether)
		m.rememberSome(all[:n])
		all = all[n:]
	}
}

func (m *Memory) rememberSome(some []Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.purge()
	for _, k := range some {
		m.keep(k, at)
	}
}

// Memory is the memory in front of the bucket.
func (s *Shared) Memory() *Memory { return s.memory }
