package localnats

import (
	"fmt"
	"net/netip"
	"syscall"
)

// claim holds a port for the life of the process by a socket that is bound to it alone and never listens. Once it is
// bound it lets go of being alone towards sockets that, like every listener of net.Listen, set SO_REUSEADDR: they can
// listen on the port, but a second claim, which binds without it, is refused (bind(2), ip(7)).
func claim(port int) error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	at := &syscall.SockaddrInet4{Port: port, Addr: netip.MustParseAddr(host).As4()}
	if err := syscall.Bind(fd, at); err != nil {
		_ = syscall.Close(fd)
		return fmt.Errorf("bind port %d: %w", port, err)
	}
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		_ = syscall.Close(fd)
		return fmt.Errorf("share port %d: %w", port, err)
	}
	return nil
}
