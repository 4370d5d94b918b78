package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/jetsidecar/jetsidecar/forward"
	"github.com/jetsidecar/jetsidecar/internal/app"
	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/jetstream"
)

// connectFor is how long check --connect waits for NATS and for the app.
const connectFor = 5 * time.Second

// checkConnect checks what the configuration points at, one line per check, and returns the exit code.
func checkConnect(ctx context.Context, cfg *config.Loaded, stdout io.Writer) int {
	code := exitOK
	report := func(f jetstream.Finding) {
		fmt.Fprintf(stdout, "%-8s %s: %s\n", f.Level, f.What, f.Detail)
		if f.Advice != "" && f.Level != jetstream.OK {
			fmt.Fprintf(stdout, "%-8s   -> %s\n", "", f.Advice)
		}
		if f.Level == jetstream.Failed {
			code = exitFailed
		}
	}
	found := checkNATS(ctx, cfg)
	if ctx.Err() == nil {
		for _, f := range found {
			report(f)
		}
		found = []jetstream.Finding{checkApp(ctx, cfg)}
	}
	if ctx.Err() != nil { // what was found since is of the interruption
		fmt.Fprintln(stdout, errInterrupted)
		return exitFailed
	}
	report(found[0])
	return code
}

func checkNATS(ctx context.Context, cfg *config.Loaded) []jetstream.Finding {
	conn, err := jetstream.Dial(cfg.NATS, slog.New(slog.DiscardHandler))
	if err != nil {
		return []jetstream.Finding{{Level: jetstream.Failed, What: "nats", Detail: err.Error(), Advice: "correct the keys under nats"}}
	}
	defer conn.Close()
	found := conn.AwaitConnection(ctx, connectFor)
	findings := []jetstream.Finding{found}
	if found.Level == jetstream.Failed {
		return findings
	}
	if off, yes := conn.CheckJetStream(ctx); yes {
		return append(findings, off)
	}
	for _, c := range cfg.Consumers {
		findings = append(findings, conn.Check(ctx, app.SourceConfig(c), c.DLQ)...)
		if c.Dedupe.Store == "kv" {
			findings = append(findings, conn.CheckBucket(ctx, app.BucketConfig(c))...)
		}
	}
	return findings
}

func checkApp(ctx context.Context, cfg *config.Loaded) jetstream.Finding {
	client, err := forward.New(cfg.App, forward.Options{Connections: 1})
	if err != nil {
		return jetstream.Finding{Level: jetstream.Failed, What: "app", Detail: err.Error(), Advice: "correct the keys under app"}
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, connectFor)
	defer cancel()
	if err := client.Probe(ctx); err != nil {
		return jetstream.Finding{Level: jetstream.Failed, What: "app", Detail: err.Error(), Advice: "start the app, or correct app.url and app.ready.path"}
	}
	return jetstream.Finding{Level: jetstream.OK, What: "app", Detail: "it is there"}
}
