package forward

import (
	"errors"
	"net"
	"os"
)

// inlineBytes are how large a body can be that is written together with the head.
const inlineBytes = 16 << 10

var errUnsent = errors.New("connection was closed before the request was sent")

// send writes the request, or as much of it as goes at once, and leaves the rest to a goroutine.
func (l *link) send() error {
	switch {
	case l.raw != nil:
		if err := l.sendRaw(); err != nil {
			return err
		}
	case len(l.more) == 0:
		if err := l.bound(); err != nil {
			return err
		}
		l.began = true
		l.sent, l.sendErr = l.nc.Write(l.out)
	}
	switch {
	case l.sendErr != nil && l.sent == 0 && !errors.Is(l.sendErr, os.ErrDeadlineExceeded):
		return errUnsent
	case l.sendErr != nil && l.sent == 0:
		return l.sendErr
	case l.sendErr == nil && l.sent < len(l.out)+len(l.more):
		if err := l.bound(); err != nil {
			return err
		}
		l.sending = make(chan struct{})
		go l.finish(l.sending)
	}
	return nil // an answer may be there, even if the request could not be written to its end
}

// finish writes what is left of the request.
func (l *link) finish(done chan struct{}) {
	defer close(done)
	left := net.Buffers{l.out[min(l.sent, len(l.out)):], l.more[max(l.sent-len(l.out), 0):]}
	n, err := left.WriteTo(l.nc)
	l.sent, l.sendErr = l.sent+int(n), err
}

// bound bounds writing too, where it may have to wait.
func (l *link) bound() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.interrupted {
		return os.ErrDeadlineExceeded
	}
	return l.nc.SetWriteDeadline(l.until)
}
