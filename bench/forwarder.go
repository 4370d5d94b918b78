package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// forwarder is something that is measured.
type forwarder struct {
	name string
	// does is what of the work it does.
	does work
	// start runs it in a process of its own.
	start func(target) (*process, error)
}

type work int

const (
	delivers work = iota // from NATS to the app
	acks                 // a ceiling: takes messages from NATS, and acks them
	posts                // a ceiling: brings as many bodies to the app
)

// ceiling is whether it does a part of the work only.
func (f forwarder) ceiling() bool { return f.does != delivers }

// target is what a forwarder is told.
type target struct {
	nats, stream, durable, app string
	benchCase
}

// sidecarName is the one whose own settings the cases vary, and reference the one that the others are compared with.
const sidecarName, reference = "sidecar", "loop"

// builtIn are the forwarders that come with the benchmark; sidecar is the path of its binary.
func builtIn(sidecar string) []forwarder {
	byRole := func(name, role string, does work, more ...string) forwarder {
		return forwarder{name, does, func(t target) (*process, error) {
			return startRole(role, append(more, "nats="+t.nats, "stream="+t.stream, "durable="+t.durable, "app="+t.app,
				"concurrency="+strconv.Itoa(t.Concurrency), "size="+strconv.Itoa(t.Size), "messages="+strconv.Itoa(t.Messages))...)
		}}
	}
	return []forwarder{
		{sidecarName, delivers, func(t target) (*process, error) { return startSidecar(sidecar, t) }},
		byRole(reference, "loop", delivers),
		byRole("loop, default transport", "loop", delivers, "transport=default"),
		byRole("watermill", "watermill", delivers),
		byRole("ceiling: POST only", "post", posts),
		byRole("ceiling: ack only", "ack", acks),
	}
}

// startSidecar runs the sidecar as a user would, configured by the environment: all is at its default but for the addresses,
// the concurrency, and what the case varies. Its log goes to /dev/null.
func startSidecar(binary string, t target) (*process, error) {
	env := map[string]string{
		"NATS_URLS": t.nats, "APP_URL": t.app, "ADMIN_LISTEN": "127.0.0.1:0",
		"CONSUMERS_0_STREAM": t.stream, "CONSUMERS_0_DURABLE": t.durable, "CONSUMERS_0_CONCURRENCY": strconv.Itoa(t.Concurrency),
	}
	if t.Adaptive {
		env["CONSUMERS_0_CONCURRENCY_ADAPTIVE"] = "true"
	}
	if t.Ack != "" {
		env["CONSUMERS_0_ACK"] = t.Ack
	}
	if t.Prefetch > 0 {
		env["CONSUMERS_0_PREFETCH"] = strconv.Itoa(t.Prefetch)
	}
	if t.Batch > 0 {
		env["CONSUMERS_0_BATCH_MAX_MESSAGES"] = strconv.Itoa(t.Batch)
	}
	if t.Dedupe != "" {
		env["CONSUMERS_0_DEDUPE_STORE"] = t.Dedupe
	}
	if t.Order != "" {
		env["CONSUMERS_0_ORDER"] = t.Order
	}
	all := slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "SIDECAR_") })
	for key, value := range env {
		all = append(all, "SIDECAR_"+key+"="+value)
	}
	return startCommand(sidecarName, true, all, binary, "run")
}

// ofCommandLine is a forwarder of the user's, from "name=command with {placeholders}". The shell is replaced by the command,
// so that what is measured is its process.
func ofCommandLine(s string) (forwarder, error) {
	name, command, ok := strings.Cut(s, "=")
	if !ok || name == "" || strings.TrimSpace(command) == "" {
		return forwarder{}, fmt.Errorf("want name=command")
	}
	return forwarder{name, delivers, func(t target) (*process, error) {
		line := strings.NewReplacer("{nats}", t.nats, "{stream}", t.stream, "{durable}", t.durable, "{app}", t.app,
			"{concurrency}", strconv.Itoa(t.Concurrency)).Replace(command)
		return startCommand(name, false, nil, "sh", "-c", "exec "+line)
	}}, nil
}

// runs reports whether a forwarder has a part in a case.
func (f forwarder) runs(c benchCase) bool {
	switch {
	case c.Own:
		return f.name == sidecarName
	case f.ceiling():
		// They do not know of latency, of an app that fails, or of idleness.
		return c.Kind == throughput && c.Fail == 0 && (f.does == posts && c.RoundTrip == 0 || f.does == acks && c.Delay == 0)
	}
	return true
}
