package jetstream

import (
	"math/rand/v2"
	"sync"
	"time"
)

// brief is how long a connection lasts that is no better than a try.
const brief = 10 * time.Second

// pace is how long it is waited before a try to connect. The first round over all servers goes without a wait, as those that are away are passed over
// then, unless the connection before was a brief one. It goes on from one client to the next.
type pace struct {
	delay func(n int) time.Duration // the n-th wait in a row, from 1

	mu     sync.Mutex
	tries  int // since there was a connection
	briefs int // connections in a row that were brief

	made  uint64 // the number of the last connection that there was
	since time.Time
	lost  uint64 // that of the last one that broke
}

// connected is told that there is a connection. It may be told so again, and that it broke before.
func (p *pace) connected(number uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if number <= p.made {
		return
	}
	p.made, p.since, p.tries = number, time.Now(), 0
	if p.lost >= number {
		p.ended()
	}
}

// loses is told that a connection broke, or one that was in the making.
func (p *pace) loses(number uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if number <= p.lost {
		return
	}
	if p.lost = number; number == p.made {
		p.ended()
	}
}

func (p *pace) ended() {
	if p.briefs++; time.Since(p.since) >= brief {
		p.briefs = 0
	}
}

// next is the wait before a try to connect to one of so many servers.
func (p *pace) next(servers int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tries++
	if p.tries%servers == 0 || p.tries == 1 && p.briefs > 0 {
		return p.delay(p.briefs + p.tries/servers)
	}
	return 0
}

// anew is the wait before another client is made, after so many tries to make one.
func (p *pace) anew(tries int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delay(max(p.briefs, 1) + tries)
}

// reconnectDelay is 50 ms at first, then twice that up to 4 s, half of it random.
func reconnectDelay(n int) time.Duration {
	d := min(50*time.Millisecond<<min(max(n-1, 0), 7), 4*time.Second)
	return d/2 + rand.N(d/2)
}
