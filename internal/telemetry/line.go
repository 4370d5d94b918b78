package telemetry

import (
	"bytes"
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/pipeline"
)

// lines writes the line of a settled message as slog's JSON handler does, byte for byte, for a third of its cost: it is written
// for each message. A text that needs more than quotes is left to slog.
type lines struct {
	out        *sink
	info, warn []byte // from the level to the last attribute that all lines share
}

// linesOf are the lines of a handler; nil where it does not write JSON to a sink of ours.
func linesOf(h slog.Handler) *lines {
	ours, ok := h.(handler)
	if !ok || !ours.out.json || ours.grouped {
		return nil
	}
	return &lines{out: ours.out, info: shared(ours.attrs, slog.LevelInfo), warn: shared(ours.attrs, slog.LevelWarn)}
}

// shared is what slog makes of a line without a time and attributes of its own, without the braces.
func shared(attrs []slog.Attr, level slog.Level) []byte {
	var b bytes.Buffer
	_ = slog.NewJSONHandler(&b, nil).WithAttrs(attrs).Handle(context.Background(), slog.NewRecord(time.Time{}, level, "settled", 0))
	return bytes.TrimSuffix(bytes.TrimPrefix(b.Bytes(), []byte("{")), []byte("}\n"))
}

// write writes a line, and reports whether it could.
func (l *lines) write(now time.Time, level slog.Level, s *pipeline.Settled) bool {
	cause := s.Error[:min(len(s.Error), maxLogged)]
	if !plain(s.Subject) || !plain(string(s.Reason)) || !plain(cause) {
		return false
	}
	var room [768]byte
	b := append(room[:0], `{"time":"`...)
	b = now.AppendFormat(b, time.RFC3339Nano)
	b = append(b, `",`...)
	if level == slog.LevelWarn {
		b = append(b, l.warn...)
	} else {
		b = append(b, l.info...)
	}
	b = text(b, `,"subject":"`, s.Subject)
	b = strconv.AppendUint(append(b, `,"sequence":`...), s.Sequence, 10)
	b = strconv.AppendUint(append(b, `,"delivered":`...), s.Delivered, 10)
	b = text(b, `,"verdict":"`, string(s.Result))
	b = text(b, `,"reason":"`, string(s.Reason))
	b = strconv.AppendInt(append(b, `,"status":`...), int64(s.Status), 10)
	b = text(b, `,"delay":"`, s.Delay.String())
	b = text(b, `,"duration":"`, s.Duration.String())
	if cause != "" {
		b = text(b, `,"error":"`, cause)
	}
	_, _ = l.out.Write(append(b, "}\n"...)) // the sink never fails
	if level >= slog.LevelWarn {
		l.out.flush()
	}
	return true
}

func text(b []byte, key, value string) []byte {
	return append(append(append(b, key...), value...), '"')
}

// plain reports whether a text is in JSON what it is here.
func plain(s string) bool {
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
