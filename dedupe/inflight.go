package dedupe

import (
	"slices"
	"sync"
)

// InFlight knows which keys are being worked on in this process, and who waits for their end. The zero value is ready for
// use; it is safe for concurrent use. It holds one entry for each Begin that was not ended, so its callers' leases bound it.
type InFlight[W any] struct {
	mu   sync.Mutex
	held map[Key][]W // the waiters of a held key, oldest first
	peak int
}

// shrinkAbove is how many keys may have been held at once before the emptied map is given back.
const shrinkAbove = 1024

// Begin takes k and reports true if it was free. Else w waits for the End of k.
func (f *InFlight[W]) Begin(k Key, w W) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	waiting, held := f.held[k]
	if held {
		f.held[k] = append(waiting, w)
		return false
	}
	if f.held == nil {
		f.held = make(map[Key][]W)
	}
	f.held[k] = nil
	f.peak = max(f.peak, len(f.held))
	return true
}

// End frees k and returns who waited for it, in the order they came. Each of them starts anew, with Begin.
func (f *InFlight[W]) End(k Key) []W {
	f.mu.Lock()
	defer f.mu.Unlock()
	waiting := f.held[k]
	delete(f.held, k)
	if len(f.held) == 0 && f.peak > shrinkAbove {
		f.held, f.peak = nil, 0
	}
	return waiting
}

// Cancel removes the waiters of k whose lease was lost, and returns how many there were. The holder of k stays.
func (f *InFlight[W]) Cancel(k Key, lost func(W) bool) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	waiting, held := f.held[k]
	if !held {
		return 0
	}
	kept := slices.DeleteFunc(waiting, lost)
	f.held[k] = kept
	return len(waiting) - len(kept)
}

// Len is the number of keys held.
func (f *InFlight[W]) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.held)
}
