//go:build darwin || freebsd || linux || netbsd || openbsd

package forward

import (
	"errors"
	"net"
	"os"
	"syscall"
)

// canLook is whether a connection can be looked into without waiting here. Elsewhere net/http sends everything.
const canLook = true

// rawOf is the connection itself, if it is a socket.
func rawOf(nc net.Conn) syscall.RawConn {
	if sc, ok := nc.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

// sendRaw looks whether the link is still there, writes what the socket takes at once, and waits until there is something to
// read if that was everything.
func (l *link) sendRaw() error {
	err := l.raw.Read(l.step)
	for err != nil && !l.began && l.extend(err) {
		err = l.raw.Read(l.step)
	}
	if l.began {
		return nil // waiting goes on when reading
	}
	if err == nil {
		err = errUnsent
	}
	return err
}

// start is what sendRaw does with the socket: false waits until it can be read, then start is called again.
//
// Waiting begins with forgetting that the socket could be read before. That was done when start is called the first time, and
// then nothing was there to read: whatever comes from here on ends the waiting, although no read was tried.
func (l *link) start(fd uintptr) (ended bool) {
	if l.began {
		return true
	}
	switch n, err := peek(int(fd)); {
	case errors.Is(err, syscall.EAGAIN):
	case err != nil || n == 0:
		l.left = true
		return true
	case l.used > 0:
		return true // what it says nobody asked for
	default:
		ended = true // the app speaks first: what it says is taken for its answer
	}
	l.began = true
	for _, part := range [...][]byte{l.out, l.more} {
		n, err := write(int(fd), part)
		l.sent += n
		if err != nil && !errors.Is(err, syscall.EAGAIN) {
			l.sendErr = os.NewSyscallError("write", err)
		}
		if n < len(part) {
			return true
		}
	}
	return ended
}

func peek(fd int) (n int, err error) {
	for {
		var b [1]byte
		n, _, err = syscall.Recvfrom(fd, b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		if err != syscall.EINTR {
			return n, err
		}
	}
}

// write writes all that the socket takes.
func write(fd int, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var k int
		k, err = syscall.Write(fd, p[n:])
		n += max(k, 0)
		if err == syscall.EINTR {
			err = nil
		}
	}
	return n, err
}
