//go:build unix

package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// kind is a kind of fault.
type kind string

// The kinds of faults.
const (
	nodeKill    kind = "node killed"
	nodeStop    kind = "node stopped"
	nodePause   kind = "node paused"
	nodeCut     kind = "node cut off from its peers"
	routeCut    kind = "two nodes cut from each other"
	stepDown    kind = "leader stepped down"
	blackout    kind = "all nodes paused"
	sidecarKill kind = "sidecar killed"
	sidecarStop kind = "sidecar stopped"
	sidecarHold kind = "sidecar paused"
	stopCutOff  kind = "sidecar stopped while cut off"
	linkCut     kind = "sidecar cut from nats"
	oneLinkCut  kind = "sidecar cut from one node"
	blip        kind = "sidecar's connections reset"
	appDown     kind = "app down"
	appFails    kind = "app answers 503"
	appHangs    kind = "app hangs"
	appResets   kind = "app resets connections"
	dlqFull     kind = "dlq full"
	dlqDenied   kind = "dlq not permitted"
	ackDenied   kind = "acks not permitted"
	pullDenied  kind = "pulls not permitted"
	ackLost     kind = "acks lost in a cut"
	kvDenied    kind = "dedupe bucket not permitted"
	kvGone      kind = "dedupe bucket deleted"
	durableGone kind = "durable deleted"
	streamAnew  kind = "stream made anew"
)

const (
	all    = -1 // every sidecar's
	leader = -1 // the node that leads the durable
	nodes  = 3
	// quietStart is how long the first sidecars have before the faults begin.
	quietStart = 1500 * time.Millisecond
	// betweenWaiting is for the faults that come whenever they can, between those that wait for the others to end.
	betweenWaiting = 10 * time.Second
)

// fault is one fault of a plan.
type fault struct {
	At, Length time.Duration
	Kind       kind
	Node       int  // of a fault of nodes; leader is looked up when it is due
	Sidecar    int  // of a fault of sidecars, their connections and their apps
	Soft       bool // connections stall and go on, instead of being reset and refused
}

func (f fault) String() string {
	return fmt.Sprintf("%7.2fs for %5.2fs  %-32s node %2d  sidecar %2d  soft %v", f.At.Seconds(), f.Length.Seconds(), f.Kind, f.Node, f.Sidecar, f.Soft)
}

// plan is everything that a seed decides.
type plan struct {
	Seed       uint64
	Duration   time.Duration
	Sidecars   int
	WorkQueue  bool   // retention of the source stream
	Shared     bool   // dedupe.store is kv, else memory
	MaxDeliver uint64 // attempts
	Crowded    bool   // few messages may be pending, and retries wait long: most wait in the retry stream
	Ordered    bool   // order is subject
	Batch      int    // messages that a request may have; 1 is no batch
	Steady     bool   // the first sidecar is never killed nor stopped
	Faults     []fault
}

func (p plan) String() string {
	retention, dedupe := "limits", "memory"
	if p.WorkQueue {
		retention = "work queue"
	}
	if p.Shared {
		dedupe = "kv"
	}
	text := fmt.Sprintf("seed %d, %s of faults, %d sidecars, %s stream, dedupe %s, max_deliver %d", p.Seed, p.Duration, p.Sidecars, retention, dedupe, p.MaxDeliver)
	if p.Crowded {
		text += ", crowded"
	}
	if p.Ordered {
		text += ", ordered"
	}
	if p.Batch > 1 {
		text += fmt.Sprintf(", batches of %d", p.Batch)
	}
	return text
}

// schedule is the shortest and longest delay of retries, before jitter.
func (p plan) schedule() (initial, most time.Duration) {
	if p.Crowded {
		return retryLong, retryLong
	}
	return retryInitial, retryMax
}

// rate is how many messages are published a second, of so many where nothing keeps an order.
func (p plan) rate(most int) int {
	if p.Ordered {
		return max(most/calmer, 1)
	}
	return most
}

