// Package app builds the sidecar out of its parts, in order, runs it, and takes it down in reverse.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jetsidecar/jetsidecar/dedupe"
	"github.com/jetsidecar/jetsidecar/forward"
	"github.com/jetsidecar/jetsidecar/internal/admin"
	"github.com/jetsidecar/jetsidecar/internal/alert"
	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/dlq"
	"github.com/jetsidecar/jetsidecar/internal/pipeline"
	"github.com/jetsidecar/jetsidecar/internal/telemetry"
	"github.com/jetsidecar/jetsidecar/jetstream"
)

// ErrUnconfirmed means that the stop was not clean: verdicts could not be confirmed in time. Their messages will be
// delivered again.
var ErrUnconfirmed = errors.New("verdicts were not confirmed before the stop")

// Options are what a sidecar is built from.
type Options struct {
	Config          *config.Config
	Version, Commit string
	Log             *slog.Logger
	// Observe, if set, wraps the observer of each consumer: to see what happens to each message.
	Observe func(stream, durable string, o pipeline.Observer) pipeline.Observer
	// OnApp, if set, is told when the app is found up or down.
	OnApp func(up bool, err error)
	// StopGrace, if set, is how much longer than the shutdown timeout a stop may take, instead of 2 s.
	StopGrace time.Duration
}

// App is a built sidecar.
type App struct {
	cfg       *config.Config
	conn      *jetstream.Conn
	client    *forward.Client
	reach     *reach
	pipelines []*pipeline.Pipeline
	alerts    []*alert.Watch
	watched   []admin.Consumer // the same, with what happened in them
	letters   []dlq.Consumer   // those of them that have a DLQ
	admin     *admin.Server
	listener  net.Listener
	stopping  atomic.Bool
}

// New builds a sidecar and opens its admin listener. Errors are about the configuration or the listener; NATS and the
// app may be away.
func New(o Options) (*App, error) {
	a := &App{cfg: o.Config, reach: newReach(o.Log)}
	total := 0
	for _, c := range o.Config.Consumers {
		total += c.InFlight()
	}
	var err error
	a.client, err = forward.New(o.Config.App, forward.Options{
		Connections: total, UserAgent: "jetsidecar/" + o.Version, Logger: o.Log,
		OnAppChange: func(up bool, err error) { a.appChanged(o, up, err) },
	})
	if err != nil {
		return nil, fmt.Errorf("app: %w", err)
	}
	if a.listener, err = net.Listen("tcp", o.Config.Admin.Listen); err != nil {
		a.client.Close()
		return nil, fmt.Errorf("admin.listen: %w", err)
	}
	if a.conn, err = jetstream.Dial(o.Config.NATS, o.Log); err != nil {
		a.client.Close()
		return nil, errors.Join(err, a.listener.Close())
	}
	tel := telemetry.New(telemetry.Options{
		Log: o.Log, Statuses: a.Statuses, AppUp: a.client.Up, NATSConnected: a.conn.Connected, Version: o.Version, Commit: o.Commit,
	})
	for _, c := range o.Config.Consumers {
		if err := a.add(o, tel.Consumer(c.Stream, c.Durable), c); err != nil {
			a.Close()
			return nil, fmt.Errorf("consumer %s of stream %s: %w", c.Durable, c.Stream, err)
		}
	}
	letters := dlq.New(dlq.Options{Conn: a.conn, Consumers: a.letters, App: a.client, Log: o.Log})
	a.admin = admin.New(admin.Options{
		Config: o.Config.Admin, Ready: a.Ready, Metrics: tel.Handler(), Consumers: a.watched, Letters: letters, Changes: letters,
		Version: o.Version, Log: o.Log,
	})
	return a, nil
}

// add builds one consumer's pipeline, and notes it for who looks at it and at its dead letters.
func (a *App) add(o Options, activity *telemetry.Consumer, c config.Consumer) error {
	to, err := target(a.client, c)
	if err != nil {
		return err
	}
	cfg, err := pipelineConfig(c, o.Config.ShutdownTimeout)
	if err != nil {
		return err
	}
	cfg.StopGrace = o.StopGrace
	p := a.pipeline(o, cfg, to, activity, c)
	a.pipelines = append(a.pipelines, p)
	a.watched = append(a.watched, admin.Consumer{Config: c, Pipeline: p, Activity: activity})
	dead, err := letters(c, a.client)
	dead.Remember = p.Remember
	a.letters = append(a.letters, dead)
	return err
}

