package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// roleArgument makes the program play one part of the comparison, in a process of its own. It says on its standard output
// where it can be reached, begins when its input says so, and ends with its input: with the process that started it.
const roleArgument = "role"

// role is one such part.
type role struct {
	arguments map[string]string
	// begun is closed when the input says to begin.
	begun <-chan struct{}
}

var roles = map[string]func(context.Context, *role) error{
	"nats":      playNATS,
	"app":       playApp,
	"proxy":     playProxy,
	"loop":      playLoop,
	"watermill": playWatermill,
	"ack":       playAck,
	"post":      playPost,
	"keep":      playKeep,
}

func playRole(name string, arguments []string) error {
	play, ok := roles[name]
	if !ok {
		return fmt.Errorf("no such role")
	}
	begun := make(chan struct{})
	r := &role{arguments: map[string]string{}, begun: begun}
	for _, a := range arguments {
		key, value, _ := strings.Cut(a, "=")
		r.arguments[key] = value
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() {
		defer stop()
		in := bufio.NewReader(os.Stdin)
		if _, err := in.ReadString('\n'); err == nil {
			close(begun)
			_, _ = io.Copy(io.Discard, in)
		}
	}()
	return play(ctx, r)
}

// greeting is what a role says once it is ready.
type greeting struct {
	Address string `json:"address"`
}

func (r *role) ready(address string) error {
	return json.NewEncoder(os.Stdout).Encode(greeting{address})
}

func (r *role) text(key string) string { return r.arguments[key] }

func (r *role) number(key string) int {
	n, _ := strconv.Atoi(r.arguments[key])
	return n
}

func (r *role) duration(key string) time.Duration {
	d, _ := time.ParseDuration(r.arguments[key])
	return d
}
