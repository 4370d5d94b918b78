package jetstream

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

const (
	// yieldAfter is how long the app fails before the durable is left to another sidecar that waits for it.
	yieldAfter = 5 * time.Second
	// leastRest and mostRest bound how long a source whose app fails on does not wait for the durable again after that: the rest doubles, so that
	// sidecars whose apps all fail do not pass the durable to and fro.
	leastRest, mostRest = 5 * time.Second, 5 * time.Minute
	// yieldPatience is for how long it is waited until no pull request is on its way, and then until all is handed back. What is at the app may
	// take longer. Without the second the other one would get new messages before those.
	yieldPatience = 2 * time.Second
)

// aside is how a source that keeps order leaves the durable to another sidecar while its own app fails: its pull requests end first, then what is not at
// the app is handed back, and the durable is unpinned. The other one begins when what is at the app has ended, as after a stop.
type aside struct {
	failing time.Time     // since when the app does; zero: it does not
	others  time.Time     // since when others wait at the durable, as looks at it tell; zero: nobody does
	stands  bool          // nothing is pulled, for the sake of another
	since   time.Time     // when that began
	rest    time.Duration // for how long it is so at least
	yielded string        // the pin that was given up: what comes late with it is not ours
	telling time.Time     // since when the server is to be told of that; zero: it need not be
	unpin   chan string   // the priority group, to who tells it
}

// AppFails says whether the app is away, or fails message after message. It is told before Pull is.
func (s *Source) AppFails(fails bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.aside
	switch {
	case !fails:
		a.failing, a.others, a.stands, a.rest = time.Time{}, time.Time{}, false, 0
	case a.failing.IsZero():
		a.failing = time.Now()
	}
}

// standAside is told what the server says of the durable. Where the app has failed for a while, and others wait, the durable is to be theirs. That
// others wait counts once two looks in a row said so: a renewal of the pin is a request too.
func (s *Source) standAside(info *natsjs.ConsumerInfo, now time.Time) {
	a := &s.aside
	if s.order == nil || a.failing.IsZero() || s.anothers() || pinned(info.Config) == "" || info.NumWaiting <= s.asking() {
		a.others = time.Time{}
		return
	}
	if a.others.IsZero() {
		a.others = now
		return
	}
	if a.stands || s.order.unsure || !s.hadItsChance(info, now) {
		return
	}
	a.stands, a.since, a.rest = true, now, min(max(2*a.rest, leastRest), mostRest)
	s.retireLanes()
	s.wake()
}

// hadItsChance reports whether the app has failed for long enough. One that gets messages to be tried with, since it failed them one after the other, was
// tried with one since the durable was pinned here: they may have to be gathered first.
func (s *Source) hadItsChance(info *natsjs.ConsumerInfo, now time.Time) bool {
	since := later(s.aside.failing, s.pin.since)
	if s.pulling != PullNothing {
		if s.pin.begun.IsZero() {
			return now.Sub(since) >= ackWait(info.Config)+yieldAfter
		}
		since = later(since, s.pin.begun)
	}
	return now.Sub(since) >= yieldAfter
}

// asking is how many pull requests of this source may wait at the durable.
func (s *Source) asking() (n int) {
	for _, l := range s.lanes {
		if l.open > 0 || l.retired {
			n++
		}
	}
	return n
}

// yield gives the durable up once no pull request is on its way, and lets the source wait for it again after its rest.
func (s *Source) yield(now time.Time) {
	a := &s.aside
	switch {
	case a.telling.IsZero():
	case !s.anothers():
		a.telling = time.Time{} // it is pinned here again
	case len(s.leases) == 0 || now.Sub(a.telling) >= yieldPatience:
		a.telling = time.Time{}
		select {
		case a.unpin <- pinned(s.bound.info.Config):
		default: // then the pin ends by its time
		}
	}
	switch {
	case !a.stands:
	case s.anothers():
		a.stands = now.Sub(a.since) < a.rest
	case len(s.lanes) == 0 || now.Sub(a.since) >= yieldPatience:
		if s.lives.told() {
			s.log.Warn("the app is away or fails: the durable is left to another sidecar", slog.Duration("for_at_least", a.rest))
		}
		a.yielded, a.telling = s.pin.id, now
		s.unpinHere()
	}
}

// unpinWhenAsked tells the server that the durable is given up, until ctx ends.
func (s *Source) unpinWhenAsked(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case group := <-s.aside.unpin:
			s.tellUnpin(ctx, group)
		}
	}
}

func (s *Source) tellUnpin(ctx context.Context, group string) {
	var answer struct{}
	err := s.conn.api(ctx, "CONSUMER.UNPIN."+s.cfg.Stream+"."+s.cfg.Durable, []byte(`{"group":`+strconv.Quote(group)+`}`), &answer)
	if err != nil {
		s.log.Debug("the durable stays pinned to this sidecar for a while", slog.String("error", err.Error()))
	}
}

// Unwanted reports whether the app is not to be called with the message any more: its lease is lost, or it is to be handed back, since its durable keeps
// order and is another sidecar's by now.
func (m *Message) Unwanted() bool {
	s := m.source
	if s.due != nil {
		sure, ours := s.due.main.owner()
		return sure && !ours || m.Lost()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return m.released.Load() || s.expired(m, time.Now()) || s.order != nil && !s.order.unsure && s.anothers()
}
