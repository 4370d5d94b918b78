//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"syscall"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// inject brings a fault about, keeps it up for its length or until ctx ends, and heals it.
func (c *campaign) inject(ctx context.Context, f fault) error {
	e := event{fault: f, begin: time.Now()}
	var err error
	switch f.Kind {
	case nodeKill, nodeStop, nodePause, nodeCut, routeCut, stepDown, blackout:
		err = c.injectNodes(ctx, f)
	case sidecarKill, sidecarStop, sidecarHold, stopCutOff:
		err = c.injectProcess(ctx, f)
	case linkCut, oneLinkCut, blip:
		c.injectLinks(ctx, f)
	case appDown, appFails, appHangs, appResets:
		err = c.injectApp(ctx, f)
	case dlqFull:
		err = c.fillDLQ(ctx, f)
	case dlqDenied, ackDenied, pullDenied, kvDenied:
		if err = c.cluster.deny(f.Kind, true); err == nil {
			rest(ctx, f.Length)
			err = c.cluster.deny(f.Kind, false)
		}
	case ackLost:
		c.loseAcks(ctx, f)
	case kvGone:
		err = c.remove(ctx, "KV_"+bucket)
	case durableGone:
		e.affected = c.pub.storedNow() + c.plan.leases()*len(c.sidecars)
		err = c.insist(context.WithoutCancel(ctx), "delete the durable", func(ctx context.Context) error {
			err := c.js.DeleteConsumer(ctx, sourceStream, durable)
			if errorIs(err, natsjs.ErrConsumerNotFound, natsjs.ErrConsumerDoesNotExist) {
				return nil
			}
			return err
		})
	case streamAnew:
		err = c.remake(ctx, f)
	default:
		err = fmt.Errorf("no such fault: %s", f.Kind)
	}
	e.end = time.Now()
	c.mu.Lock()
	c.events = append(c.events, e)
	c.mu.Unlock()
	return err
}

func (c *campaign) injectNodes(ctx context.Context, f fault) error {
	i := f.Node
	if i == leader {
		i = c.leads(f)
	}
	switch f.Kind {
	case nodeKill, nodeStop:
		c.cluster.stop(i, f.Kind == nodeStop)
		rest(ctx, f.Length)
		return c.cluster.start(i)
	case nodePause:
		p := c.cluster.process(i)
		p.signal(syscall.SIGSTOP)
		rest(ctx, f.Length)
		p.signal(syscall.SIGCONT)
	case blackout:
		for n := range nodes {
			c.cluster.process(n).signal(syscall.SIGSTOP)
		}
		rest(ctx, f.Length)
		for n := range nodes {
			c.cluster.process(n).signal(syscall.SIGCONT)
		}
	case nodeCut:
		separate(ctx, f, c.cluster.between(i, -1))
	case routeCut:
		separate(ctx, f, c.cluster.between(i, (i+1)%nodes))
	case stepDown:
		subject := map[int]string{-1: "CONSUMER.LEADER.STEPDOWN." + sourceStream + "." + durable, 0: "STREAM.LEADER.STEPDOWN." + dlqStream}[f.Node]
		if subject == "" {
			subject = "STREAM.LEADER.STEPDOWN." + sourceStream
		}
		_, _ = c.nc.Request("$JS.API."+subject, nil, apiTimeout) // there may be no leader now
	}
	return nil
}

// separate cuts or stalls links for a fault's length.
func separate(ctx context.Context, f fault, links []*link) {
	for _, l := range links {
		if f.Soft {
			l.stall()
		} else {
			l.cut()
		}
	}
	rest(ctx, f.Length)
	for _, l := range links {
		l.heal()
	}
}

// leads is the node that leads the durable; some node while nobody knows.
func (c *campaign) leads(f fault) int {
	var info struct{ Cluster struct{ Leader string } }
	if msg, err := c.nc.Request("$JS.API.CONSUMER.INFO."+sourceStream+"."+durable, nil, time.Second); err == nil {
		_ = json.Unmarshal(msg.Data, &info) // not known, then
	}
	for i, n := range c.cluster.nodes {
		if n.name == info.Cluster.Leader {
			return i
		}
	}
	return int(f.At/ms) % nodes
}

