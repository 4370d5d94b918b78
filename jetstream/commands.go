package jetstream

import (
	"slices"
	"strings"
)

// commands are the headers that the server acts on at publish (nats-server stream.go, jetstream_batching.go, msgtrace.go), or sets
// itself: copied into a DLQ entry they would make the stream refuse it, expire it, purge what is there, or say what is not true.
var commands = []string{
	"Nats-Msg-Id", "Nats-Rollup", "Nats-TTL", "Nats-Incr", "Nats-Counter-Sources", "Nats-Marker-Reason", "Nats-Required-Api-Level",
	"Nats-Stream-Identity", "Nats-Stream-Source", "Nats-Pin-Id", "Nats-Response-Type", "Nats-Request-Info",
	"Nats-Trace-Dest", "Nats-Trace-Hop", "Nats-Trace-Origin-Account", "Nats-Trace-Only",
}

// commandFamilies are the beginnings of names that the server takes for its own, whatever follows: it removes them itself from what it
// copies (nats-server scheduler.go and stream.go, removeHeaderIfPrefixPresent).
var commandFamilies = []string{"Nats-Expected-", "Nats-Batch-", "Nats-Schedule"}

// isCommand reports whether a header must not be copied into another stream.
func isCommand(name string) bool {
	return slices.ContainsFunc(commands, func(c string) bool { return strings.EqualFold(name, c) }) ||
		slices.ContainsFunc(commandFamilies, func(c string) bool { return len(name) >= len(c) && strings.EqualFold(name[:len(c)], c) })
}
