package dlq

import (
	"context"
	"errors"
	"hash/fnv"
	"strconv"
	"strings"
	"sync"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

// message is the stored message that entries were made of, and for whom.
type message struct {
	origin
	at int64 // when its stream stored it, in Unix nanoseconds: a stream made anew counts from 1 again
}

func (r *ref) message() message { return message{r.origin, r.at} }

// claim is the number by which two runs agree not to have entries of the same message in work. No sequence is so high.
func (m message) claim() uint64 {
	h := fnv.New64a()
	h.Write([]byte(strings.Join([]string{m.source, m.consumer, strconv.FormatUint(m.sequence, 10), strconv.FormatInt(m.at, 10)}, "\x00")))
	return h.Sum64() | 1<<63
}

// newer finds entries whose replay failed and was stored anew by a run that did not come to remove them. Of two entries of one
// message the one that was replayed more often proves that the other one was answered. It is safe for concurrent use.
type newer struct {
	s     *Service
	f     Filter
	least int // an entry without more replays than this is no proof for any selected one

	mu     sync.Mutex
	read   map[string]uint64 // how far each DLQ stream was read
	halves map[string]bool   // letterKey of first parts: alone they prove nothing, since the entry is not stored
	most   map[message]int   // replays of the entry with the most of them
	chosen map[message]int   // the same of selected entries, where there are several
}

// newerThan prepares to find what is newer than selected entries, anywhere in their DLQ streams.
func (s *Service) newerThan(f Filter, refs []ref) *newer {
	n := &newer{s: s, f: Filter{Consumer: f.Consumer, Subject: f.Subject}, read: map[string]uint64{}, halves: map[string]bool{}, most: map[message]int{}}
	if len(refs) == 1 && refs[0].whole != nil {
		n.f = Filter{Consumer: refs[0].consumer, Subject: refs[0].whole.Subject}
	}
	for i := range refs {
		if i == 0 || refs[i].replays < n.least {
			n.least = refs[i].replays
		}
	}
	return n
}

// look reads what was stored in a DLQ stream since the last look.
func (n *newer) look(ctx context.Context, stream string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	state, err := n.s.conn.StreamState(ctx, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil || state.Last <= n.read[stream] {
		return err
	}
	scan := jetstream.Scan{Stream: stream, Subjects: n.s.subjects(&n.f, stream, state.Subjects), From: n.read[stream] + 1, To: state.Last}
	for m, err := range n.s.conn.ScanHeaders(ctx, scan) {
		if err != nil {
			return err
		}
		if e, ok := parse(stream, m); ok && e.Replays > n.least {
			n.add(e)
		}
	}
	n.read[stream] = state.Last
	return nil
}

func (n *newer) add(e *Entry) {
	switch {
	case e.Part == firstPart:
		n.halves[e.letterKey()] = true
		return
	case e.Part == secondPart && !n.halves[e.letterKey()]:
		return
	}
	one := refOf(e)
	if m := one.message(); one.at != 0 && e.Replays > n.most[m] {
		n.most[m] = e.Replays
	}
}

// choose takes a look at all DLQ streams of the selected entries, and notes which of them are of one message.
func (n *newer) choose(ctx context.Context, refs []ref) error {
	for _, stream := range streamsOf(refs) {
		if err := n.look(ctx, stream); err != nil {
			return err
		}
	}
	n.chosen = map[message]int{}
	for i := range refs {
		if m := refs[i].message(); refs[i].half == "" && refs[i].replays > n.least && n.most[m] > 0 {
			n.chosen[m] = max(n.chosen[m], refs[i].replays)
		}
	}
	return nil
}

// than reports whether an entry is superseded by a newer one, and whether one that supersedes it was selected with it.
func (n *newer) than(one *ref) (superseded, chosen bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := one.message()
	return n.most[m] > one.replays, n.chosen[m] > one.replays
}