// shape is how often a kind comes, how long it lasts, and what it keeps other faults from touching meanwhile.
type shape struct {
	kind     kind
	weight   int
	min, max time.Duration
	rest     time.Duration // what it touched is left alone for so long afterwards
	lanes    func(f fault) []string
	waits    bool // for its lanes to be free, instead of not taking place
}

const ms = time.Millisecond

var (
	onNodes    = func(fault) []string { return []string{"nodes"} }
	onProcess  = func(f fault) []string { return []string{lane("process", f.Sidecar)} }
	onLinks    = func(f fault) []string { return []string{lane("links", f.Sidecar)} }
	onApp      = func(f fault) []string { return lanesOf("app", f.Sidecar) }
	onDLQ      = func(fault) []string { return []string{"dlq"} }
	onPermits  = func(fault) []string { return []string{"permits"} }
	onBucket   = func(fault) []string { return []string{"bucket"} }
	onOneAlone = func(f fault) []string {
		return append(lanesOf("app", all), "nodes", "dlq", "permits", lane("process", f.Sidecar), lane("links", f.Sidecar))
	}
	alone = func(fault) []string {
		return slices.Concat(lanesOf("app", all), lanesOf("process", all), lanesOf("links", all), []string{"nodes", "dlq", "permits"})
	}
)

var shapes = []shape{
	{nodeKill, 5, 300 * ms, 5000 * ms, 3000 * ms, onNodes, false},
	{nodeStop, 3, 300 * ms, 5000 * ms, 3000 * ms, onNodes, false},
	{nodePause, 3, 300 * ms, 6000 * ms, 2000 * ms, onNodes, false},
	{nodeCut, 3, 500 * ms, 6000 * ms, 2000 * ms, onNodes, false},
	{routeCut, 3, 500 * ms, 6000 * ms, 2000 * ms, onNodes, false},
	{stepDown, 4, 0, 0, 1000 * ms, onNodes, false},
	{blackout, 1, 500 * ms, 3000 * ms, 2000 * ms, onNodes, false},
	{sidecarKill, 10, 50 * ms, 3000 * ms, 300 * ms, onProcess, false},
	{sidecarStop, 7, 50 * ms, 3000 * ms, 300 * ms, onProcess, false},
	{sidecarHold, 6, 200 * ms, 4500 * ms, 300 * ms, onProcess, false},
	{stopCutOff, 3, 400 * ms, 600 * ms, 3500 * ms, onOneAlone, true},
	{linkCut, 5, 300 * ms, 5000 * ms, 500 * ms, onLinks, false},
	{oneLinkCut, 4, 300 * ms, 5000 * ms, 500 * ms, onLinks, false},
	{blip, 6, 0, 100 * ms, 500 * ms, onLinks, false},
	{appDown, 6, 100 * ms, 3000 * ms, 500 * ms, onApp, false},
	{appFails, 4, 200 * ms, 3000 * ms, 1000 * ms, onApp, false},
	{appHangs, 3, 200 * ms, 2000 * ms, 1000 * ms, onApp, false},
	{appResets, 4, 200 * ms, 3000 * ms, 1000 * ms, onApp, false},
	{dlqFull, 6, 500 * ms, 6000 * ms, 2000 * ms, onDLQ, false},
	{dlqDenied, 3, 500 * ms, 4000 * ms, 2000 * ms, onDLQ, false},
	{ackDenied, 3, 300 * ms, 4000 * ms, 2000 * ms, onPermits, false},
	{pullDenied, 2, 300 * ms, 3000 * ms, 2000 * ms, onPermits, false},
	{ackLost, 3, 400 * ms, 800 * ms, 3500 * ms, onOneAlone, true},
	{kvDenied, 2, 300 * ms, 4000 * ms, 2000 * ms, onPermits, false},
	{kvGone, 2, 0, 0, 1000 * ms, onBucket, false},
	{durableGone, 1, 0, 0, 3000 * ms, alone, true},
	{streamAnew, 1, 0, 300 * ms, 5000 * ms, alone, true},
}

