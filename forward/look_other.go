//go:build !(darwin || freebsd || linux || netbsd || openbsd)

package forward

import (
	"net"
	"syscall"
)

const canLook = false

func rawOf(net.Conn) syscall.RawConn { return nil }

func (l *link) sendRaw() error { return errUnsent }

func (l *link) start(uintptr) bool { return true }
