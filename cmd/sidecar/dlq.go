package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/jetsidecar/jetsidecar/forward"
	"github.com/jetsidecar/jetsidecar/internal/app"
	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/dlq"
	"github.com/jetsidecar/jetsidecar/internal/signals"
	"github.com/jetsidecar/jetsidecar/internal/telemetry"
	"github.com/jetsidecar/jetsidecar/internal/terminal"
	"github.com/jetsidecar/jetsidecar/jetstream"
)

// letters is what the commands need of dead letters, as by dlq.Service.
type letters interface {
	Streams() []string
	Missing(ctx context.Context, f dlq.Filter) ([]string, error)
	List(ctx context.Context, f dlq.Filter) iter.Seq2[*dlq.Entry, error]
	Get(ctx context.Context, stream string, seq uint64) (*dlq.Letter, error)
	Stats(ctx context.Context, f dlq.Filter) (*dlq.Stats, error)
	Remove(ctx context.Context, f dlq.Filter, o dlq.RemoveOptions) (*dlq.Report, error)
	Replay(ctx context.Context, f dlq.Filter, o dlq.ReplayOptions) (*dlq.Report, error)
}

func dlqCommands() []command {
	return []command{
		{name: "list", short: "list dead letters, the oldest first", args: "[-c FILE | --admin URL] [FILTERS] [--json]", long: dlqListHelp, run: dlqList},
		{name: "show", short: "show one dead letter with its cause, headers and body", args: "SEQ [-c FILE | --admin URL] [--stream DLQ_STREAM] [--json | --raw]", long: dlqShowHelp, run: dlqShow},
		{name: "stats", short: "count dead letters by consumer, subject, reason and status", args: "[-c FILE | --admin URL] [FILTERS] [--json]", long: dlqStatsHelp, run: dlqStats},
		{name: "replay", short: "deliver dead letters again", args: "[SEQ] [-c FILE | --admin URL] [FILTERS] [--to app|stream] [--rate N] [--concurrency N] [--max-replays N] [--dry-run] [--yes] [--json]", long: dlqReplayHelp, run: dlqReplay},
		{name: "rm", short: "remove dead letters for good", args: "[SEQ] [-c FILE | --admin URL] [FILTERS] [--dry-run] [--yes] [--json]", long: dlqRemoveHelp, run: dlqRemove},
	}
}

// session is one dlq command at work.
type session struct {
	letters
	name  string // of the command, for messages
	ctx   context.Context
	close func()
}

// open connects to a running sidecar, or to what a configuration points at; toApp is how many requests the app may get at a time, 0
// for none, and -1 where nothing is changed at all. With se nil the error is written, and code is the exit code.
func (d *dlqFlags) open(c command, s streams, toApp int) (se *session, code int) {
	se = &session{name: "sidecar dlq " + c.name}
	var stop func()
	se.ctx, stop = interruptible(s, toApp >= 0)
	se.atEnd(stop)
	var err error
	if d.admin != "" {
		code, err = d.openRemote(se, s)
	} else {
		code, err = d.openHere(se, s, toApp)
	}
	if err == nil && code == exitOK && d.filter.Stream != "" && !slices.Contains(se.Streams(), d.filter.Stream) {
		code, err = exitUsage, d.unknownStream(se.Streams())
	}
	if code == exitOK {
		return se, exitOK
	}
	if se.ctx.Err() != nil {
		code, err = exitFailed, errInterrupted
	}
	se.end()
	if err != nil {
		fmt.Fprintf(s.err, "%s: %s\n", se.name, terminal.CleanLines(err.Error()))
	}
	return nil, code
}

// openHere connects to NATS. An error of the configuration is written already.
func (d *dlqFlags) openHere(se *session, s streams, toApp int) (code int, err error) {
	cfg, ok := load(d.config, s)
	if !ok {
		return exitUsage, nil
	}
	warnings(s.err, cfg.Warnings)
	log, flush, err := telemetry.NewLogger(s.err, "warn", "text")
	if err != nil {
		return exitUsage, err
	}
	se.atEnd(flush)
	conn, err := jetstream.Dial(cfg.NATS, log)
	if err != nil {
		return exitUsage, err
	}
	se.atEnd(conn.Close)
	if err := se.connect(cfg, conn, log, toApp); err != nil {
		return exitUsage, err
	}
	if found := conn.AwaitConnection(se.ctx, connectFor); found.Level == jetstream.Failed {
		return exitFailed, fmt.Errorf("%s: %s", found.What, found.Detail)
	}
	return exitOK, nil
}

// openRemote looks for a running sidecar. The token is that of the flags, else of the environment, else of the configuration.
func (d *dlqFlags) openRemote(se *session, s streams) (code int, err error) {
	token := d.token
	file := d.tokenFile
	if token == "" && file == "" {
		token, file = s.getenv("SIDECAR_ADMIN_TOKEN"), s.getenv("SIDECAR_ADMIN_TOKEN_FILE")
	}
	switch {
	case token != "":
	case file != "":
		text, err := os.ReadFile(file)
		if err != nil {
			return exitUsage, fmt.Errorf("reading the token: %w", err)
		}
		token = strings.TrimSpace(string(text))
	case options(d.config, s).File != "":
		cfg, ok := load(d.config, s)
		if !ok {
			return exitUsage, nil
		}
		token = cfg.Admin.Token
	}
	base, err := remoteURL(d.admin)
	if err != nil {
		return exitUsage, err
	}
	r, err := dialRemote(se.ctx, base, token)
	if err != nil {
		return exitFailed, err
	}
	se.atEnd(r.close)
	se.letters = r
	return exitOK, nil
}

// connect builds the service.
func (se *session) connect(cfg *config.Loaded, conn *jetstream.Conn, log *slog.Logger, toApp int) (err error) {
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
	se.letters = service
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
	came := make(chan os.Signal, 2)
	signal.Notify(came, syscall.SIGINT, syscall.SIGTERM)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		signals.Watch(came, done, func(os.Signal) {
			if changes {
				fmt.Fprintln(s.err, belowBar(s)+"stopping after what is in work; a second signal stops at once")
			}
			cancel()
		}, func(os.Signal) { os.Exit(exitFailed) })
	}()
	return ctx, func() {
		signal.Stop(came)
		close(done)
		<-ended
		cancel()
	}
}

// belowBar begins a line below the progress bar and the terminal's ^C, where there is a terminal.
func belowBar(s streams) string {
	if terminal.StyleOf(s.err, s.getenv).Terminal {
		return "\n"
	}
	return ""
}

// missing says which DLQ streams do not exist where nothing is selected: it may be the wrong account or domain that was asked.
func (se *session) missing(s streams, f dlq.Filter) {
	if len(se.Streams()) == 0 {
		fmt.Fprintln(s.err, errNoDLQ)
	}
	names, err := se.Missing(se.ctx, f)
	if err != nil {
		return // what matters was read
	}
	for _, name := range names {
		fmt.Fprintf(s.err, "stream %s does not exist: no sidecar has run here, or this is another account or domain\n", terminal.Clean(name))
	}
}

var errInterrupted = errors.New("interrupted before it was through")

// failed writes an error and returns the exit code for it.
func (se *session) failed(s streams, err error) int {
	if se.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errInterrupted
	}
	fmt.Fprintf(s.err, "%s: %s\n", se.name, terminal.CleanLines(err.Error()))
	return exitFailed
}
