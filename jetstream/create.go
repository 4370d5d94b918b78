package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

const (
	errInvalidConfig    natsjs.ErrorCode = 10052
	errMaxBytesRequired natsjs.ErrorCode = 10113
	// leastWindow is the shortest duplicate window that a server takes.
	leastWindow = 100 * time.Millisecond
)

// createStream makes a stream. Where the server has a limit on duplicate windows below the stream's, it is made with that of the limit.
func (c *Conn) createStream(ctx context.Context, cfg natsjs.StreamConfig) (natsjs.Stream, error) {
	ctx, cancel := c.bounded(ctx, apiTimeout)
	defer cancel()
	wanted := cfg.Duplicates
	for {
		stream, err := c.js().CreateStream(ctx, cfg)
		if window, limited := windowWithin(err, cfg.Duplicates); limited {
			cfg.Duplicates = window
			continue
		}
		if err == nil && cfg.Duplicates < wanted {
			c.log.Warn("the server limits duplicate windows: what is stored again later than that may be stored twice",
				slog.String("stream", cfg.Name), slog.Duration("duplicate_window", cfg.Duplicates), slog.Duration("wanted", wanted))
		}
		return stream, explained(err, cfg.Name)
	}
}

// windowLimit asks what limit the server has on duplicate windows, if it is below one that is wanted; 0 if not. The stream that it asks for the
// server refuses to make in any case: it may be rolled up and not be purged.
func (c *Conn) windowLimit(ctx context.Context, name string, wanted time.Duration) time.Duration {
	subject := c.prefix + "STREAM.CREATE." + name
	within, cancel := c.bounded(ctx, apiTimeout)
	defer cancel()
	err := c.permitted(within, func(ctx context.Context) error {
		_, err := c.js().CreateStream(ctx, natsjs.StreamConfig{
			Name: name, Subjects: []string{"sidecar.check"}, Duplicates: wanted, DenyPurge: true, AllowRollup: true,
		})
		return err
	}, subject)
	window, limited := windowWithin(err, wanted)
	if !limited {
		return 0
	}
	return window
}

var limitOf = regexp.MustCompile(`limit of (\S+)$`)

// windowWithin is the duplicate window to ask for after a refusal of one for being too long: the limit that the refusal names, else half.
func windowWithin(err error, window time.Duration) (within time.Duration, limited bool) {
	var refused *natsjs.APIError
	if !errors.As(err, &refused) || refused.ErrorCode != errInvalidConfig || !strings.Contains(refused.Description, "duplicates window") ||
		!strings.Contains(refused.Description, "server limit") {
		return 0, false
	}
	if named := limitOf.FindStringSubmatch(refused.Description); named != nil {
		if d, err := time.ParseDuration(named[1]); err == nil && d > 0 && d < window {
			return d, true
		}
	}
	return window / 2, window/2 >= leastWindow
}

// explained says what to do about a refusal that the server's words do not tell.
func explained(err error, stream string) error {
	var refused *natsjs.APIError
	switch {
	case !errors.As(err, &refused) || refused.ErrorCode != errMaxBytesRequired:
		return err
	case strings.HasPrefix(stream, "KV_"):
		return fmt.Errorf("%w: make stream %s by hand, with max_bytes", err, stream)
	case stream == RetryStream:
		return fmt.Errorf("%w, with which it could drop what waits there", err)
	}
	return fmt.Errorf("%w: set dlq.max_bytes", err)
}