func lane(what string, n int) string { return fmt.Sprint(what, n) }

// lanesOf are the lanes of one sidecar, or of all there can be.
func lanesOf(what string, n int) []string {
	if n != all {
		return []string{lane(what, n)}
	}
	return []string{lane(what, 0), lane(what, 1), lane(what, 2)}
}

// newPlan is the plan of a seed: the same for the same seed and duration.
func newPlan(seed uint64, duration time.Duration) plan {
	r := rand.New(rand.NewPCG(seed, 0x6a65747369646563))
	p := plan{Seed: seed, Duration: duration, Sidecars: 2 + r.IntN(2), WorkQueue: r.IntN(3) == 0, Shared: r.IntN(3) == 0, MaxDeliver: 4, Crowded: seed%4 == 2 || seed%16 == 13, Ordered: seed%4 == 3, Batch: batchOf(seed)}
	if r.IntN(4) == 0 {
		p.MaxDeliver = 1 // an outage would bring every message to its limit
	}
	pause := 250*ms + time.Duration(r.Int64N(int64(500*ms)))
	p.Faults = p.spread(r, duration, pause)
	return p
}

// spread are faults over a time, with about the pause between the begin of one and the next.
func (p plan) spread(r *rand.Rand, duration, pause time.Duration) (faults []fault) {
	weights := 0
	for _, s := range shapes {
		weights += s.weight
	}
	busy := map[string]time.Duration{} // until when a lane is taken
	calm := time.Duration(0)           // until when no fault that waits comes
	for at := quietStart; at < duration; at += pause/2 + time.Duration(r.Int64N(int64(pause))) {
		for range 3 {
			f, s := p.draw(r, at, weights)
			lanes := s.lanes(f)
			taken := slices.ContainsFunc(lanes, func(l string) bool { return busy[l] > at })
			if s.waits && calm > at || taken && !s.waits || !p.Shared && (f.Kind == kvDenied || f.Kind == kvGone) {
				continue
			}
			for _, l := range lanes {
				f.At = max(f.At, busy[l])
			}
			for _, l := range lanes {
				busy[l] = f.At + f.Length + s.rest
			}
			if s.waits {
				calm = f.At + f.Length + betweenWaiting
			}
			if f.At < duration {
				faults = append(faults, f)
			}
			break
		}
	}
	slices.SortStableFunc(faults, func(a, b fault) int { return cmp.Compare(a.At, b.At) })
	return faults
}

// draw is one fault, by the weights of the kinds.
func (p plan) draw(r *rand.Rand, at time.Duration, weights int) (fault, shape) {
	n := r.IntN(weights)
	i := 0
	for ; n >= shapes[i].weight; i++ {
		n -= shapes[i].weight
	}
	s := shapes[i]
	f := fault{At: at, Kind: s.kind, Node: r.IntN(nodes+1) - 1, Sidecar: r.IntN(p.Sidecars), Soft: r.IntN(2) == 0}
	f.Length = s.min + time.Duration(r.Int64N(int64(s.max-s.min)+1))
	switch s.kind {
	case appDown, appFails, appHangs, appResets:
		if r.IntN(2) == 0 {
			f.Sidecar = all
		}
	case routeCut, oneLinkCut:
		f.Node = max(f.Node, 0)
	case sidecarKill, sidecarStop, stopCutOff:
		if p.Steady && f.Sidecar == 0 {
			f.Sidecar = 1
		}
	}
	return f, s
}

// breakerOn reports whether the start number n of a sidecar has the breaker at its default, or off.
func (p plan) breakerOn(sidecar, n int) bool {
	return p.Steady && sidecar == 0 || hash(p.Seed, uint64(sidecar), uint64(n))%3 != 0
}

// hash mixes numbers (splitmix64), for what has to be decided without an order.
func hash(numbers ...uint64) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, n := range numbers {
		h += n + 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}
