package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"

	"golang.org/x/term"
)

// NewLogger builds the log: level is debug, info, warn or error; format is json, text or auto (text if w is a terminal,
// JSON otherwise). Lines are collected and written when 64 KiB are full or the oldest is 100 ms old; one of level warn
// or above is written at once, with those before it. Nothing raw that a terminal could take for a command reaches w.
//
// A sink that fails, or takes nothing for a second, costs lines, not deliveries: they are counted, and the number is logged when
// it works again. The returned func writes what is left; call it last. What is logged after that is written at once.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, func(), error) {
	least, err := parseLevel(level)
	if err != nil {
		return nil, nil, err
	}
	out := &sink{w: w}
	opts := &slog.HandlerOptions{Level: least}
	switch format {
	case "json":
	case "text":
		return slog.New(handler{Handler: slog.NewTextHandler(out, opts), out: out}), out.close, nil
	case "auto":
		if isTerminal(w) {
			return slog.New(handler{Handler: slog.NewTextHandler(out, opts), out: out}), out.close, nil
		}
	default:
		return nil, nil, fmt.Errorf("log format %q: want auto, text or json", format)
	}
	out.json = true
	return slog.New(handler{Handler: slog.NewJSONHandler(out, opts), out: out}), out.close, nil
}

func parseLevel(s string) (slog.Level, error) {
	switch s {
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	default:
		return 0, fmt.Errorf("log level %q: want debug, info, warn or error", s)
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// handler is one of slog's, with durations as Go writes them ("1.5s") in both formats, and the sink's urgency.
type handler struct {
	slog.Handler
	out     *sink
	attrs   []slog.Attr // of all lines
	grouped bool
}

// Handle writes one line.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if hasDuration(r) {
		r = withoutDurations(r)
	}
	err := h.Handler.Handle(ctx, r)
	if r.Level >= slog.LevelWarn {
		h.out.flush()
	}
	return err
}

// WithAttrs is slog's.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	spelt := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		spelt[i] = spellDuration(a)
	}
	h.Handler, h.attrs = h.Handler.WithAttrs(spelt), slices.Concat(h.attrs, spelt)
	return h
}

// WithGroup is slog's.
func (h handler) WithGroup(name string) slog.Handler {
	h.Handler, h.grouped = h.Handler.WithGroup(name), true
	return h
}

func hasDuration(r slog.Record) bool {
	found := false
	r.Attrs(func(a slog.Attr) bool {
		k := a.Value.Kind()
		found = k == slog.KindDuration || k == slog.KindGroup || k == slog.KindLogValuer
		return !found
	})
	return found
}

func withoutDurations(r slog.Record) slog.Record {
	spelt := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		spelt.AddAttrs(spellDuration(a))
		return true
	})
	return spelt
}

func spellDuration(a slog.Attr) slog.Attr {
	a.Value = a.Value.Resolve()
	switch a.Value.Kind() {
	case slog.KindDuration:
		a.Value = slog.StringValue(a.Value.Duration().String())
	case slog.KindGroup:
		group := a.Value.Group()
		spelt := make([]slog.Attr, len(group))
		for i, b := range group {
			spelt[i] = spellDuration(b)
		}
		a.Value = slog.GroupValue(spelt...)
	}
	return a
}
