package main

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"syscall"
)

// checkMain is sidecar check.
func checkMain(c command, args []string, s streams) int {
	fs, file := configFlags(c.name)
	connect := fs.Bool("connect", false, "also check NATS and the app")
	if !parseFlags(c, fs, args, s) {
		return exitUsage
	}
	cfg, ok := load(*file, s)
	if !ok {
		return exitUsage
	}
	fmt.Fprintf(s.out, "configuration ok: %s\n", count(len(cfg.Consumers), "consumer"))
	warnings(s.out, cfg.Warnings)
	if !*connect {
		return exitOK
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return checkConnect(ctx, cfg, s.out)
}

// warnings writes one line for each warning.
func warnings(w io.Writer, all []string) {
	for _, one := range all {
		fmt.Fprintf(w, "warning: %s\n", one)
	}
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
