package jetstream

import "container/heap"

// Key is what messages have in common that must not overtake each other.
type Key struct {
	Name  string
	Alone uint64 // the sequence of a message that has no key, and waits for nobody
}

// keyed are the leases of one key. The first one is known without looking at the others: with many leases each message would cost as much as
// there are.
type keyed struct {
	key    Key
	leases leaseHeap
}

// file notes a lease under its key.
func (s *Source) file(m *Message) {
	if s.order == nil || s.orderer.key == nil {
		return
	}
	key := s.orderer.key(m)
	k := s.order.keys[key]
	if k == nil {
		k = &keyed{key: key}
		s.order.keys[key] = k
	}
	m.keyed = k
	heap.Push(&k.leases, m)
}

// unfile forgets a lease that ended, and returns those that were not begun for an earlier one of its key: it may have been this one.
func (s *Source) unfile(m *Message) (behind []*Message) {
	k := m.keyed
	if k == nil {
		return nil
	}
	m.keyed = nil
	heap.Remove(&k.leases, m.place)
	if len(k.leases) == 0 {
		delete(s.order.keys, k.key)
	}
	behind = s.order.behind[k.key]
	delete(s.order.behind, k.key)
	return behind
}

// overtakes reports whether an earlier message of the same key is leased. What came to its turn just when earlier ones were gathered must not be
// begun before them.
func (s *Source) overtakes(m *Message) bool {
	return m.keyed != nil && m.keyed.leases[0].Sequence < m.Sequence
}

// leaseHeap is a heap of leases, the earliest one first, that know their places.
type leaseHeap []*Message

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].Sequence < h[j].Sequence }

func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push is for package heap.
func (h *leaseHeap) Push(x any) {
	m := x.(*Message)
	m.place = len(*h)
	*h = append(*h, m)
}

// Pop is for package heap. It gives back the room of what is gone: of many keys each may have had all leases once.
func (h *leaseHeap) Pop() any {
	last := len(*h) - 1
	m := (*h)[last]
	(*h)[last] = nil
	if *h = (*h)[:last]; cap(*h) > 64 && last < cap(*h)/4 {
		*h = append(make(leaseHeap, 0, 2*last), *h...)
	}
	return m
}
