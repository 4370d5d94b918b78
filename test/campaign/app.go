//go:build unix

package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// call is one message that reached the app.
type call struct {
	index     int    // of the message
	by        string // the incarnation of the sidecar that called
	slot      int    // the sidecar
	conn      uint64 // the connection it came on
	request   uint64 // the request it came with, and others where there are batches
	size      int    // messages in that request; 0 where it is no batch
	id        string // of the message in a batch
	seq       uint64 // stream sequence
	delivered uint64 // number of the delivery
	begun     time.Time
	ended     time.Time // just before the answer was written, or when it could not be any more
	flushed   time.Time // when the whole answer was with the kernel
	given     bool      // the whole answer was written
	outage    bool      // the app was out of order: the answer is not the message's
	reply     reply
}

// connections are numbered over all apps.
var connections atomic.Uint64

// requests are too.
var requests atomic.Uint64

type connKey struct{}

// app is the app of all sidecars: a listener for each, and one memory.
type app struct {
	seed  uint64
	slots []*appSlot

	mu       sync.Mutex
	calls    []*call
	answered map[int]int // by message: how often it was answered by its nature
}

// appSlot is the app as one sidecar has it.
type appSlot struct {
	app     *app
	slot    int
	address string

	mu      sync.Mutex // of what follows; taken before app.mu
	mode    kind       // what is wrong with it, or nothing
	server  *http.Server
	open    map[*call]bool
	begun   int // calls so far
	serving sync.WaitGroup
}

func newApp(seed uint64, slots int) (*app, error) {
	a := &app{seed: seed, answered: map[int]int{}}
	for i := range slots {
		address, err := freeAddress()
		if err != nil {
			return nil, err
		}
		s := &appSlot{app: a, slot: i, address: address, open: map[*call]bool{}}
		a.slots = append(a.slots, s)
		if err := s.up(); err != nil {
			a.close()
			return nil, err
		}
	}
	return a, nil
}

// of are the apps of one sidecar, or of all.
func (a *app) of(slot int) []*appSlot {
	if slot == all {
		return a.slots
	}
	return a.slots[slot : slot+1]
}

func (a *app) close() {
	for _, s := range a.slots {
		s.down()
	}
}

// history returns all calls, copied, in the order they came.
func (a *app) history() []call {
	a.mu.Lock()
	defer a.mu.Unlock()
	cs := make([]call, len(a.calls))
	for i, c := range a.calls {
		cs[i] = *c
	}
	return cs
}

func (s *appSlot) up() error {
	ln, err := net.Listen("tcp", s.address)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: time.Minute,
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, connections.Add(1))
		},
	}
	s.mu.Lock()
	s.server = server
	s.mu.Unlock()
	s.serving.Go(func() { _ = server.Serve(ln) })
	return nil
}

// down stops listening and cuts all connections. What is not answered by now is not.
func (s *appSlot) down() {
	s.mu.Lock()
	server := s.server
	s.server = nil
	now := time.Now()
	s.app.mu.Lock()
	for c := range s.open {
		if c.ended.IsZero() {
			c.ended, c.outage = now, true
		}
	}
	s.app.mu.Unlock()
	s.mu.Unlock()
	if server != nil {
		server.Close()
	}
	s.serving.Wait()
}

// await waits for a condition, at most for the time given.
func (s *appSlot) await(ctx context.Context, most time.Duration, cond func(s *appSlot) bool) {
	for end := time.Now().Add(most); time.Now().Before(end); {
		s.mu.Lock()
		is := cond(s)
		s.mu.Unlock()
		if is || !rest(ctx, ms) {
			return
		}
	}
}

// set puts the app out of order, or in order with nothing.
func (s *appSlot) set(mode kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode = mode
}

func (s *appSlot) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller was cut off while sending: no call
	}
	q, err := s.begin(r, body)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusTeapot) // what was meant to be accepted is not, then
		return
	}
	defer func() {
		s.mu.Lock()
		for _, c := range q.calls {
			delete(s.open, c)
		}
		s.mu.Unlock()
	}()
	s.answer(rw, r, q)
}

