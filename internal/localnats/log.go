package localnats

import (
	"fmt"
	"sync/atomic"
)

// log passes on a server's warnings and errors, and remembers why it could not start.
type log struct {
	out   func(format string, args ...any)
	fatal atomic.Pointer[string]
}

func newLog(out func(format string, args ...any)) *log {
	if out == nil {
		out = func(string, ...any) {}
	}
	return &log{out: out}
}

// Fatalf is called when the server cannot go on.
func (l *log) Fatalf(format string, args ...any) {
	why := fmt.Sprintf(format, args...)
	l.fatal.CompareAndSwap(nil, &why)
	l.out(format, args...)
}

// Errorf passes on an error.
func (l *log) Errorf(format string, args ...any) { l.out(format, args...) }

// Warnf passes on a warning.
func (l *log) Warnf(format string, args ...any) { l.out(format, args...) }

// Noticef drops a notice.
func (l *log) Noticef(string, ...any) {}

// Debugf drops a debug line.
func (l *log) Debugf(string, ...any) {}

// Tracef drops a trace line.
func (l *log) Tracef(string, ...any) {}
