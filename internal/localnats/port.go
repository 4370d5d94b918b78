package localnats

import (
	"fmt"
	"math/rand/v2"
)

// portTries is how many ports, or sets of ports, are tried before giving up.
const portTries = 20

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
