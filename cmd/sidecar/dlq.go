package main

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/jetsidecar/jetsidecar/forward"
	"github.com/jetsidecar/jetsidecar/internal/app"
	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/dlq"
	"github.com/jetsidecar/jetsidecar/internal/telemetry"
	"github.com/jetsidecar/jetsidecar/jetstream"
)

// letters is what the commands need of dead letters, as by dlq.Service.
type letters interface {
	Streams() []string
	List(ctx context.Context, f dlq.Filter) iter.Seq2[*dlq.Entry, error]
	Get(ctx context.Context, stream string, seq uint64) (*dlq.Letter, error)
	Stats(ctx context.Context, f dlq.Filter) (*dlq.Stats, error)
	Remove(ctx context.Context, f dlq.Filter, o dlq.RemoveOptions) (*dlq.Report, error)
	Replay(ctx context.Context, f dlq.Filter, o dlq.ReplayOptions) (*dlq.Report, error)
}

func dlqCommands() []command {
	return []command{
		{name: "list", short: "list dead letters, the oldest first", args: "[-c FILE] [FILTERS] [--json]", long: dlqListHelp, run: dlqList},
		{name: "show", short: "show one dead letter with its cause, headers and body", args: "SEQ [-c FILE] [--stream DLQ_STREAM] [--json | --raw]", long: dlqShowHelp, run: dlqShow},
		{name: "stats", short: "count dead letters by consumer, subject, reason and status", args: "[-c FILE] [FILTERS] [--json]", long: dlqStatsHelp, run: dlqStats},
		{name: "replay", short: "deliver dead letters again", args: "[SEQ] [-c FILE] [FILTERS] [--to app|stream] [--rate N] [--concurrency N] [--max-replays N] [--dry-run] [--yes] [--json]", long: dlqReplayHelp, run: dlqReplay},
		{name: "rm", short: "remove dead letters for good", args: "[SEQ] [-c FILE] [FILTERS] [--dry-run] [--yes] [--json]", long: dlqRemoveHelp, run: dlqRemove},
	}
}

// session is one dlq command at work.
type session struct {
	letters
	name  string // of the command, for messages
	ctx   context.Context
	close func()
}

// open connects to what a configuration points at. With ok false the error is written, and code is the exit code.
func (d *dlqFlags) open(c command, s streams, toApp int) (se *session, code int) {
	cfg, ok := load(d.config, s)
	if !ok {
		return nil, exitUsage
	}
	warnings(s.err, cfg.Warnings)
	se = &session{name: "sidecar dlq " + c.name}
	fail := func(code int, err error) (*session, int) {
		se.end()
		fmt.Fprintf(s.err, "%s: %v\n", se.name, err)
		return nil, code
	}
	var stop func()
	se.ctx, stop = interruptible(s, toApp >= 0)
	se.atEnd(stop)
	log, flush, err := telemetry.NewLogger(s.err, "warn", "text")
	if err != nil {
		return fail(exitUsage, err)
	}
	se.atEnd(flush)
	if err := se.connect(cfg, log, toApp); err != nil {
		return fail(exitUsage, err)
	}
	conn := se.letters.(*connected).conn
	if found := conn.AwaitConnection(se.ctx, connectFor); found.Level == jetstream.Failed {
		return fail(exitFailed, fmt.Errorf("%s: %s", found.What, found.Detail))
	}
	if d.filter.Stream != "" && !slices.Contains(se.Streams(), d.filter.Stream) {
		return fail(exitUsage, fmt.Errorf("flag --stream: %q is no DLQ stream of this configuration, which has %v", d.filter.Stream, se.Streams()))
	}
	return se, exitOK
}

// connected is the service of a process that runs no sidecar, with its connection.
type connected struct {
	*dlq.Service
	conn *jetstream.Conn
}

// connect builds the service; toApp is how many requests the app may get at a time, 0 for none.
func (se *session) connect(cfg *config.Loaded, log *slog.Logger, toApp int) error {
	conn, err := jetstream.Dial(cfg.NATS, log)
	if err != nil {
		return err
	}
	se.atEnd(conn.Close)
	var client *forward.Client
	if toApp > 0 {
		v, _ := buildVersion()
		if client, err = forward.New(cfg.App, forward.Options{Connections: toApp, UserAgent: "jetsidecar/" + v, Logger: log}); err != nil {
			return fmt.Errorf("app: %w", err)
		}
		se.atEnd(client.Close)
		probing, stop := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { defer close(ended); client.Run(probing) }()
		se.atEnd(func() { stop(); <-ended })
	}
	service, err := app.DeadLetters(&cfg.Config, conn, client, log)
	if err != nil {
		return err
	}
	se.letters = &connected{service, conn}
	return nil
}

// atEnd adds what is to be done at the end, before what was added earlier.
func (se *session) atEnd(f func()) {
	before := se.close
	se.close = func() {
		f()
		if before != nil {
			before()
		}
	}
}

func (se *session) end() {
	if se.close != nil {
		se.close()
	}
}

// interruptible is a context that ends with the first SIGINT or SIGTERM; a second one ends the process at once, with 1. If the
// command changes something the first is answered: what is in work is finished.
func interruptible(s streams, changes bool) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-signals:
			if changes {
				fmt.Fprintln(s.err, "\nstopping after what is in work; a second signal stops at once")
			}
			cancel()
		case <-done:
			return
		}
		select {
		case <-signals:
			os.Exit(exitFailed)
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		<-ended
		cancel()
	}
}

// failed writes an error and returns the exit code for it.
func (se *session) failed(s streams, err error) int {
	fmt.Fprintf(s.err, "%s: %v\n", se.name, err)
	return exitFailed
}
