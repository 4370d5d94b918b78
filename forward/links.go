package forward

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"
)

// keepIdle is how long an idle connection is kept: it ends before gunicorn closes it (2 s), and Node and uvicorn (5 s).
const keepIdle = time.Second

// distrustFor is how long no connection is kept once the app closed one right after its first answer, without saying that it
// would: an app that does so with all of them does it sooner or later after the next request was sent, and that is an attempt
// it never saw.
const distrustFor = 30 * time.Second

// lookBack is among how many idle connections the one that was last used by the same caller is looked for.
const lookBack = 64

// links are the connections to the app over plain HTTP/1.1, at most as many as there can be.
type links struct {
	dial func(context.Context) (net.Conn, error)
	most int

	mu      sync.Mutex
	open    int          // idle, in use, and being made
	idle    []*link      // the newest last
	waiting []chan *link // gets a link, or nil: the leave to make one
	trusted time.Time    // from when on connections are kept
	timer   *time.Timer
	armed   bool
}

// get takes an idle connection, or makes one, or waits if there are as many as there can be.
func (p *links) get(ctx context.Context) (*link, error) {
	p.mu.Lock()
	if len(p.idle) > 0 {
		l := p.take(ctx.Done())
		p.mu.Unlock()
		return l, nil
	}
	if p.open < p.most {
		p.open++
		p.mu.Unlock()
		return p.connect(ctx)
	}
	turn := make(chan *link, 1)
	p.waiting = append(p.waiting, turn)
	p.mu.Unlock()

	select {
	case l := <-turn:
		if l != nil {
			return l, nil
		}
		return p.connect(ctx)
	case <-ctx.Done():
		p.leave(turn)
		return nil, ctx.Err()
	}
}

// take takes the idle connection that was last used with the same context, as that is watched already, else the newest.
func (p *links) take(done <-chan struct{}) *link {
	last := len(p.idle) - 1
	i, least := last, max(last-lookBack, 0)
	for i > least && p.idle[i].watched != done {
		i--
	}
	if p.idle[i].watched != done {
		i = last
	}
	l := p.idle[i]
	copy(p.idle[i:], p.idle[i+1:])
	p.idle[last] = nil
	p.idle = p.idle[:last]
	return l
}

// connect makes a connection, for which there is leave.
func (p *links) connect(ctx context.Context) (*link, error) {
	nc, err := p.dial(ctx)
	if err != nil {
		p.gone()
		return nil, err
	}
	return newLink(nc), nil
}

// leave ends waiting, and passes on what came in the same moment.
func (p *links) leave(turn chan *link) {
	p.mu.Lock()
	i := slices.Index(p.waiting, turn)
	if i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
	p.mu.Unlock()
	if i >= 0 {
		return
	}
	if l := <-turn; l != nil {
		p.put(l, l.idle)
	} else {
		p.gone()
	}
}

// put gives a connection back that can carry another request, now.
func (p *links) put(l *link, now time.Time) {
	l.idle = now
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Before(p.trusted) {
		l.close()
		p.vacate()
		return
	}
	if p.next(l) {
		return
	}
	p.idle = append(p.idle, l)
	if !p.armed {
		p.arm(keepIdle)
	}
}

// gone gives back the leave for a connection that is closed.
func (p *links) gone() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.vacate()
}

func (p *links) vacate() {
	if !p.next(nil) {
		p.open--
	}
}

// distrust keeps no connection for a while.
func (p *links) distrust(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trusted = now.Add(distrustFor)
	p.closeOldest(len(p.idle))
}

// next hands something to the one who waits longest, if any does.
func (p *links) next(l *link) bool {
	if len(p.waiting) == 0 {
		return false
	}
	p.waiting[0] <- l
	p.waiting = slices.Delete(p.waiting, 0, 1)
	return true
}

func (p *links) arm(after time.Duration) {
	p.armed = true
	if p.timer == nil {
		p.timer = time.AfterFunc(after, p.expire)
		return
	}
	p.timer.Reset(after)
}

// expire closes the connections that were idle for too long.
func (p *links) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = false
	old := 0
	for old < len(p.idle) && time.Since(p.idle[old].idle) >= keepIdle {
		old++
	}
	p.closeOldest(old)
	if len(p.idle) > 0 {
		p.arm(max(keepIdle-time.Since(p.idle[0].idle), time.Millisecond))
	}
}

func (p *links) closeOldest(n int) {
	for _, l := range p.idle[:n] {
		l.close()
	}
	p.idle = slices.Delete(p.idle, 0, n)
	p.open -= n
}

// closeIdle closes all connections that are not in use.
func (p *links) closeIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeOldest(len(p.idle))
	if p.timer != nil {
		p.timer.Stop()
		p.armed = false
	}
}
