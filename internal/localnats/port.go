package localnats

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"
)

const (
	// portTries is how many ports, or sets of ports, are tried before giving up.
	portTries = 20
	// inUseLimit is how long a port of this process may seem to be in use; it is looked every inUsePause.
	inUseLimit = 20 * time.Second
	inUsePause = 5 * time.Millisecond
)

// FreePort finds a TCP port of the loopback address that nothing uses. It is below the ports that systems give to
// outgoing connections: there a client that reconnects to a server that is down can take the port itself, and even
// connect to itself. On Linux no other process is given the port until this one ends, also while nothing listens on it.
func FreePort() (int, error) {
	var err error
	for range portTries {
		port := 10000 + rand.N(20000)
		if err = claim(port); err == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}

// Listen listens on an address on which this process has listened before.
func Listen(network, address string) (net.Listener, error) {
	return whileInUse(func() (net.Listener, error) { return net.Listen(network, address) })
}

// whileInUse tries again while a port of this process is in use, although nobody here listens on it any more: a process that
// is being started has a copy of every listener until it runs its own program.
func whileInUse[T any](listen func() (T, error)) (T, error) {
	for end := time.Now().Add(inUseLimit); ; time.Sleep(inUsePause) {
		t, err := listen()
		if err == nil || !inUse(err) || time.Now().After(end) {
			return t, err
		}
	}
}

func inUse(err error) bool { return strings.Contains(err.Error(), "address already in use") }