func (c *campaign) injectProcess(ctx context.Context, f fault) error {
	s := c.sidecars[f.Sidecar]
	switch f.Kind {
	case sidecarKill:
		s.kill()
		rest(ctx, f.Length)
	case sidecarStop:
		s.await(s.ask())
		rest(ctx, f.Length)
	case sidecarHold:
		s.signal(syscall.SIGSTOP)
		rest(ctx, f.Length)
		s.signal(syscall.SIGCONT)
	case stopCutOff:
		// What it sends from here on is lost, which it cannot know: it must not end as if all were confirmed.
		defer c.busy(ctx, f.Sidecar)()
		s.each(all, (*link).stall)
		rest(ctx, 400*ms)
		p := s.ask()
		rest(ctx, f.Length)
		s.each(all, (*link).cut)
		s.each(all, (*link).heal)
		s.await(p)
	}
	return s.start()
}

func (c *campaign) injectLinks(ctx context.Context, f fault) {
	s := c.sidecars[f.Sidecar]
	node := all
	if f.Kind == oneLinkCut {
		node = f.Node
	}
	if f.Kind == blip {
		f.Soft = false
	}
	var links []*link
	s.each(node, func(l *link) { links = append(links, l) })
	separate(ctx, f, links)
}

func (c *campaign) injectApp(ctx context.Context, f fault) error {
	slots := c.app.of(f.Sidecar)
	for _, s := range slots {
		if f.Kind == appDown {
			s.down()
		} else {
			s.set(f.Kind)
		}
	}
	rest(ctx, f.Length)
	for _, s := range slots {
		if f.Kind != appDown {
			s.set("")
		} else if err := s.up(); err != nil {
			return fmt.Errorf("the app cannot listen again: %w", err)
		}
	}
	return nil
}

// loseAcks lets no ack of a sidecar arrive for a time shorter than a lease, which it cannot know, and then cuts it off. It is
// connected again at once, and has time to send its acks again.
func (c *campaign) loseAcks(ctx context.Context, f fault) {
	s := c.sidecars[f.Sidecar]
	s.each(all, (*link).loseAcks)
	c.pub.burst(concurrency*len(c.sidecars), quick) // so that there is something to confirm
	rest(ctx, f.Length)
	s.each(all, (*link).cut)
	s.each(all, (*link).heal)
}

// busy brings a sidecar that gets messages into the midst of many, so that there is something to confirm. What it returns
// waits until all are published.
func (c *campaign) busy(ctx context.Context, slot int) (wait func()) {
	a, begun := c.app.slots[slot], 0
	a.await(ctx, time.Second, func(a *appSlot) bool { begun = a.begun; return true })
	a.await(ctx, 5*time.Second, func(a *appSlot) bool { return a.begun > begun })
	var publishing sync.WaitGroup
	publishing.Go(func() { c.pub.burst(concurrency*len(c.sidecars), anyOf) })
	rest(ctx, 15*ms)
	return publishing.Wait
}

func (c *campaign) fillDLQ(ctx context.Context, f fault) error {
	lasting := context.WithoutCancel(ctx)
	limit := func(room func(now uint64) int64) error {
		return c.insist(lasting, "limit the dlq", func(ctx context.Context) error {
			s, err := c.js.Stream(ctx, dlqStream)
			if err != nil {
				return err
			}
			_, err = c.js.UpdateStream(ctx, c.dead(room(s.CachedInfo().State.Msgs)))
			return err
		})
	}
	if err := limit(func(now uint64) int64 { return int64(max(now, 1)) }); err != nil {
		return err
	}
	rest(ctx, f.Length)
	return limit(func(uint64) int64 { return -1 })
}

// remake deletes the source stream and makes it anew. What was in it is gone; the new one soon has as many messages, so
// that what is still held from the old one has a namesake.
func (c *campaign) remake(ctx context.Context, f fault) error {
	lasting := context.WithoutCancel(ctx)
	c.pub.quiet.Lock()
	n := c.pub.storedNow()
	err := c.remove(ctx, sourceStream)
	rest(ctx, f.Length)
	if err == nil {
		err = c.insist(lasting, "make the stream anew", func(ctx context.Context) error {
			_, err := c.js.CreateOrUpdateStream(ctx, c.source())
			return err
		})
	}
	c.pub.mu.Lock()
	c.pub.epoch++
	c.pub.mu.Unlock()
	c.pub.quiet.Unlock()
	if err == nil {
		c.pub.burst(min(n, 400), anyOf)
	}
	return err
}

// remove deletes a stream.
func (c *campaign) remove(ctx context.Context, stream string) error {
	return c.insist(context.WithoutCancel(ctx), "delete the stream "+stream, func(ctx context.Context) error {
		err := c.js.DeleteStream(ctx, stream)
		if errorIs(err, natsjs.ErrStreamNotFound) {
			return nil
		}
		return err
	})
}
