package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/app"
	"github.com/jetsidecar/jetsidecar/internal/localnats"
	"github.com/jetsidecar/jetsidecar/internal/pipeline"
)

const (
	sumUpEvery   = 10 * time.Second
	buildTimeout = 30 * time.Second
)

// demo is everything that runs, in the order it is built; it is taken down in reverse.
type demo struct {
	options
	store  store
	style  style
	lines  lines
	ledger *ledger
	screen *screen

	server    *localnats.Server
	sample    *sampleApp // nil with --app
	load      *load
	sidecar   *app.App
	adminBusy string
}

// run shows the sidecar at work until ctx ends or, with --messages, all are settled.
func run(ctx context.Context, o options, place store, s streams) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	d := &demo{options: o, store: place, style: styleOf(s.out, s.getenv), ledger: newLedger()}
	d.screen = newScreen(s.out, stop)
	d.lines = lines{style: d.style, max: maxDeliver}

	start := time.Now()
	err := d.build(ctx)
	if err == nil {
		err = d.serve(ctx, start)
	}
	d.close()
	d.screen.close()
	if errors.Is(err, context.Canceled) { // stopped before all of it was there
		err = nil
	}
	if d.sidecar != nil {
		summary{counts: d.ledger.counts(), took: time.Since(start), dlq: d.lines.dlq, store: place}.print(s.out, d.style)
	}
	return err
}

// build starts the server, the sample app and the connection of the load, and builds the sidecar.
func (d *demo) build(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	var err error
	if d.server, err = startServer(d.port, d.store, d.warn("nats-server")); err != nil {
		return err
	}
	target := d.app
	if target == "" {
		if d.sample, err = startSampleApp(); err != nil {
			return err
		}
		target = d.sample.url
	}
	if d.load, err = newLoad(ctx, d.server.URL(), d.stream); err != nil {
		return err
	}
	d.load.ledger, d.load.warn = d.ledger, d.warn("load")
	return d.buildSidecar(target)
}

// buildSidecar builds what production runs. If the admin address is taken, it takes any free port.
func (d *demo) buildSidecar(target string) error {
	cfg, err := d.config(d.server.URL(), target)
	if err != nil {
		return err
	}
	d.lines.dlq = d.stream + "_DLQ"
	o := app.Options{
		Config: cfg, Version: "dev", Commit: "unknown", Log: slog.New(logHandler{lines: d.lines, screen: d.screen}),
		Observe: func(_, _ string, inner pipeline.Observer) pipeline.Observer {
			return &observer{Observer: inner, demo: d}
		},
		OnApp: d.appChanged(target),
	}
	d.sidecar, err = app.New(o)
	var refused *net.OpError
	if errors.As(err, &refused) && refused.Op == "listen" {
		host, _, _ := net.SplitHostPort(cfg.Admin.Listen)
		d.adminBusy = fmt.Sprintf("cannot have %s (%s)", cfg.Admin.Listen, cause(err))
		cfg.Admin.Listen = net.JoinHostPort(host, "0")
		d.sidecar, err = app.New(o)
	}
	return err
}

// serve shows the header, and runs sidecar and load until ctx ends or all is settled.
func (d *demo) serve(ctx context.Context, start time.Time) error {
	shown := d.app
	if d.sample != nil {
		shown = d.sample.url
	}
	d.screen.line(running{
		nats: d.server.URL(), app: withoutUser(shown), admin: d.sidecar.AdminAddr().String(), adminBusy: d.adminBusy,
		source: d.load.source, dlq: d.lines.dlq, store: d.store, own: d.sample == nil,
	}.header(d.style))
	d.screen.line(d.lines.head())

	loading, stopLoading := context.WithCancel(ctx)
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer stopLoading()
	helpers.Go(func() { d.load.run(loading, d.rate, d.messages) })
	helpers.Go(func() { d.sumUp(loading, start) })
	ended := make(chan error, 1)
	go func() { ended <- d.sidecar.Run(serving) }()

	settled := d.ledger.done
	if d.messages == 0 {
		settled = nil
	}
	select {
	case err := <-ended:
		return err
	case <-settled:
	case <-ctx.Done():
		d.screen.line(d.lines.note(time.Now(), bold, "stopping", "requests in flight may end; Ctrl-C again stops at once"))
	}
	stopLoading()
	stopServing()
	return <-ended
}

// close takes down what was built, but for the sidecar, which does so itself at the end of its run.
func (d *demo) close() {
	if d.load != nil {
		d.load.close()
	}
	if d.sample != nil {
		d.sample.close()
	}
	if d.server != nil {
		d.server.Shutdown()
	}
}

// sumUp shows a line now and then, if anything happened.
func (d *demo) sumUp(ctx context.Context, start time.Time) {
	ticker := time.NewTicker(sumUpEvery)
	defer ticker.Stop()
	for last := 0; ; {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			c := d.ledger.counts()
			if n := c.published + c.deliveries; n != last {
				d.screen.line(d.lines.now(now.Sub(start), c))
				last = n
			}
		}
	}
}

// warn shows what is not right with a part.
func (d *demo) warn(part string) func(string) {
	return func(text string) {
		d.screen.line(d.lines.note(time.Now(), yellow, "warn", part+": "+clean(text)))
	}
}

// appChanged shows that the app is back; that it is away is in the log.
func (d *demo) appChanged(target string) func(bool, error) {
	var away atomic.Bool
	return func(up bool, _ error) {
		if !up {
			away.Store(true)
		} else if away.Swap(false) {
			d.screen.line(d.lines.note(time.Now(), green, "info", fmt.Sprintf("the app is back at %s", clean(withoutUser(target)))))
		}
	}
}

// observer sees what happens to each message.
type observer struct {
	pipeline.Observer
	demo *demo
}

// Settled counts and shows a delivery.
func (o *observer) Settled(s *pipeline.Settled) {
	of := o.demo.ledger.settled(s)
	o.demo.screen.line(o.demo.lines.settled(time.Now(), s, of))
	o.Observer.Settled(s)
}

// Requested counts a request to the app.
func (o *observer) Requested(status int, d time.Duration) {
	o.demo.ledger.requested(d)
	o.Observer.Requested(status, d)
}
