package main

import (
	"context"
	"fmt"
	"io"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// checkConnect checks what the configuration points at, one line per check, and returns the exit code.
func checkConnect(_ context.Context, _ *config.Loaded, stdout io.Writer) int {
	fmt.Fprintln(stdout, "connect: not supported yet")
	return exitFailed
}
