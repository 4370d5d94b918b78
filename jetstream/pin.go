package jetstream

import (
	"context"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

const (
	// pinGroup is the priority group of durables made here to keep order.
	pinGroup = "sidecar"
	// pinTTL is how long such a durable stays with a client that does not ask for messages any more.
	pinTTL = 3 * time.Second
	// pinHeader is the header by which the server tells a client that the durable is pinned to it.
	pinHeader = "Nats-Pin-Id"
	// pinPrefix begins the last part of the subject by which a renewal of the pin is answered.
	pinPrefix = "p."
	// wrongPin is the status of a request by another client than the pinned one.
	wrongPin = "423"
)

// pin is a durable's pinned client: the server gives messages to one client at a time, and to another when that one was silent
// for the durable's time. The other clients' pull requests wait.
type pin struct {
	id      string    // empty: the durable is not pinned to this source, as far as is known
	since   time.Time // when that was told
	begun   time.Time // when the first message was begun since; zero: none was. With an order only
	renewed time.Time // when the server was last asked with the id
}

// pinned is the priority group of a durable that the server pins to one client at a time; empty if it does not.
func pinned(c natsjs.ConsumerConfig) string {
	if c.PriorityPolicy == natsjs.PriorityPolicyPinned && len(c.PriorityGroups) > 0 {
		return c.PriorityGroups[0]
	}
	return ""
}

// pinnedTo is the client that the server has a durable pinned to; empty if there is none.
func pinnedTo(info *natsjs.ConsumerInfo) string {
	if len(info.PriorityGroups) == 0 {
		return ""
	}
	return info.PriorityGroups[0].PinnedClientID
}

// appendPin adds to a pull request whom it is from, if the durable asks for it.
func (s *Source) appendPin(req []byte) []byte {
	group := pinned(s.bound.info.Config)
	if group == "" {
		return req
	}
	req = append(req, `,"group":`...)
	req = strconv.AppendQuote(req, group)
	if s.pin.id != "" {
		req = append(req, `,"id":"`...)
		req = append(req, s.pin.id...)
		req = append(req, '"')
		s.pin.renewed = time.Now()
	}
	return req
}

// takePin takes the server's word that the durable is pinned to this source out of a message's header.
func (s *Source) takePin(m *Message) {
	ids := m.Header[pinHeader]
	if len(ids) == 0 || pinned(s.bound.info.Config) == "" {
		return
	}
	id := ids[len(ids)-1] // those before it are the publisher's
	if m.Header[pinHeader] = ids[:len(ids)-1]; len(ids) == 1 {
		delete(m.Header, pinHeader)
	}
	if s.pin.id != id && id != s.aside.yielded {
		now := time.Now()
		s.pin = pin{id: id, since: now, renewed: now}
		if s.lives.told() {
			s.log.Info("the durable is pinned to this sidecar")
		}
	}
}

// losePin is told that the durable is not pinned to this source any more. With an order, what is leased and not at the app just now is handed back,
// for the one it is pinned to.
func (s *Source) losePin() {
	if s.pin.id == "" {
		return
	}
	if s.lives.told() {
		s.log.Warn("the durable is not pinned to this sidecar any more")
	}
	s.unpinHere()
}

// unpinHere forgets the pin, and hands back what is not at the app.
func (s *Source) unpinHere() {
	s.pin = pin{}
	if s.order == nil {
		return
	}
	s.order.scatter()
	s.returnHeld()
	if s.orderer.unpinned != nil {
		s.orderer.unpinned()
	}
}

// anothers reports whether the durable is one of pinned clients, and not pinned to this source.
func (s *Source) anothers() bool { return s.pin.id == "" && pinned(s.bound.info.Config) != "" }

// losable is how many of n messages the request of a lane may have been sent: none if the durable was pinned to another client when it was made, and
// still is. Each pin has an id of its own, and requests without one are passed over while there is a pin (nats-server consumer.go, nextWaiting).
func (l *lane) losable(n int, info *natsjs.ConsumerInfo) int {
	if l.others != "" && l.others == pinnedTo(info) {
		return 0
	}
	return n
}

// pinnedSince reports whether the durable was pinned to this source after a look at it began: the answer does not tell then.
func (s *Source) pinnedSince(l *look, info *natsjs.ConsumerInfo) bool {
	return s.pin.id != "" && pinnedTo(info) != s.pin.id && l.pin != s.pin.id
}

// settlePin is told, while gathering, what the server says of the durable: whether it is pinned to this source. If so, what was begun before goes on.
func (s *Source) settlePin(info *natsjs.ConsumerInfo) {
	o := s.order
	if s.pin.id != "" && pinnedTo(info) != s.pin.id {
		s.losePin()
	}
	if !o.unsure {
		return
	}
	o.unsure = false
	var held []*Message
	for _, m := range o.held {
		if m.started || m.first {
			m.first = true
			s.offer(m)
		} else {
			held = append(held, m)
		}
	}
	o.held = held
}

// renewPin keeps the durable pinned to this source while it does not ask for messages, or waits for them: with a request that no message fits.
// One that has nothing leased and cannot use any lets it go.
func (s *Source) renewPin(now time.Time) {
	if s.pin.id == "" || s.stopped || s.pulling == PullNothing && len(s.leases) == 0 {
		return
	}
	if ttl := s.bound.info.Config.PinnedTTL; now.Sub(s.pin.renewed) < ttl/3 {
		return
	}
	req := s.appendPin([]byte(`{"batch":1,"max_bytes":1,"expires":1000000`))
	// Not connected it is asked again after the reconnect.
	_ = s.conn.nc().PublishRequest(s.nextSubject(), s.ackInbox+pinPrefix+s.pin.id, append(req, '}'))
}

// renewedPin handles the server's answer to such a request.
func (s *Source) renewedPin(id string, msg *nats.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bound == nil || s.pin.id != id {
		return
	}
	now := time.Now()
	switch msg.Header.Get("Status") {
	case wrongPin:
		s.hears(now)
		s.losePin()
		s.refill()
	case noResponders:
		s.unsettled()
		s.askAnew(now, false)
	default:
		s.hears(now)
	}
}

// Unpin lets another sidecar have the durable at once: after the pulling ended.
func (s *Source) Unpin(ctx context.Context) {
	s.mu.Lock()
	group := ""
	if s.bound != nil && s.pin.id != "" {
		group = pinned(s.bound.info.Config)
	}
	s.pin = pin{}
	s.mu.Unlock()
	if group == "" {
		return
	}
	s.tellUnpin(ctx, group)
}

// unpinned says what a durable lacks to be served by one sidecar at a time, or nothing.
func (c *Conn) unpinned(cfg ConsumerConfig, have natsjs.ConsumerConfig) string {
	if !cfg.Ordered || pinned(have) != "" {
		return ""
	}
	why := "it has no pinned-client priority group"
	if c.olderThan(2, 11) {
		why = "the server is older than 2.11 and has no pinned clients"
	}
	return why + ": run one sidecar for it only, several would wait for each other to keep the order"
}