// request is one request, with the message or messages in it.
type request struct {
	calls []*call
	reply reply
	body  []byte // of the answer
}

// begin notes the calls and decides their answer.
func (s *appSlot) begin(r *http.Request, body []byte) (*request, error) {
	calls, err := s.callsOf(r, body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.app.mu.Lock()
	defer s.app.mu.Unlock()
	for _, c := range calls {
		s.open[c] = true
		s.begun++
		s.app.calls = append(s.app.calls, c)
		switch s.mode {
		case appFails:
			c.outage, c.reply = true, reply{status: 503}
		case appHangs:
			c.outage, c.reply = true, reply{hang: true}
		case appResets:
			c.outage, c.reply = true, reply{reset: true}
		default:
			c.reply = answerTo(s.app.seed, c.index, s.app.answered[c.index])
			s.app.answered[c.index]++
		}
	}
	q := &request{calls: calls, reply: calls[0].reply, body: []byte("answer\n")}
	switch {
	case calls[0].size > 0 && !calls[0].outage:
		q.reply, q.body = answerBatch(s.app.seed, calls)
	case len(calls) > 1:
		q.reply.shared = true
		share(calls, q.reply)
	}
	return q, nil
}

// callsOf reads a request.
func (s *appSlot) callsOf(r *http.Request, body []byte) ([]*call, error) {
	one := call{by: r.Header.Get(incarnationHeader), slot: s.slot, begun: time.Now(), request: requests.Add(1)}
	one.conn, _ = r.Context().Value(connKey{}).(uint64)
	if r.Header.Get("Content-Type") != "application/x-ndjson" {
		one.index = indexOf(body)
		one.seq, _ = strconv.ParseUint(r.Header.Get("Nats-Sequence"), 10, 64)
		one.delivered, _ = strconv.ParseUint(r.Header.Get("Nats-Num-Delivered"), 10, 64)
		return []*call{&one}, nil
	}
	items, err := itemsOf(body)
	if err != nil {
		return nil, err
	}
	calls := make([]*call, 0, len(items))
	for _, i := range items {
		c := one
		c.index, c.seq, c.delivered, c.id, c.size = indexOf([]byte(i.Data)), i.Sequence, i.Delivered, i.ID, len(items)
		calls = append(calls, &c)
	}
	return calls, nil
}

func (s *appSlot) answer(rw http.ResponseWriter, r *http.Request, q *request) {
	wait := time.NewTimer(q.reply.delay)
	if q.reply.hang {
		wait.Stop()
	}
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-r.Context().Done():
		s.end(q)
		panic(http.ErrAbortHandler)
	}
	if !s.end(q) {
		panic(http.ErrAbortHandler) // the app went down meanwhile: returning would answer 200
	}
	if q.reply.reset {
		if nc, _, err := http.NewResponseController(rw).Hijack(); err == nil {
			reset(nc)
		}
		return
	}
	rw.Header().Set("Content-Length", strconv.Itoa(len(q.body)))
	if q.reply.action != "" {
		rw.Header().Set("Sidecar-Action", q.reply.action)
	}
	rw.WriteHeader(q.reply.status)
	body := q.body
	if q.reply.cut {
		body = body[:len(body)-1]
	}
	_, err := rw.Write(body) //nolint:gosec // G705: a sidecar reads it, no browser
	if err == nil {
		err = http.NewResponseController(rw).Flush()
	}
	if q.reply.cut {
		panic(http.ErrAbortHandler)
	}
	s.app.mu.Lock()
	defer s.app.mu.Unlock()
	now := time.Now()
	for _, c := range q.calls {
		c.given, c.flushed = err == nil, now
	}
}

// end notes that the calls of a request end now, if they have not.
func (s *appSlot) end(q *request) bool {
	s.app.mu.Lock()
	defer s.app.mu.Unlock()
	now := time.Now()
	for _, c := range q.calls {
		if !c.ended.IsZero() {
			return false
		}
		c.ended = now
	}
	return true
}
