package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/jetsidecar/jetsidecar/internal/app"
	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/signals"
	"github.com/jetsidecar/jetsidecar/internal/telemetry"
)

// runCommand runs the sidecar until SIGTERM or SIGINT and returns the exit code. A second signal ends the process at once.
func runCommand(ctx context.Context, cfg *config.Loaded, stderr io.Writer) int {
	signal.Ignore(syscall.SIGPIPE) // a log that nobody reads any more costs lines, not the deliveries
	log, flush, err := telemetry.NewLogger(stderr, cfg.Log.Level, cfg.Log.Format)
	if err != nil {
		fmt.Fprintf(stderr, "sidecar: %v\n", err)
		return exitUsage
	}
	defer flush()
	tuneMemory(cfg)
	for _, w := range cfg.Warnings {
		log.Warn("configuration", slog.String("warning", w))
	}
	ctx, stop := signalled(ctx, log, flush)
	defer stop()
	v, commit := buildVersion()
	a, err := app.New(app.Options{Config: &cfg.Config, Version: v, Commit: commit, Log: log})
	if err != nil {
		flush()
		fmt.Fprintf(stderr, "sidecar: %v\n", err)
		if listen := (*net.OpError)(nil); errors.As(err, &listen) {
			return exitFailed
		}
		return exitUsage
	}
	log.Info("started", slog.String("version", v), slog.Int("consumers", len(cfg.Consumers)), slog.String("admin", a.AdminAddr().String()))

	if err := a.Run(ctx); err != nil {
		if errors.Is(err, app.ErrUnconfirmed) {
			log.Error("stopped, but not cleanly", slog.String("error", err.Error()))
		} else {
			log.Error("ended", slog.String("error", err.Error()))
		}
		return exitFailed
	}
	log.Info("stopped")
	return exitOK
}

// signalled is a context that ends with the first SIGTERM or SIGINT; a second one, see signals.Repeat, ends the process at once, with 1.
func signalled(parent context.Context, log *slog.Logger, flush func()) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	came := make(chan os.Signal, 2)
	signal.Notify(came, syscall.SIGTERM, syscall.SIGINT)
	done := make(chan struct{})
	go func() {
		signals.Watch(came, done, func(s os.Signal) {
			log.Info("stopping", slog.String("signal", s.String()))
			cancel()
		}, func(s os.Signal) {
			log.Error("stopped at once by a second signal", slog.String("signal", s.String()))
			flush()
			os.Exit(exitFailed)
		})
	}()
	return ctx, func() {
		signal.Stop(came)
		close(done)
		cancel()
	}
}
