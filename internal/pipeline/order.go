package pipeline

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

// headerOrder begins an order by a header.
const headerOrder = "header:"

// order keeps messages of one key in the order of the stream: the next one is called when the lease of the one before has ended, that is
// when the server has its verdict. One that is to be tried again stays leased, keeps its turn, and waits here.
type order struct {
	source *jetstream.Source
	by     func(*jetstream.Message) jetstream.Key

	next sync.Mutex // held by who waits for a message: they join in the order they came

	mu      sync.Mutex // a leaf
	turns   *turns[jetstream.Key, *jetstream.Message]
	timers  map[*jetstream.Message]*time.Timer // of those that wait to be tried again
	firing  sync.WaitGroup                     // timers that give their message back just now
	stopped bool                               // nothing waits any more
}

// newOrder returns nil if there is no order.
func newOrder(by string, source *jetstream.Source) *order {
	key := orderBy(by)
	if key == nil {
		return nil
	}
	o := &order{
		source: source, by: key, timers: map[*jetstream.Message]*time.Timer{},
		turns: newTurns[jetstream.Key](func(m *jetstream.Message) uint64 { return m.Sequence }),
	}
	source.Tell(key, o.released, o.hurry)
	return o
}

// orderBy is how to find a message's key; nil if there is no order.
func orderBy(by string) func(*jetstream.Message) jetstream.Key {
	header, isHeader := strings.CutPrefix(by, headerOrder)
	switch {
	case isHeader:
		return func(m *jetstream.Message) jetstream.Key {
			if values := m.Header[header]; len(values) > 0 && values[0] != "" {
				return jetstream.Key{Name: values[0]}
			}
			return jetstream.Key{Alone: m.Sequence}
		}
	case by == OrderStream:
		return func(*jetstream.Message) jetstream.Key { return jetstream.Key{} }
	case by == OrderSubject:
		return func(m *jetstream.Message) jetstream.Key { return jetstream.Key{Name: m.Subject} }
	default:
		return nil
	}
}

// take waits for a message whose turn it is. It returns nil when ctx ends.
func (o *order) take(ctx context.Context) *jetstream.Message {
	o.next.Lock()
	defer o.next.Unlock()
	for m := o.source.Take(ctx); m != nil; m = o.source.Take(ctx) {
		if o.join(m) && o.begin(ctx, m) {
			return m
		}
	}
	return nil
}

func (o *order) join(m *jetstream.Message) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.turns.join(o.by(m), m)
}

// begin reports whether the message may be worked on. If not, it gives up its turn: the source offers it again, or its lease is lost.
func (o *order) begin(ctx context.Context, m *jetstream.Message) bool {
	if o.source.Begin(ctx, m) {
		return true
	}
	o.mu.Lock()
	next, ok := o.turns.leave(o.by(m), m)
	o.mu.Unlock()
	if ok {
		o.source.Requeue(next)
	}
	return false
}

// released is told that the lease of a message has ended, and returns the one whose turn it is now.
func (o *order) released(m *jetstream.Message) *jetstream.Message {
	o.mu.Lock()
	defer o.mu.Unlock()
	if timer := o.timers[m]; timer != nil {
		timer.Stop()
		delete(o.timers, m)
	}
	next, _ := o.turns.leave(o.by(m), m)
	return next
}

// later lets a message be tried again after a delay. It returns false if nothing waits any more.
func (o *order) later(m *jetstream.Message, delay time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped {
		return false
	}
	m.Tries++
	o.timers[m] = time.AfterFunc(delay, func() { o.due(m) })
	return true
}

func (o *order) due(m *jetstream.Message) {
	o.mu.Lock()
	_, waits := o.timers[m]
	delete(o.timers, m)
	if waits {
		o.firing.Add(1)
		defer o.firing.Done()
	}
	o.mu.Unlock()
	if waits {
		o.source.Requeue(m)
	}
}

// hurry lets all that waits for another try go at once: it is to be handed back.
func (o *order) hurry() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, timer := range o.timers {
		timer.Reset(0)
	}
}

// stop ends the waiting, for a turn or for another try, and returns what waited.
func (o *order) stop() []*jetstream.Message {
	o.mu.Lock()
	o.stopped = true
	all := o.turns.drain()
	for m, timer := range o.timers {
		timer.Stop()
		all = append(all, m)
	}
	clear(o.timers)
	o.mu.Unlock()
	o.firing.Wait()
	return all
}

// handBack hands messages back in the order of the stream: so the server queues them.
func handBack(messages []*jetstream.Message) {
	slices.SortFunc(messages, func(a, b *jetstream.Message) int {
		if a.Sequence < b.Sequence {
			return -1
		}
		return 1
	})
	for _, m := range messages {
		m.HandBack()
	}
}
