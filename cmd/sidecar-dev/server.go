package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

// startServer runs the NATS server. Its warnings and errors go to warn.
func startServer(port int, place store, warn func(string)) (*localnats.Server, error) {
	if port != 0 {
		// The server itself says so late, and in its own words.
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return nil, fmt.Errorf("the NATS server cannot have port %d (%s): choose another with --port, or --port 0 for any free one", port, cause(err))
		}
		ln.Close()
	}
	return localnats.Start(localnats.Options{
		Port: port, StoreDir: place.dir, Name: "sidecar-dev",
		Log: func(format string, args ...any) {
			text := fmt.Sprintf(format, args...)
			if place.temporary && strings.Contains(text, "Temporary storage directory") {
				return // on purpose
			}
			warn(text)
		},
	})
}

// cause is the system's own word for why an address could not be had.
func cause(err error) string {
	var system *os.SyscallError
	if errors.As(err, &system) {
		return system.Err.Error()
	}
	return err.Error()
}

// source is the stream that the sample messages go to.
type source struct {
	name     string
	subjects []string
	window   time.Duration // in which the stream itself holds back repeated ids
	last     uint64        // sequence of the last message that was there
	found    bool          // it was there before
}

// openStream finds the stream, and makes it if it is missing. One that is there is not changed.
func openStream(ctx context.Context, js natsjs.JetStream, name string) (source, error) {
	stream, err := js.Stream(ctx, name)
	found := err == nil
	if errors.Is(err, natsjs.ErrStreamNotFound) {
		stream, err = js.CreateStream(ctx, natsjs.StreamConfig{
			Name:        name,
			Description: "sample messages of sidecar-dev",
			Subjects:    []string{strings.ToLower(name) + ".>"},
			MaxBytes:    1 << 30,
			// As short as it can be, so that repeated messages get past the stream and the sidecar is seen to
			// recognize them.
			Duplicates: 100 * time.Millisecond,
		})
	}
	if err != nil {
		return source{}, fmt.Errorf("open stream %s: %w", name, err)
	}
	info := stream.CachedInfo()
	s := source{name: name, subjects: info.Config.Subjects, window: info.Config.Duplicates, last: info.State.LastSeq, found: found}
	if len(s.subjects) == 0 {
		return s, fmt.Errorf("open stream %s: it has no subjects to publish to; choose another with --stream", name)
	}
	return s, nil
}

// outlived is how long after a message the stream surely takes another one with its id: the server forgets ids by a
// timer of its own. A stream with a long window is not waited for: then it is seen to hold the repeated message back.
func (s source) outlived() time.Duration { return min(2*s.window, time.Second) }

// subject is where an event goes: the stream's first subject, with the event in place of its last wildcard.
func (s source) subject(event string) string {
	tokens := strings.Split(s.subjects[0], ".")
	for i := len(tokens) - 1; i >= 0; i-- {
		if tokens[i] == ">" || tokens[i] == "*" {
			tokens[i], event = event, "sample"
		}
	}
	return strings.Join(tokens, ".")
}
