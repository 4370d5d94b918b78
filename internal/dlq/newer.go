package dlq

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

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
	least int       // an entry without more replays than this is no proof for any selected one
	since time.Time // and none that was stored before

	mu     sync.Mutex
	read   map[string]uint64 // how far each DLQ stream was read
	looked map[view]uint64   // Claims.Company at the last look
	halves map[string]bool   // DLQ stream and letterKey of first parts: alone they prove nothing, since the entry is not stored
	most   map[message]int   // replays of the entry with the most of them
	chosen map[message]int   // the same of selected entries, where there are several
	// several are the messages of which several entries are selected, and how often the one was replayed before that this run answered: -1 while it
	// answered none.
	several map[message]int
}

// view is a DLQ stream that is looked at for what is newer than the entries of one, which can be another one.
type view struct{ of, in string }

// newerThan prepares to find what is newer than selected entries: see places.
func (s *Service) newerThan(f Filter, refs []ref) *newer {
	n := &newer{
		s: s, f: Filter{Consumer: f.Consumer, Subject: f.Subject}, read: map[string]uint64{}, looked: map[view]uint64{},
		halves: map[string]bool{}, most: map[message]int{},
	}
	if len(refs) == 1 && refs[0].whole != nil {
		n.f = Filter{Consumer: refs[0].consumer, Subject: refs[0].whole.Subject}
	}
	for i := range refs {
		if i == 0 || refs[i].replays < n.least {
			n.least = refs[i].replays
		}
		if i == 0 || refs[i].time.Before(n.since) {
			n.since = refs[i].time
		}
	}
	return n
}

// places are the DLQ streams in which an entry can be anew: the one in which it is, and the one that its consumer has now.
func (s *Service) places(one *ref) []string {
	if c := s.consumer(one.source, one.consumer); c != nil {
		if now := jetstream.DeadLetterStream(c.DLQ, c.Stream, c.Durable); now != one.stream {
			return []string{one.stream, now}
		}
	}
	return []string{one.stream}
}

// look reads what was stored since the last look. It does not if company, which is Claims.Company of the entries' DLQ stream from before the call,
// says that nobody else was at work on them since: whoever stores one anew has it claimed.
func (n *newer) look(ctx context.Context, v view, company uint64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if before, looked := n.looked[v]; looked && before >= company {
		return nil
	}
	if err := n.readOn(ctx, v); err != nil {
		return err
	}
	n.looked[v] = company
	return nil
}

func (n *newer) readOn(ctx context.Context, v view) error {
	stream := v.in
	state, err := n.s.conn.StreamState(ctx, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil || state.Last <= n.read[stream] {
		return err
	}
	scan := jetstream.Scan{Stream: stream, Subjects: n.s.subjects(&n.f, stream, state.Subjects), From: n.read[stream] + 1, To: state.Last}
	if v.of != v.in {
		scan.Since = n.since.Add(-clocksDiffer)
	}
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
	key := e.DLQStream + "\x00" + e.letterKey()
	switch {
	case e.Part == firstPart:
		n.halves[key] = true
		return
	case e.Part == secondPart && !n.halves[key]:
		return
	}
	one := refOf(e)
	if m := one.message(); one.at != 0 && e.Replays > n.most[m] {
		n.most[m] = e.Replays
	}
}

// choose takes a look at all DLQ streams where the selected entries can be anew, and notes which of them are of one message. Without claims
// nothing is going to be replayed.
func (n *newer) choose(ctx context.Context, refs []ref, claims map[string]*jetstream.Claims) error {
	for _, v := range n.views(refs) {
		var company uint64
		if c := claims[v.of]; c != nil {
			company = c.Company()
		}
		if err := n.look(ctx, v, company); err != nil {
			return err
		}
	}
	n.chosen = map[message]int{}
	for i := range refs {
		if m := refs[i].message(); refs[i].half == "" && refs[i].replays > n.least && n.most[m] > 0 {
			n.chosen[m] = max(n.chosen[m], refs[i].replays)
		}
	}
	n.several = severalOf(refs)
	return nil
}

// severalOf are the messages of which several entries of a selection can be replayed. It holds no more than a number for each of the others.
func severalOf(refs []ref) map[message]int {
	claims := make([]uint64, 0, len(refs))
	for i := range refs {
		if refs[i].half == "" && refs[i].at != 0 {
			claims = append(claims, refs[i].message().claim())
		}
	}
	slices.Sort(claims)
	twice := map[uint64]bool{}
	for i := 1; i < len(claims); i++ {
		if claims[i] == claims[i-1] {
			twice[claims[i]] = true
		}
	}
	several := map[message]int{}
	if len(twice) == 0 {
		return several
	}
	for i := range refs {
		if m := refs[i].message(); twice[m.claim()] {
			several[m] = -1
		}
	}
	return several
}

// views are the DLQ streams to look at for selected entries, those of the entries first.
func (n *newer) views(refs []ref) (all []view) {
	for _, stream := range streamsOf(refs) {
		all = append(all, view{stream, stream})
	}
	type kind struct{ stream, source, consumer string }
	seen := map[kind]bool{}
	for i := range refs {
		one := &refs[i]
		if k := (kind{one.stream, one.source, one.consumer}); !seen[k] {
			seen[k] = true
			for _, in := range n.s.places(one) {
				if v := (view{one.stream, in}); !slices.Contains(all, v) {
					all = append(all, v)
				}
			}
		}
	}
	return all
}

// again looks again where a claimed entry can be anew, unless nobody else was at work since the last look.
func (n *newer) again(ctx context.Context, one *ref, claims *jetstream.Claims) error {
	company := claims.Company()
	for _, in := range n.s.places(one) {
		if err := n.look(ctx, view{one.stream, in}, company); err != nil {
			return err
		}
	}
	return nil
}

// answered is told that the app accepted an entry, or its stream, or that it is stored anew: further ones of its message have their answer too.
func (n *newer) answered(one *ref) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if was, ok := n.several[one.message()]; ok {
		n.several[one.message()] = max(was, one.replays)
	}
}

// twin reports whether another entry of the same message, replayed as often before, was answered.
func (n *newer) twin(one *ref) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.doneBy(one) && n.several[one.message()] == one.replays
}

// doneBy reports whether the answer to another entry was that to this one too. Half a message has none.
func (n *newer) doneBy(one *ref) bool {
	was, ok := n.several[one.message()]
	return ok && one.half == "" && was >= one.replays
}

// than reports whether an entry is superseded by a newer one, or by another one that was answered, and whether one that supersedes it was
// selected with it.
func (n *newer) than(one *ref) (superseded, chosen bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m, done := one.message(), n.doneBy(one)
	return done || n.most[m] > one.replays, done || n.chosen[m] > one.replays
}
