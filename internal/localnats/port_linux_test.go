package localnats

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// A port that was given out is given to no other process, while something listens on it and while nothing does, and
// whoever was given it can listen on it again and again.
func TestFreePortIsClaimed(t *testing.T) {
	const variable = "LOCALNATS_TEST_CLAIM"
	if port, err := strconv.Atoi(os.Getenv(variable)); err == nil { // the other process
		if claim(port) == nil {
			os.Exit(7)
		}
		os.Exit(0)
	}
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	refused := func(when string) {
		t.Helper()
		other := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFreePortIsClaimed$")
		other.Env = append(os.Environ(), variable+"="+strconv.Itoa(port))
		if err := other.Run(); err != nil {
			t.Errorf("%s: another process could claim the port: %v", when, err)
		}
	}
	refused("nothing listens")
	for range 2 {
		ln, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			t.Fatal(err)
		}
		refused("it listens")
		if err := ln.Close(); err != nil {
			t.Error(err)
		}
		refused("it has listened")
	}
}
