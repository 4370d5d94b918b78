//go:build !linux

package localnats

import (
	"net"
	"strconv"
)

// claim tells whether nothing listens on a port.
func claim(port int) error {
	ln, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return ln.Close()
}
