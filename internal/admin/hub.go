package admin

import "sync"

// hub passes events on to those who listen. It never waits for one of them.
type hub struct {
	mu        sync.Mutex
	listeners map[*listener]struct{}
}

// topic is what an event is about. Of a topic a listener needs to know the latest only.
type topic struct{ name, about string }

// listener has what it did not take yet: an event a topic at most, so that there are no more than DLQ streams and names.
type listener struct {
	ready   chan struct{} // receives when something waits
	waiting []waiting
}

type waiting struct {
	topic topic
	event []byte
}

// listen adds a listener, which must leave.
func (h *hub) listen() *listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listeners == nil {
		h.listeners = map[*listener]struct{}{}
	}
	l := &listener{ready: make(chan struct{}, 1)}
	h.listeners[l] = struct{}{}
	return l
}

func (h *hub) leave(l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.listeners, l)
}

// heard reports whether anybody listens.
func (h *hub) heard() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.listeners) > 0
}

func (h *hub) send(t topic, event []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.listeners {
		l.put(t, event)
		select {
		case l.ready <- struct{}{}:
		default:
		}
	}
}

// put lets an event wait, in the place of an older one of its topic.
func (l *listener) put(t topic, event []byte) {
	for i := range l.waiting {
		if l.waiting[i].topic == t {
			l.waiting[i].event = event
			return
		}
	}
	l.waiting = append(l.waiting, waiting{t, event})
}

// take is all that waits for a listener.
func (h *hub) take(l *listener) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []byte
	for _, w := range l.waiting {
		all = append(all, w.event...)
	}
	l.waiting = nil
	return all
}