func (a *App) pipeline(o Options, cfg pipeline.Config, target *forward.Target, observer pipeline.Observer, c config.Consumer) *pipeline.Pipeline {
	log := o.Log.With(slog.String("stream", c.Stream), slog.String("consumer", c.Durable))
	if o.Observe != nil {
		observer = o.Observe(c.Stream, c.Durable, observer)
	}
	var ready func(context.Context) error
	if o.Config.App.Ready.Path != "" {
		ready = a.client.Probe
	}
	var bucket dedupe.Bucket
	if c.Dedupe.Store == "kv" {
		bucket = jetstream.NewBucket(a.conn, BucketConfig(c), log)
	}
	letters := jetstream.NewDeadLetters(a.conn, c.DLQ, c.Stream, c.Durable, log)
	p := pipeline.New(cfg, pipeline.Parts{
		Ready:       ready,
		Source:      jetstream.NewSource(a.conn, SourceConfig(c), log),
		DeadLetters: letters,
		Marks:       jetstream.NewMarks(a.conn, SourceConfig(c)),
		App:         a.client,
		Target:      target,
		Bucket:      bucket,
		Observer:    observer,
		Log:         log,
	})
	if c.DLQ.Enabled && c.DLQ.AlertDepth > 0 {
		a.alerts = append(a.alerts, alert.New(alertConfig(c, o.Version), alert.Parts{
			State:  func() (uint64, bool) { s := p.Status(); return s.DLQDepth, s.DLQAlert },
			Causes: letters.Causes, Log: log,
		}))
	}
	return p
}

// AdminAddr is where the admin listener listens.
func (a *App) AdminAddr() net.Addr { return a.listener.Addr() }

// Statuses is a snapshot of every consumer.
func (a *App) Statuses() []pipeline.Status {
	all := make([]pipeline.Status, 0, len(a.pipelines))
	for _, p := range a.pipelines {
		all = append(all, p.Status())
	}
	return all
}

// Ready is whether the sidecar does its work, and if not why.
func (a *App) Ready() admin.Readiness {
	detail := ""
	if err := a.client.LastError(); err != nil {
		detail = err.Error()
	}
	r := admin.Checks(a.conn.Connected(), a.client.Up(), detail, a.Statuses())
	r.Checks[0].Detail = a.conn.Trouble()
	if a.stopping.Load() {
		return r.Stopping()
	}
	return r
}

// appChanged lets pulling go on while the app is there.
func (a *App) appChanged(o Options, up bool, err error) {
	a.reach.changed(err)
	for _, p := range a.pipelines {
		p.AppChanged(up)
	}
	if o.OnApp != nil {
		o.OnApp(up, err)
	}
}

// Run serves until ctx ends, then stops within the shutdown timeout. It returns ErrUnconfirmed if the stop was not clean.
func (a *App) Run(ctx context.Context) error {
	running, stopRunning := context.WithCancelCause(ctx)
	defer stopRunning(nil)
	background, endBackground := context.WithCancel(context.WithoutCancel(ctx))
	var helpers, pipelines sync.WaitGroup
	defer a.Close()
	defer helpers.Wait()
	defer endBackground()

	helpers.Go(func() { a.client.Run(background) })
	helpers.Go(func() { a.reach.run(background) })
	for _, w := range a.alerts {
		helpers.Go(func() { w.Run(background) })
	}
	helpers.Go(func() {
		if err := a.admin.Serve(background, a.listener); err != nil {
			stopRunning(fmt.Errorf("admin listener: %w", err))
		}
	})
	context.AfterFunc(running, func() {
		a.stopping.Store(true)
		a.admin.StopLong()
	})

	var unconfirmed atomic.Int64
	for _, p := range a.pipelines {
		pipelines.Go(func() {
			n, err := p.Run(running)
			unconfirmed.Add(int64(n))
			if err != nil {
				stopRunning(err)
			}
		})
	}
	pipelines.Wait()
	if cause := context.Cause(running); ctx.Err() == nil && cause != nil {
		return cause
	}
	if n := unconfirmed.Load(); n > 0 {
		return fmt.Errorf("%d %w", n, ErrUnconfirmed)
	}
	return nil
}

// Close ends the connections. Run does it too.
func (a *App) Close() {
	a.client.Close()
	a.conn.Close()
	_ = a.listener.Close() // closed already after Serve
}
