package pipeline

import (
	"cmp"
	"slices"
)

// turns gives messages their turn: of one key one message at a time, the one of the lowest sequence first. It knows only
// keys that have messages. The zero value is not ready for use, and it is not safe for concurrent use.
type turns[K comparable, M comparable] struct {
	sequence func(M) uint64
	lines    map[K]*line[M]
}

// line is what there is of one key.
type line[M any] struct {
	turn   M   // whose turn it is
	behind []M // the others, by sequence
}

func newTurns[K comparable, M comparable](sequence func(M) uint64) *turns[K, M] {
	return &turns[K, M]{sequence: sequence, lines: map[K]*line[M]{}}
}

// join takes a message, and reports whether it is its turn. One that has its turn already keeps it.
func (t *turns[K, M]) join(k K, m M) bool {
	l := t.lines[k]
	if l == nil {
		t.lines[k] = &line[M]{turn: m}
		return true
	}
	if l.turn == m {
		return true
	}
	i, _ := slices.BinarySearchFunc(l.behind, m, t.compare)
	if i == len(l.behind) || l.behind[i] != m {
		l.behind = slices.Insert(l.behind, i, m)
	}
	return false
}

// leave lets a message go, and returns the one whose turn it is because of that, if there is one.
func (t *turns[K, M]) leave(k K, m M) (next M, ok bool) {
	l := t.lines[k]
	switch {
	case l == nil:
		return next, false
	case l.turn != m:
		l.behind = slices.DeleteFunc(l.behind, func(other M) bool { return other == m })
		return next, false
	case len(l.behind) == 0:
		delete(t.lines, k)
		return next, false
	}
	next = l.behind[0]
	l.behind[0] = *new(M) // not kept alive by the rest
	*l = line[M]{turn: next, behind: l.behind[1:]}
	return next, true
}

// drain removes and returns all messages that wait for their turn.
func (t *turns[K, M]) drain() []M {
	var all []M
	for _, l := range t.lines {
		all = append(all, l.behind...)
		l.behind = nil
	}
	return all
}

func (t *turns[K, M]) compare(a, b M) int { return cmp.Compare(t.sequence(a), t.sequence(b)) }
