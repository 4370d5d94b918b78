package main

import (
	"bytes"
	"context"
	"testing"

	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/jetstream"
)

// An interrupted check says that it was, and blames nobody.
func TestCheckInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	cfg := &config.Loaded{Config: config.Config{NATS: jetstream.Config{URLs: []string{"nats://127.0.0.1:1"}}}}
	var out bytes.Buffer
	if code := checkConnect(ctx, cfg, &out); code != exitFailed || out.String() != errInterrupted.Error()+"\n" {
		t.Errorf("exit %d, it says:\n%s", code, out.String())
	}
}
