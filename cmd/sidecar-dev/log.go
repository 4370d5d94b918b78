package main

import (
	"context"
	"log/slog"
	"strings"
)

// logHandler shows the sidecar's warnings and errors as lines. Its lines about single messages are left out: they have
// a line of their own.
type logHandler struct {
	lines  lines
	screen *screen
	attrs  []slog.Attr
}

// Enabled takes warnings and worse.
func (h logHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle shows one record.
func (h logHandler) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "settled" {
		return nil
	}
	parts := []string{clean(r.Message)}
	add := func(a slog.Attr) bool {
		if a.Key != "stream" && a.Key != "consumer" { // there is one
			parts = append(parts, clean(a.Key)+"="+clean(a.Value.Resolve().String()))
		}
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	colour := yellow
	if r.Level >= slog.LevelError {
		colour = red
	}
	h.screen.line(h.lines.note(r.Time, colour, strings.ToLower(r.Level.String()), strings.Join(parts, "  ")))
	return nil
}

// WithAttrs adds to every record.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.attrs = append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)
	return h
}

// WithGroup is not told from none: names are unique enough to be read.
func (h logHandler) WithGroup(string) slog.Handler { return h }
