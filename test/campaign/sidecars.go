//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// How the sidecars are configured. The checker goes by it.
const (
	sourceStream = "ORDERS"
	durable      = "worker"
	dlqStream    = "ORDERS_DLQ"
	retryStream  = "sidecar-retries"
	bucket       = "sidecar-dedupe"

	ackWait      = 2 * time.Second
	retryInitial = 50 * time.Millisecond
	retryMax     = 500 * time.Millisecond
	retryLong    = 2200 * time.Millisecond // in a crowd; half of it is enough to wait in the retry stream
	crowdPending = 2 * leases              // max_ack_pending in a crowd
	concurrency  = 8
	prefetch     = 8
	leases       = concurrency + prefetch
	failures     = 5 // that open the breaker
	appTimeout   = 4 * time.Second
	shutdown     = 5 * time.Second
	stopLimit    = shutdown + 5*time.Second

	incarnationHeader = "X-Incarnation"
)

// incarnation is one process of a sidecar.
type incarnation struct {
	id      string
	slot    int
	breaker bool // at its default, else off
	started time.Time
	asked   time.Time // when it was told to stop
	ended   time.Time // zero while it runs
	killed  bool
	exit    int
}

// sidecar is one sidecar, over all its processes.
type sidecar struct {
	h     *house
	plan  plan
	slot  int
	path  string
	log   string
	admin string // where its admin listener is
	app   *appSlot
	links []*link // to each node

	mu      sync.Mutex
	process *process
	lives   []*incarnation
}

func newSidecar(h *house, p plan, slot int, path, dir string, a *appSlot, c *cluster) (*sidecar, error) {
	s := &sidecar{h: h, plan: p, slot: slot, path: path, log: filepath.Join(dir, fmt.Sprintf("sidecar%d.log", slot)), admin: "127.0.0.1:0", app: a}
	if p.Steady { // it is looked at
		var err error
		if s.admin, err = freeAddress(); err != nil {
			return nil, err
		}
	}
	for _, n := range c.nodes {
		l, err := newLink(n.client)
		if err != nil {
			return nil, err
		}
		s.links = append(s.links, l)
	}
	return s, nil
}

// start runs the sidecar, if it does not run.
func (s *sidecar) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil && s.process.running() {
		return nil
	}
	n := len(s.lives)
	life := &incarnation{id: fmt.Sprintf("%d.%d", s.slot, n), slot: s.slot, breaker: s.plan.breakerOn(s.slot, n), started: time.Now()}
	p, err := s.h.start(s.log, s.environment(life), s.path, "run")
	if err != nil {
		return fmt.Errorf("start a sidecar: %w", err)
	}
	s.process = p
	s.lives = append(s.lives, life)
	go s.watch(p, life)
	return nil
}

// watch notes the end of a process.
func (s *sidecar) watch(p *process, life *incarnation) {
	<-p.ended
	s.mu.Lock()
	defer s.mu.Unlock()
	life.ended, life.exit = time.Now(), p.exit()
	if s.process == p {
		s.process = nil
	}
}

func (s *sidecar) environment(life *incarnation) []string {
	var urls []string
	for _, l := range s.links {
		urls = append(urls, "nats://"+l.address())
	}
	breaker := 0
	if life.breaker {
		breaker = failures
	}
	store := "memory"
	if s.plan.Shared {
		store = "kv"
	}
	initial, most := s.plan.schedule()
	pending := 10000
	if s.plan.Crowded {
		pending = crowdPending
	}
	order := "none"
	if s.plan.Ordered {
		order = "subject"
	}
	const consumer = "SIDECAR_CONSUMERS_0_"
	return []string{
		"PATH=" + os.Getenv("PATH"),
		"SIDECAR_NATS_URLS=" + strings.Join(urls, ","),
		"SIDECAR_NATS_USER=sidecar",
		"SIDECAR_NATS_PASSWORD=sidecar",
		"SIDECAR_APP_URL=http://" + s.app.address,
		"SIDECAR_APP_HEADERS=" + incarnationHeader + "=" + life.id,
		"SIDECAR_APP_TIMEOUT=" + appTimeout.String(),
		"SIDECAR_ADMIN_LISTEN=" + s.admin,
		"SIDECAR_LOG_FORMAT=json",
		"SIDECAR_SHUTDOWN_TIMEOUT=" + shutdown.String(),
		consumer + "STREAM=" + sourceStream,
		consumer + "DURABLE=" + durable,
		consumer + "ACK_WAIT=" + ackWait.String(),
		consumer + "CONCURRENCY=" + fmt.Sprint(concurrency),
		consumer + "PREFETCH=" + fmt.Sprint(prefetch),
		consumer + "ORDER=" + order,
		consumer + "BATCH_MAX_MESSAGES=" + fmt.Sprint(max(s.plan.Batch, 1)),
		consumer + "BATCH_MAX_WAIT=" + s.plan.batchWait().String(),
		consumer + "MAX_DELIVER=" + fmt.Sprint(s.plan.MaxDeliver),
		consumer + "DEDUPE_STORE=" + store,
		consumer + "RETRY_INITIAL=" + initial.String(),
		consumer + "RETRY_MAX=" + most.String(),
		consumer + "MAX_ACK_PENDING=" + fmt.Sprint(pending),
		consumer + "BREAKER_FAILURES=" + fmt.Sprint(breaker),
		consumer + "BREAKER_PROBE_MAX=2s",
		consumer + "BREAKER_HOLD=6s", // what always fails must come to an end
	}
}

// life is the present process and what is known of it; nil if none runs.
func (s *sidecar) life() (*process, *incarnation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return nil, nil
	}
	return s.process, s.lives[len(s.lives)-1]
}

func (s *sidecar) signal(sig syscall.Signal) {
	if p, _ := s.life(); p != nil {
		p.signal(sig)
	}
}

func (s *sidecar) kill() {
	p, life := s.life()
	if p == nil {
		return
	}
	s.mu.Lock()
	life.killed = true
	s.mu.Unlock()
	p.kill()
}

// ask tells the sidecar to stop.
func (s *sidecar) ask() *process {
	p, life := s.life()
	if p == nil {
		return nil
	}
	s.mu.Lock()
	life.asked = time.Now()
	s.mu.Unlock()
	p.signal(syscall.SIGTERM)
	return p
}

// await waits for the end of a process that was asked to stop. One that takes too long is killed: the checker sees how
// long it took.
func (s *sidecar) await(p *process) {
	if p == nil {
		return
	}
	select {
	case <-p.ended:
	case <-time.After(stopLimit + time.Second):
		s.kill()
	}
}

// incarnations are all processes so far, copied.
func (s *sidecar) incarnations() []incarnation {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []incarnation
	for _, l := range s.lives {
		all = append(all, *l)
	}
	return all
}

// each does something to all links, or to the one to a node.
func (s *sidecar) each(node int, f func(*link)) {
	for i, l := range s.links {
		if node < 0 || i == node {
			f(l)
		}
	}
}

func (s *sidecar) close() {
	s.kill()
	s.each(all, (*link).close)
}
