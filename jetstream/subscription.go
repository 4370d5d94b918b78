package jetstream

import (
	"errors"
	"sync"

	"github.com/nats-io/nats.go"
)

// subscription is one that outlives the client that it was made with: as after a reconnect, it is there before anything else is on the next one.
type subscription struct {
	conn    *Conn
	subject string
	take    nats.MsgHandler
	ended   func() // called once nothing more can arrive; nil: nobody asks

	// Guarded by conn.subs.mu.
	sub  *nats.Subscription
	over bool // nothing more is wanted
	cut  bool // its client is closed
	told bool // ended was called
}

// subscriptions are those of a Conn.
type subscriptions struct {
	mu      sync.Mutex
	all     map[*subscription]struct{}
	endings joined
}

// subscribe has what comes for a subject taken, without a limit on what waits for that. It fails only where the connection is being closed.
func (c *Conn) subscribe(subject string, take nats.MsgHandler, ended func()) (*subscription, error) {
	s := &subscription{conn: c, subject: subject, take: take, ended: ended}
	c.subs.mu.Lock()
	defer c.subs.mu.Unlock()
	if err := c.stopping.Err(); err != nil {
		return nil, nats.ErrConnectionClosed
	}
	if err := s.begin(c.nc()); err != nil && !errors.Is(err, nats.ErrConnectionClosed) { // else the next client begins it
		return nil, err
	}
	c.subs.all[s] = struct{}{}
	return s, nil
}

// begin makes it on a client. The caller holds conn.subs.mu.
func (s *subscription) begin(nc *nats.Conn) error {
	s.cut = true
	sub, err := nc.Subscribe(s.subject, s.take)
	if err != nil {
		return err
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nats.ErrConnectionClosed // it fails for no other reason
	}
	s.sub, s.cut = sub, false
	sub.SetClosedHandler(func(string) { s.closed(sub) })
	return nil
}

// waiting is how much has come for it and is not taken, or is being taken.
func (s *subscription) waiting() uint64 {
	s.conn.subs.mu.Lock()
	defer s.conn.subs.mu.Unlock()
	if s.cut {
		return 0
	}
	n, _, err := s.sub.Pending() // counts what is being taken (nats.go, waitForMsgs)
	if err != nil || n < 0 {
		return 0 // it has ended
	}
	return uint64(n)
}

// Unsubscribe ends it at once.
func (s *subscription) Unsubscribe() error { return s.stop((*nats.Subscription).Unsubscribe) }

// Drain ends it once what was sent has arrived.
func (s *subscription) Drain() error { return s.stop((*nats.Subscription).Drain) }

func (s *subscription) stop(how func(*nats.Subscription) error) error {
	subs := &s.conn.subs
	subs.mu.Lock()
	defer subs.mu.Unlock()
	s.over = true
	err := nats.ErrConnectionClosed
	if !s.cut {
		err = how(s.sub)
	}
	if errors.Is(err, nats.ErrConnectionClosed) && !s.told {
		subs.endings.Go(s.end) // the library says nothing
	}
	return err
}

// closed is told by the library that nothing more arrives for what was begun on one client.
func (s *subscription) closed(sub *nats.Subscription) {
	subs := &s.conn.subs
	subs.mu.Lock()
	if s.sub != sub {
		subs.mu.Unlock()
		return
	}
	s.cut = true
	goesOn := !s.over && s.conn.stopping.Err() == nil // on the next client
	subs.mu.Unlock()
	if !goesOn {
		s.end()
	}
}

func (s *subscription) end() {
	subs := &s.conn.subs
	subs.mu.Lock()
	delete(subs.all, s)
	told := s.told
	s.told = true
	subs.mu.Unlock()
	if !told && s.ended != nil {
		s.ended()
	}
}
