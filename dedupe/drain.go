package dedupe

// Drain removes all waiters and returns them. The holders stay.
func (f *InFlight[W]) Drain() []W {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []W
	for k, waiting := range f.held {
		if len(waiting) > 0 {
			all = append(all, waiting...)
			f.held[k] = nil
		}
	}
	return all
}
